package gateway

import (
	"cmp"
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// wireSubscriptionOnly is the body of calls that need no more than a subscription.
type wireSubscriptionOnly struct {
	ID     schema.SubscriptionID `json:"subscription_id"`
	Reason string                `json:"reason"`
}

func (w *wireSubscriptionOnly) check() error {
	if err := checkID("subscription_id", w.ID); err != nil {
		return err
	}
	if len(w.Reason) > schema.KeyBytesMax || !printable(w.Reason) {
		return schema.Errorf(schema.Invalid, "reason must be printable ASCII of at most %d bytes", schema.KeyBytesMax)
	}
	return nil
}

// onSubscription is the handler of a call that changes the state of a subscription.
func (g *Gateway) onSubscription(action schema.Action, change func(ctx context.Context, s *schema.Subscription, reason string) (*schema.Subscription, error)) fiber.Handler {
	return body(g, func(ctx context.Context, by caller, in *wireSubscriptionOnly) (out wireSubscription, err error) {
		if err := in.check(); err != nil {
			return out, err
		}
		s, err := g.oneSubscription(ctx, by, action, in.ID)
		if err != nil {
			return out, err
		}
		return by.shown(change(ctx, s, in.Reason))
	})
}

func (g *Gateway) approve(ctx context.Context, s *schema.Subscription, _ string) (*schema.Subscription, error) {
	s, err := g.cfg.Catalog.Approve(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	return g.askConsumer(ctx, s)
}

func (g *Gateway) reject(ctx context.Context, s *schema.Subscription, reason string) (*schema.Subscription, error) {
	return g.cfg.Catalog.Reject(ctx, s.ID, cmp.Or(reason, "the topic's owner refused"))
}

func (g *Gateway) pause(ctx context.Context, s *schema.Subscription, reason string) (*schema.Subscription, error) {
	return g.cfg.Catalog.Pause(ctx, s.ID, cmp.Or(reason, "paused by the consumer"))
}

func (g *Gateway) resume(ctx context.Context, s *schema.Subscription, _ string) (*schema.Subscription, error) {
	return g.cfg.Catalog.Resume(ctx, s.ID)
}

func (g *Gateway) verify(ctx context.Context, s *schema.Subscription, _ string) (*schema.Subscription, error) {
	return g.askConsumer(ctx, s)
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

type wireState struct {
	State schema.State `json:"state"`
}

// confirmSubscription is where an endpoint sends its challenge back. The challenge is the authentication.
func (g *Gateway) confirmSubscription(c *fiber.Ctx) error {
	q := paramsOf(c, "challenge")
	if q.err != nil {
		return q.err
	}
	challenge := q.text("challenge")
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	s := g.cfg.Catalog.Challenged(challenge)
	if challenge == "" || s == nil {
		return schema.Errorf(schema.NotFound, "nobody waits for this challenge")
	}
	s, err := g.cfg.Catalog.Consent(ctx, s.ID, challenge)
	if err != nil {
		return err
	}
	return answer(c, "ok", wireState{s.State})
}
