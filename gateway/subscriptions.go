package gateway

import (
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

func (g *Gateway) answerSubscription(c *fiber.Ctx, u *schema.User, s *schema.Subscription) error {
	return ok(c, struct {
		status
		wireSubscription
	}{okay, wireSubscriptionOf(s, s.Consumer == u.ID)})
}

func (g *Gateway) subscribe(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		Consumer schema.UserID  `json:"consumer_id"`
		Topic    schema.TopicID `json:"topic_id"`
		Start    *wireStart     `json:"start"`
		wireTerms
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("topic_id", w.Topic); err != nil {
		return err
	}
	if err := checkOptionalID("consumer_id", w.Consumer); err != nil {
		return err
	}
	if err := w.wireTerms.check(); err != nil {
		return err
	}
	spec := schema.Subscription{Topic: w.Topic, Consumer: actor(u, w.Consumer)}
	w.wireTerms.set(&spec)
	if w.Start != nil {
		spec.Start = w.Start.StartAt
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.agree(ctx, c, u, spec)
	if err != nil {
		return err
	}
	return g.answerSubscription(c, u, s)
}

// agree makes a subscription and asks both sides for what consent can be had at once.
func (g *Gateway) agree(ctx context.Context, c *fiber.Ctx, u *schema.User, spec schema.Subscription) (*schema.Subscription, error) {
	topic, _, err := g.topicFor(ctx, c, u, spec.Consumer, schema.ActionSubscribe, spec.Topic)
	if err != nil {
		return nil, err
	}
	if err := g.checkTarget(&spec); err != nil {
		return nil, err
	}
	if err := g.mayTarget(ctx, c, u, &spec); err != nil {
		return nil, err
	}
	if spec.Start.Position == "message" {
		if err := g.startAtMessage(ctx, &spec); err != nil {
			return nil, err
		}
	}
	approved := g.decide(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionAutoApprove, As: spec.Consumer, Topic: topic,
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

// startAtMessage finds the time of the message to start at, for the other partitions of the topic.
func (g *Gateway) startAtMessage(ctx context.Context, s *schema.Subscription) error {
	m, _, found, err := g.cfg.Broker.Message(ctx, s.Start.Message)
	if err != nil {
		return err
	}
	if !found || m.Topic != s.Topic {
		return schema.Errorf(schema.Invalid, "start: the topic has no message %d", s.Start.Message)
	}
	s.Start.Time = m.Time
	return nil
}

// askConsumer has a webhook's endpoint asked for its consent, when the publisher's is there and the endpoint's is all that is missing.
func (g *Gateway) askConsumer(ctx context.Context, s *schema.Subscription) (*schema.Subscription, error) {
	if s.State != schema.PendingConsumer {
		return s, nil
	}
	consent, err := g.cfg.Verifier.Verify(ctx, s)
	switch {
	case err != nil:
		waits := *s
		waits.Reason = "the endpoint has not consented: " + words(err) + "; call verify_subscription to ask again"
		return &waits, nil
	case consent == schema.ConsentGiven:
		return g.cfg.Catalog.Consent(ctx, s.ID, "")
	}
	waits := *s
	waits.Reason = "the endpoint was asked and has not consented yet"
	return &waits, nil
}

// words returns what may be told of an error.
func words(err error) string {
	p, _ := problemOf(err)
	return p.Detail
}

func (g *Gateway) unsubscribe(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		Consumer schema.UserID  `json:"consumer_id"`
		Topic    schema.TopicID `json:"topic_id"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("topic_id", w.Topic); err != nil {
		return err
	}
	if err := checkOptionalID("consumer_id", w.Consumer); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	s, err := g.subscriptionFor(ctx, c, u, schema.ActionUnsubscribe, g.cfg.Catalog.SubscriptionOf(w.Topic, actor(u, w.Consumer)))
	if err != nil {
		return err
	}
	reason := "the consumer unsubscribed"
	if u.ID != s.Consumer {
		reason = "withdrawn by user " + strconv.FormatInt(int64(u.ID), 10)
	}
	if s.State.Final() { // said twice
		return g.answerSubscription(c, u, s)
	}
	if s, err = g.cfg.Catalog.Unsubscribe(ctx, s.ID, reason); err != nil {
		return err
	}
	return g.answerSubscription(c, u, s)
}

// wireSubscriptionOnly is the body of calls that need no more than a subscription.
type wireSubscriptionOnly struct {
	ID     schema.SubscriptionID `json:"subscription_id"`
	Reason string                `json:"reason"`
}

// changeSubscription does what approve, reject, pause, resume and verify have in common.
func (g *Gateway) changeSubscription(c *fiber.Ctx, action schema.Action, change func(ctx context.Context, s *schema.Subscription, reason string) (*schema.Subscription, error)) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w wireSubscriptionOnly
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("subscription_id", w.ID); err != nil {
		return err
	}
	if len(w.Reason) > schema.KeyBytesMax || !printable(w.Reason) {
		return schema.Errorf(schema.Invalid, "reason must be printable ASCII of at most %d bytes", schema.KeyBytesMax)
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.oneSubscription(ctx, c, u, action, w.ID)
	if err != nil {
		return err
	}
	if s, err = change(ctx, s, w.Reason); err != nil {
		return err
	}
	return g.answerSubscription(c, u, s)
}

// oneSubscription finds a subscription as it is now, on whichever node it was changed.
func (g *Gateway) oneSubscription(ctx context.Context, c *fiber.Ctx, u *schema.User, action schema.Action, id schema.SubscriptionID) (*schema.Subscription, error) {
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return nil, err
	}
	return g.subscriptionFor(ctx, c, u, action, g.cfg.Catalog.Subscription(id))
}

func (g *Gateway) approveSubscription(c *fiber.Ctx) error {
	return g.changeSubscription(c, schema.ActionApprove, func(ctx context.Context, s *schema.Subscription, _ string) (*schema.Subscription, error) {
		s, err := g.cfg.Catalog.Approve(ctx, s.ID)
		if err != nil {
			return nil, err
		}
		return g.askConsumer(ctx, s)
	})
}

func (g *Gateway) rejectSubscription(c *fiber.Ctx) error {
	return g.changeSubscription(c, schema.ActionReject, func(ctx context.Context, s *schema.Subscription, reason string) (*schema.Subscription, error) {
		if reason == "" {
			reason = "the topic's owner refused"
		}
		return g.cfg.Catalog.Reject(ctx, s.ID, reason)
	})
}

func (g *Gateway) pauseSubscription(c *fiber.Ctx) error {
	return g.changeSubscription(c, schema.ActionConsume, func(ctx context.Context, s *schema.Subscription, reason string) (*schema.Subscription, error) {
		if reason == "" {
			reason = "paused by the consumer"
		}
		return g.cfg.Catalog.Pause(ctx, s.ID, reason)
	})
}

func (g *Gateway) resumeSubscription(c *fiber.Ctx) error {
	return g.changeSubscription(c, schema.ActionConsume, func(ctx context.Context, s *schema.Subscription, _ string) (*schema.Subscription, error) {
		return g.cfg.Catalog.Resume(ctx, s.ID)
	})
}

func (g *Gateway) verifySubscription(c *fiber.Ctx) error {
	return g.changeSubscription(c, schema.ActionConsume, func(ctx context.Context, s *schema.Subscription, _ string) (*schema.Subscription, error) {
		return g.askConsumer(ctx, s)
	})
}

// confirmSubscription is where an endpoint sends its challenge back. The challenge is the authentication.
func (g *Gateway) confirmSubscription(c *fiber.Ctx) error {
	q, err := queries(c, "challenge")
	if err != nil {
		return err
	}
	challenge := q["challenge"]
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	s := g.cfg.Catalog.Challenged(challenge)
	if challenge == "" || s == nil {
		return schema.Errorf(schema.NotFound, "nobody waits for this challenge")
	}
	if s, err = g.cfg.Catalog.Consent(ctx, s.ID, challenge); err != nil {
		return err
	}
	return ok(c, struct {
		status
		State schema.State `json:"state"`
	}{okay, s.State})
}

func (g *Gateway) updateSubscription(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID schema.SubscriptionID `json:"subscription_id"`
		wireTerms
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("subscription_id", w.ID); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.oneSubscription(ctx, c, u, schema.ActionConsume, w.ID)
	if err != nil {
		return err
	}
	if err := w.wireTerms.check(); err != nil {
		return err
	}
	after := *s
	w.wireTerms.set(&after)
	if after.Target.Type != s.Target.Type {
		return schema.Errorf(schema.Invalid, "a subscription keeps its target's type: unsubscribe and subscribe to change it")
	}
	if err := g.checkTarget(&after); err != nil {
		return err
	}
	if err := g.mayTarget(ctx, c, u, &after); err != nil {
		return err
	}
	if s, err = g.cfg.Catalog.UpdateSubscription(ctx, w.ID, w.wireTerms.set); err != nil {
		return err
	}
	if s, err = g.askConsumer(ctx, s); err != nil {
		return err
	}
	return g.answerSubscription(c, u, s)
}

func (g *Gateway) rotateSecret(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID      schema.SubscriptionID `json:"subscription_id"`
		Overlap *seconds              `json:"overlap"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("subscription_id", w.ID); err != nil {
		return err
	}
	overlap := 24 * time.Hour
	if w.Overlap != nil {
		overlap = time.Duration(*w.Overlap)
	}
	if overlap < 0 || overlap > 30*24*time.Hour {
		return schema.Errorf(schema.Invalid, "overlap must be between 0 and 30 days")
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.oneSubscription(ctx, c, u, schema.ActionConsume, w.ID)
	if err != nil {
		return err
	}
	if s.Target.Type != schema.TargetWebhook {
		return schema.Errorf(schema.Conflict, "only webhooks have secrets")
	}
	now := time.Now().UTC()
	s, err = g.cfg.Catalog.UpdateSubscription(ctx, w.ID, func(s *schema.Subscription) {
		s.Secrets = rotated(s.Secrets, schema.Secret{Key: g.cfg.NewSecret()}, now, overlap)
	})
	if err != nil {
		return err
	}
	return g.answerSubscription(c, u, s)
}

// secretsMax bounds the keys that sign side by side.
const secretsMax = 4

// rotated puts a new secret first and lets the former ones sign beside it for a while.
func rotated(old []schema.Secret, fresh schema.Secret, now time.Time, overlap time.Duration) []schema.Secret {
	out := []schema.Secret{fresh}
	for _, s := range old {
		if s.ExpiresAt.IsZero() || s.ExpiresAt.After(now.Add(overlap)) {
			s.ExpiresAt = now.Add(overlap)
		}
		if s.ExpiresAt.After(now) && len(out) < secretsMax {
			out = append(out, s)
		}
	}
	return out
}

func (g *Gateway) replay(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID    schema.SubscriptionID `json:"subscription_id"`
		Start *wireStart            `json:"start"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("subscription_id", w.ID); err != nil {
		return err
	}
	if w.Start == nil {
		return schema.Errorf(schema.Invalid, "start is missing")
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.oneSubscription(ctx, c, u, schema.ActionConsume, w.ID)
	if err != nil {
		return err
	}
	at := *s
	at.Start = w.Start.StartAt
	if at.Start.Position == "message" {
		if err := g.startAtMessage(ctx, &at); err != nil {
			return err
		}
	}
	if s, err = g.cfg.Catalog.Seek(ctx, w.ID, at.Start); err != nil {
		return err
	}
	return g.answerSubscription(c, u, s)
}

func (g *Gateway) redrive(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID    schema.SubscriptionID `json:"subscription_id"`
		Limit *int                  `json:"limit"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("subscription_id", w.ID); err != nil {
		return err
	}
	limit := schema.ListMax
	set(&limit, w.Limit)
	if limit < 1 || limit > 10*schema.ListMax {
		return schema.Errorf(schema.Invalid, "limit must be between 1 and %d", 10*schema.ListMax)
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.oneSubscription(ctx, c, u, schema.ActionRedrive, w.ID)
	if err != nil {
		return err
	}
	n, err := g.cfg.Broker.Redrive(ctx, s, limit)
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		Redriven int `json:"redriven"`
	}{okay, n})
}

func (g *Gateway) getSubscription(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "subscription_id", "consumer_id", "topic_id")
	if err != nil {
		return err
	}
	id, err := queryID(q, "subscription_id", false)
	if err != nil {
		return err
	}
	topic, err := queryID(q, "topic_id", id == 0)
	if err != nil {
		return err
	}
	consumer, err := queryID(q, "consumer_id", false)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if id == 0 {
		if s := g.subscriptionOf(ctx, schema.TopicID(topic), actor(u, schema.UserID(consumer))); s != nil {
			id = int64(s.ID)
		}
	}
	s, err := g.oneSubscription(ctx, c, u, schema.ActionReadSub, schema.SubscriptionID(id))
	if err != nil {
		return err
	}
	progress := schema.Progress{}
	if !s.State.Final() && !s.ActiveAt.IsZero() {
		if progress, err = g.cfg.Broker.Progress(ctx, s); err != nil {
			return err
		}
	}
	return ok(c, struct {
		status
		wireSubscription
		Outstanding  int   `json:"num_outstanding"`
		LostMessages int64 `json:"num_lost"`
		CaughtUp     bool  `json:"caught_up"`
	}{okay, wireSubscriptionOf(s, s.Consumer == u.ID), progress.Outstanding, progress.Lost, progress.CaughtUp})
}

func (g *Gateway) listSubscriptions(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	after, limit, q, err := paging(c, "topic_id", "consumer_id", "state")
	if err != nil {
		return err
	}
	topic, err := queryID(q, "topic_id", false)
	if err != nil {
		return err
	}
	consumer, err := queryID(q, "consumer_id", false)
	if err != nil {
		return err
	}
	state := schema.State(q["state"])
	switch state {
	case "", schema.PendingPublisher, schema.PendingConsumer, schema.Active, schema.Paused, schema.Rejected, schema.Ended:
	default:
		return schema.Errorf(schema.Invalid, "there is no state %q", clip(string(state)))
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	out := make([]wireSubscription, 0, limit)
	for last := schema.SubscriptionID(after); len(out) < limit; {
		page := g.cfg.Catalog.Subscriptions(last, schema.ListMax, func(s *schema.Subscription) bool {
			return (topic == 0 || s.Topic == schema.TopicID(topic)) && (consumer == 0 || s.Consumer == schema.UserID(consumer)) &&
				(state == "" || s.State == state)
		})
		for _, s := range page {
			last = s.ID
			if len(out) >= limit {
				break
			}
			if _, err := g.subscriptionFor(ctx, c, u, schema.ActionReadSub, s); err == nil {
				out = append(out, wireSubscriptionOf(s, s.Consumer == u.ID))
			}
		}
		if len(page) < schema.ListMax {
			break
		}
	}
	return ok(c, struct {
		status
		Subscriptions []wireSubscription `json:"subscriptions"`
	}{okay, out})
}
