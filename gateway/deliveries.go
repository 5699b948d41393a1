package gateway

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

// wireAttempt is one try to deliver. A response that is not UTF-8 comes in base64.
type wireAttempt struct {
	Message        schema.MessageID      `json:"message_id"`
	Subscription   schema.SubscriptionID `json:"subscription_id"`
	Attempt        int                   `json:"attempt"`
	At             string                `json:"at"`
	Duration       seconds               `json:"duration"`
	Outcome        string                `json:"outcome"`
	HTTPStatus     int                   `json:"http_status,omitzero"`
	Error          string                `json:"error,omitempty"`
	Response       string                `json:"response,omitempty"`
	ResponseBase64 string                `json:"response_base64,omitempty"`
}

type wireAttempts struct {
	Deliveries []wireAttempt `json:"deliveries"`
}

func (g *Gateway) listDeliveries(ctx context.Context, by caller, q *params) (out wireAttempts, err error) {
	message, subscription := optionalID[schema.MessageID](q, "message_id"), optionalID[schema.SubscriptionID](q, "subscription_id")
	limit := q.limit()
	if message == 0 && subscription == 0 {
		q.refuse("message_id or subscription_id is needed")
	}
	if q.err != nil {
		return out, q.err
	}
	rows, err := g.attemptsFor(ctx, by, message, subscription, limit)
	if err != nil {
		return out, err
	}
	out.Deliveries = make([]wireAttempt, len(rows))
	for i := range rows {
		out.Deliveries[i] = wireAttemptOf(&rows[i])
	}
	return out, nil
}

func wireAttemptOf(a *schema.Attempt) wireAttempt {
	w := wireAttempt{Message: a.Message, Subscription: a.Subscription, Attempt: a.Attempt, At: stamp(a.At), Duration: seconds(a.Duration),
		Outcome: a.Outcome.String(), HTTPStatus: a.Status, Error: a.Error}
	if utf8.Valid(a.Response) {
		w.Response = string(a.Response)
	} else {
		w.ResponseBase64 = base64.StdEncoding.EncodeToString(a.Response)
	}
	return w
}

// attemptsFor lists attempts that the user may see: of a subscription that is its own, or of a message, where consumers see their own.
func (g *Gateway) attemptsFor(ctx context.Context, by caller, m schema.MessageID, id schema.SubscriptionID, limit int) ([]schema.Attempt, error) {
	if id != 0 {
		if _, err := g.subscriptionFor(ctx, by, schema.ActionReadSub, g.cfg.Catalog.Subscription(id)); err != nil {
			return nil, err
		}
	}
	if m == 0 {
		return g.cfg.Attempts.ListAttempts(ctx, 0, id, limit)
	}
	_, standings, err := g.messageFor(ctx, by, m)
	if err != nil {
		return nil, err
	}
	visible := map[schema.SubscriptionID]bool{}
	for _, s := range standings {
		visible[s.Subscription] = id == 0 || s.Subscription == id
	}
	rows, err := g.cfg.Attempts.ListAttempts(ctx, m, 0, schema.ListMax)
	kept := rows[:0]
	for _, a := range rows {
		if visible[a.Subscription] && len(kept) < limit {
			kept = append(kept, a)
		}
	}
	return kept, err
}
