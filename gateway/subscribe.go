package gateway

import (
	"cmp"
	"context"
	"strconv"

	"github.com/handfast-mq/handfast/schema"
)

type wireSubscribe struct {
	Consumer schema.UserID  `json:"consumer_id"`
	Topic    schema.TopicID `json:"topic_id"`
	Start    *wireStart     `json:"start"`
	wireTerms
}

func (g *Gateway) subscribe(ctx context.Context, by caller, in *wireSubscribe) (out wireSubscription, err error) {
	if err := cmp.Or(checkID("topic_id", in.Topic), checkOptionalID("consumer_id", in.Consumer), in.wireTerms.check()); err != nil {
		return out, err
	}
	spec := schema.Subscription{Topic: in.Topic, Consumer: by.or(in.Consumer)}
	in.wireTerms.set(&spec)
	if in.Start != nil {
		spec.Start = in.Start.StartAt
	}
	return by.shown(g.agree(ctx, by, spec))
}

// agree makes a subscription and asks both sides for what consent can be had at once.
func (g *Gateway) agree(ctx context.Context, by caller, spec schema.Subscription) (*schema.Subscription, error) {
	topic, err := g.topicFor(ctx, by, spec.Consumer, schema.ActionSubscribe, spec.Topic)
	if err != nil {
		return nil, err
	}
	if err := g.checkTarget(&spec); err != nil {
		return nil, err
	}
	if err := g.mayTarget(ctx, by, &spec); err != nil {
		return nil, err
	}
	if err := g.startAtMessage(ctx, &spec); err != nil {
		return nil, err
	}
	approved := g.decide(ctx, by, &schema.AuthRequest{Action: schema.ActionAutoApprove, As: spec.Consumer, Topic: topic.Topic,
		Rule: g.cfg.Catalog.Rule(topic.Rule), Granted: g.cfg.Catalog.Granted(topic.ID, spec.Consumer)}).Allow
	if spec.Target.Type == schema.TargetWebhook {
		spec.Secrets = []schema.Secret{{Key: g.cfg.NewSecret()}}
	}
	s, err := g.cfg.Catalog.Subscribe(ctx, spec, approved, spec.Target.Type != schema.TargetWebhook)
	if err != nil {
		return nil, err
	}
	return g.askConsumer(ctx, s)
}

// checkTarget refuses targets that this cluster cannot serve.
func (g *Gateway) checkTarget(s *schema.Subscription) error {
	t := &s.Target
	switch {
	case t.Type == "" || t.Type == schema.TargetPull:
		if t.URL != "" || t.Function != "" {
			return schema.Errorf(schema.Invalid, "target: url and function are for push targets: say its type")
		}
		return nil
	case t.Type == schema.TargetWebhook:
		return g.cfg.CheckURL(t.URL)
	case !g.cfg.Targets[t.Type]:
		return schema.Errorf(schema.Invalid, "target: this cluster has no targets of type %q", clip(string(t.Type)))
	case t.Function == "":
		return schema.Errorf(schema.Invalid, "target: function is missing")
	case t.Type == schema.TargetLambda:
		return g.cfg.CheckLambda(t)
	}
	return nil
}

// wireSubscriber names a consumer's subscription to a topic.
type wireSubscriber struct {
	Consumer schema.UserID  `json:"consumer_id"`
	Topic    schema.TopicID `json:"topic_id"`
}

func (g *Gateway) unsubscribe(ctx context.Context, by caller, in *wireSubscriber) (out wireSubscription, err error) {
	if err := cmp.Or(checkID("topic_id", in.Topic), checkOptionalID("consumer_id", in.Consumer)); err != nil {
		return out, err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	s, err := g.subscriptionFor(ctx, by, schema.ActionUnsubscribe, g.cfg.Catalog.SubscriptionOf(in.Topic, by.or(in.Consumer)))
	if err != nil || s.State.Final() { // said twice
		return by.shown(s, err)
	}
	reason := "the consumer unsubscribed"
	if by.user.ID != s.Consumer {
		reason = "withdrawn by user " + strconv.FormatInt(int64(by.user.ID), 10)
	}
	return by.shown(g.cfg.Catalog.Unsubscribe(ctx, s.ID, reason))
}

type wireSubscriptionChange struct {
	ID schema.SubscriptionID `json:"subscription_id"`
	wireTerms
}

func (g *Gateway) updateSubscription(ctx context.Context, by caller, in *wireSubscriptionChange) (out wireSubscription, err error) {
	if err := cmp.Or(checkID("subscription_id", in.ID), in.wireTerms.check()); err != nil {
		return out, err
	}
	s, err := g.oneSubscription(ctx, by, schema.ActionConsume, in.ID)
	if err != nil {
		return out, err
	}
	after := *s
	in.wireTerms.set(&after)
	if after.Target.Type != s.Target.Type {
		return out, schema.Errorf(schema.Invalid, "a subscription keeps its target's type: unsubscribe and subscribe to change it")
	}
	if err := g.checkTarget(&after); err != nil {
		return out, err
	}
	if err := g.mayTarget(ctx, by, &after); err != nil {
		return out, err
	}
	if s, err = g.cfg.Catalog.UpdateSubscription(ctx, in.ID, in.wireTerms.set); err != nil {
		return out, err
	}
	return by.shown(g.askConsumer(ctx, s))
}
