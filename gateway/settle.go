package gateway

import (
	"cmp"
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// wireSettle is the body of POST /ack, /nack and /extend: bare ids, or, stricter, ids with the lease that each was handed out under.
type wireSettle struct {
	Consumer schema.UserID      `json:"consumer_id"`
	Topic    schema.TopicID     `json:"topic_id"`
	IDs      []schema.MessageID `json:"message_ids"`
	Messages []wireLease        `json:"messages"`
}

type wireLease struct {
	ID    schema.MessageID `json:"message_id"`
	Lease string           `json:"lease"`
}

type wireVerdict struct {
	ID     schema.MessageID `json:"message_id"`
	Result schema.Verdict   `json:"result"`
}

func (w *wireSettle) list() ([]schema.Settlement, error) {
	n := len(w.IDs) + len(w.Messages)
	if n == 0 {
		return nil, schema.Errorf(schema.Invalid, "message_ids or messages is missing")
	}
	if n > schema.PullMessagesMax {
		return nil, schema.Errorf(schema.TooLarge, "more than %d messages at once", schema.PullMessagesMax)
	}
	list := make([]schema.Settlement, 0, n)
	for _, id := range w.IDs {
		list = append(list, schema.Settlement{Message: id})
	}
	for _, m := range w.Messages {
		list = append(list, schema.Settlement{Message: m.ID, Lease: m.Lease})
	}
	for _, s := range list {
		if err := checkID("message_id", s.Message); err != nil {
			return nil, err
		}
	}
	return list, nil
}

type wireResults struct {
	Results []wireVerdict `json:"results"`
}

func (g *Gateway) ack(ctx context.Context, by caller, in *wireSettle) (wireResults, error) {
	return g.settle(ctx, by, schema.SettleAck, in, 0)
}

type wireNack struct {
	wireSettle
	Delay seconds `json:"delay"`
}

func (g *Gateway) nack(ctx context.Context, by caller, in *wireNack) (out wireResults, err error) {
	d := time.Duration(in.Delay)
	if d < 0 || d > schema.RetryDelayMax {
		return out, schema.Errorf(schema.Invalid, "delay must be between 0 and %v", schema.RetryDelayMax)
	}
	return g.settle(ctx, by, schema.SettleNack, &in.wireSettle, d)
}

type wireExtend struct {
	wireSettle
	Deadline seconds `json:"ack_deadline"`
}

func (g *Gateway) extend(ctx context.Context, by caller, in *wireExtend) (out wireResults, err error) {
	d := cmp.Or(time.Duration(in.Deadline), schema.AckDeadlineDefault)
	if d < 0 || d > schema.AckDeadlineMax {
		return out, schema.Errorf(schema.Invalid, "ack_deadline must be above 0 and at most %v", schema.AckDeadlineMax)
	}
	return g.settle(ctx, by, schema.SettleExtend, &in.wireSettle, d)
}

// settle answers one verdict per message.
func (g *Gateway) settle(ctx context.Context, by caller, how schema.Settling, in *wireSettle, d time.Duration) (out wireResults, err error) {
	if err := cmp.Or(checkID("topic_id", in.Topic), checkOptionalID("consumer_id", in.Consumer)); err != nil {
		return out, err
	}
	list, err := in.list()
	if err != nil {
		return out, err
	}
	s, err := g.pullSubscription(ctx, by, by.or(in.Consumer), in.Topic)
	if err != nil {
		return out, err
	}
	verdicts, err := g.cfg.Broker.Settle(ctx, how, s, list, d)
	if err != nil {
		return out, err
	}
	out.Results = make([]wireVerdict, len(list))
	for i := range list {
		out.Results[i] = wireVerdict{list[i].Message, verdicts[i]}
	}
	return out, nil
}
