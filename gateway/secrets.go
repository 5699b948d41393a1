package gateway

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// secretsMax bounds the keys that sign side by side.
	secretsMax = 4
	// overlapDefault and overlapMax are for how long a former key signs beside a new one.
	overlapDefault = 24 * time.Hour
	overlapMax     = 30 * 24 * time.Hour
)

type wireSecretRotation struct {
	ID      schema.SubscriptionID `json:"subscription_id"`
	Overlap *seconds              `json:"overlap"`
}

func (g *Gateway) rotateSecret(ctx context.Context, by caller, in *wireSecretRotation) (out wireSubscription, err error) {
	if err := checkID("subscription_id", in.ID); err != nil {
		return out, err
	}
	overlap := overlapDefault
	if setSeconds(&overlap, in.Overlap); overlap < 0 || overlap > overlapMax {
		return out, schema.Errorf(schema.Invalid, "overlap must be between 0 and 30 days")
	}
	s, err := g.oneSubscription(ctx, by, schema.ActionConsume, in.ID)
	if err != nil {
		return out, err
	}
	if s.Target.Type != schema.TargetWebhook {
		return out, schema.Errorf(schema.Conflict, "only webhooks have secrets")
	}
	now := time.Now().UTC()
	return by.shown(g.cfg.Catalog.UpdateSubscription(ctx, in.ID, func(s *schema.Subscription) {
		s.Secrets = rotated(s.Secrets, schema.Secret{Key: g.cfg.NewSecret()}, now, overlap)
	}))
}

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
