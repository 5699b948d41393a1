package gateway

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

type wireReplay struct {
	ID    schema.SubscriptionID `json:"subscription_id"`
	Start *wireStart            `json:"start"`
}

func (g *Gateway) replay(ctx context.Context, by caller, in *wireReplay) (out wireSubscription, err error) {
	if err := checkID("subscription_id", in.ID); err != nil {
		return out, err
	}
	if in.Start == nil {
		return out, schema.Errorf(schema.Invalid, "start is missing")
	}
	s, err := g.oneSubscription(ctx, by, schema.ActionConsume, in.ID)
	if err != nil {
		return out, err
	}
	at := *s
	at.Start = in.Start.StartAt
	if err := g.startAtMessage(ctx, &at); err != nil {
		return out, err
	}
	return by.shown(g.cfg.Catalog.Seek(ctx, in.ID, at.Start))
}

// startAtMessage finds the time of the message to start at, where it is to be one, for the other partitions of the topic.
func (g *Gateway) startAtMessage(ctx context.Context, s *schema.Subscription) error {
	if s.Start.Position != "message" {
		return nil
	}
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

// redriveMax bounds the dead letters that one call puts back.
const redriveMax = 10 * schema.ListMax

type wireRedrive struct {
	ID    schema.SubscriptionID `json:"subscription_id"`
	Limit *int                  `json:"limit"`
}

type wireRedriven struct {
	Redriven int `json:"redriven"`
}

func (g *Gateway) redrive(ctx context.Context, by caller, in *wireRedrive) (out wireRedriven, err error) {
	if err := checkID("subscription_id", in.ID); err != nil {
		return out, err
	}
	limit := schema.ListMax
	if set(&limit, in.Limit); limit < 1 || limit > redriveMax {
		return out, schema.Errorf(schema.Invalid, "limit must be between 1 and %d", redriveMax)
	}
	s, err := g.oneSubscription(ctx, by, schema.ActionRedrive, in.ID)
	if err != nil {
		return out, err
	}
	out.Redriven, err = g.cfg.Broker.Redrive(ctx, s, limit)
	return out, err
}
