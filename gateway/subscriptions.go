package gateway

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// shown is a subscription as the caller may see it: its secrets are for its consumer alone.
func (by caller) shown(s *schema.Subscription, err error) (wireSubscription, error) {
	if err != nil {
		return wireSubscription{}, err
	}
	return wireSubscriptionOf(s, s.Consumer == by.user.ID), nil
}

// oneSubscription finds a subscription as it is now, on whichever node it was changed.
func (g *Gateway) oneSubscription(ctx context.Context, by caller, action schema.Action, id schema.SubscriptionID) (*schema.Subscription, error) {
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return nil, err
	}
	return g.subscriptionFor(ctx, by, action, g.cfg.Catalog.Subscription(id))
}

// wireProgress is a subscription, and how far it is.
type wireProgress struct {
	wireSubscription
	Outstanding int   `json:"num_outstanding"`
	Lost        int64 `json:"num_lost"`
	CaughtUp    bool  `json:"caught_up"`
}

func (g *Gateway) getSubscription(ctx context.Context, by caller, q *params) (out wireProgress, err error) {
	id := optionalID[schema.SubscriptionID](q, "subscription_id")
	consumer := by.or(optionalID[schema.UserID](q, "consumer_id"))
	if topic := optionalID[schema.TopicID](q, "topic_id"); id == 0 && topic == 0 {
		q.refuse("subscription_id or topic_id is needed")
	} else if id == 0 && q.err == nil {
		if s := g.subscriptionOf(ctx, topic, consumer); s != nil {
			id = s.ID
		}
	}
	if q.err != nil {
		return out, q.err
	}
	s, err := g.oneSubscription(ctx, by, schema.ActionReadSub, id)
	if err != nil {
		return out, err
	}
	progress := schema.Progress{}
	if !s.State.Final() && !s.ActiveAt.IsZero() {
		if progress, err = g.cfg.Broker.Progress(ctx, s); err != nil {
			return out, err
		}
	}
	out.wireSubscription, err = by.shown(s, nil)
	out.Outstanding, out.Lost, out.CaughtUp = progress.Outstanding, progress.Lost, progress.CaughtUp
	return out, err
}

type wireSubscriptions struct {
	Subscriptions []wireSubscription `json:"subscriptions"`
}

func (g *Gateway) listSubscriptions(ctx context.Context, by caller, q *params) (out wireSubscriptions, err error) {
	after, limit := optionalID[schema.SubscriptionID](q, "after"), q.limit()
	topic, consumer, state := optionalID[schema.TopicID](q, "topic_id"), optionalID[schema.UserID](q, "consumer_id"), schema.State(q.text("state"))
	switch state {
	case "", schema.PendingPublisher, schema.PendingConsumer, schema.Active, schema.Paused, schema.Rejected, schema.Ended:
	default:
		q.refuse("there is no state %q", clip(string(state)))
	}
	if q.err != nil {
		return out, q.err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	page := func(after schema.SubscriptionID, limit int) []*schema.Subscription {
		return g.cfg.Catalog.Subscriptions(after, limit, func(s *schema.Subscription) bool {
			return (topic == 0 || s.Topic == topic) && (consumer == 0 || s.Consumer == consumer) && (state == "" || s.State == state)
		})
	}
	out.Subscriptions, err = list(ctx, after, limit, page, func(s *schema.Subscription) schema.SubscriptionID { return s.ID }, func(s *schema.Subscription) (wireSubscription, bool) {
		w, err := by.shown(g.subscriptionFor(ctx, by, schema.ActionReadSub, s))
		return w, err == nil
	})
	return out, err
}
