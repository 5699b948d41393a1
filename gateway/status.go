package gateway

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

type wireStanding struct {
	Subscription schema.SubscriptionID `json:"subscription_id"`
	Consumer     schema.UserID         `json:"consumer_id,omitzero"`
	State        schema.StandingState  `json:"state"`
	Attempts     int                   `json:"attempts,omitzero"`
}

// wireStatus answers GET /message_status. num_receipients is the spelling of the first specification and stays beside the right one.
type wireStatus struct {
	status
	ID            schema.MessageID `json:"message_id"`
	MessageStatus string           `json:"message_status"`
	CreatedAt     string           `json:"created_at"`
	Topic         schema.TopicID   `json:"topic_id"`
	Publisher     schema.UserID    `json:"publisher_id"`
	NumRecipients int              `json:"num_recipients"`
	NumReceipents int              `json:"num_receipients"`
	NumDelivered  int              `json:"num_delivered"`
	Subscriptions []wireStanding   `json:"subscriptions"`
}

func (g *Gateway) messageStatus(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "message_id")
	if err != nil {
		return err
	}
	id, err := queryID(q, "message_id", true)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	m, standings, err := g.messageFor(ctx, c, u, schema.MessageID(id))
	if err != nil {
		return err
	}
	out := wireStatus{status: okay, ID: m.ID, CreatedAt: stamp(m.Time), Topic: m.Topic, Publisher: m.Publisher,
		NumRecipients: len(standings), NumReceipents: len(standings), Subscriptions: make([]wireStanding, 0, len(standings))}
	for _, s := range standings {
		w := wireStanding{Subscription: s.Subscription, State: s.State, Attempts: s.Attempts}
		if sub := g.cfg.Catalog.Subscription(s.Subscription); sub != nil {
			w.Consumer = sub.Consumer
		}
		out.Subscriptions = append(out.Subscriptions, w)
		if s.State == schema.StandingDelivered {
			out.NumDelivered++
		}
	}
	out.MessageStatus = messageStatus(standings)
	return ok(c, out)
}

// messageStatus sums up where a message stands: "accepted" until somebody has it out, "delivering" until everybody settled it, then
// "delivered", or "dead_lettered" when a subscription gave it up.
func messageStatus(standings []schema.Standing) string {
	word, pending := "delivered", 0
	for _, s := range standings {
		switch s.State {
		case schema.StandingPending:
			pending++
		case schema.StandingOutstanding:
			return "delivering"
		case schema.StandingDeadLettered:
			word = "dead_lettered"
		}
	}
	switch {
	case pending == len(standings):
		return "accepted"
	case pending > 0:
		return "delivering"
	}
	return word
}

// messageFor finds a message that the user may see. The standings of other consumers are for the topic's owner and the publishers.
func (g *Gateway) messageFor(ctx context.Context, c *fiber.Ctx, u *schema.User, id schema.MessageID) (m schema.Message, standings []schema.Standing, err error) {
	m, standings, found, err := g.cfg.Broker.Message(ctx, id)
	if err != nil {
		return m, nil, err
	}
	topic, rule, _ := g.cfg.Catalog.Topic(m.Topic)
	if !found || topic == nil {
		return m, nil, errNoMessage
	}
	r := schema.AuthRequest{Principal: u, Action: schema.ActionReadMessage, Topic: topic, Rule: rule,
		Granted: g.cfg.Catalog.Granted(topic.ID, u.ID), Subscription: g.cfg.Catalog.SubscriptionOf(topic.ID, u.ID)}
	if !g.decide(ctx, c, &r).Allow {
		return m, nil, errNoMessage
	}
	if topic.Owner == u.ID || r.Granted || u.HasRole(schema.RoleAdmin) || m.Publisher == u.ID {
		return m, standings, nil
	}
	own := standings[:0:0]
	for _, s := range standings {
		if r.Subscription != nil && s.Subscription == r.Subscription.ID {
			own = append(own, s)
		}
	}
	return m, own, nil
}

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

func (g *Gateway) listDeliveries(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "message_id", "subscription_id", "limit")
	if err != nil {
		return err
	}
	message, err := queryID(q, "message_id", false)
	if err != nil {
		return err
	}
	subscription, err := queryID(q, "subscription_id", false)
	if err != nil {
		return err
	}
	limit, err := queryInt(q, "limit", 100, 1, schema.ListMax)
	if err != nil {
		return err
	}
	if message == 0 && subscription == 0 {
		return schema.Errorf(schema.Invalid, "message_id or subscription_id is needed")
	}
	ctx, cancel := call()
	defer cancel()
	rows, err := g.attemptsFor(ctx, c, u, schema.MessageID(message), schema.SubscriptionID(subscription), limit)
	if err != nil {
		return err
	}
	out := struct {
		status
		Deliveries []wireAttempt `json:"deliveries"`
	}{okay, make([]wireAttempt, len(rows))}
	for i := range rows {
		out.Deliveries[i] = wireAttemptOf(&rows[i])
	}
	return ok(c, out)
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
func (g *Gateway) attemptsFor(ctx context.Context, c *fiber.Ctx, u *schema.User, m schema.MessageID, id schema.SubscriptionID, limit int) ([]schema.Attempt, error) {
	if id != 0 {
		if _, err := g.subscriptionFor(ctx, c, u, schema.ActionReadSub, g.cfg.Catalog.Subscription(id)); err != nil {
			return nil, err
		}
	}
	if m == 0 {
		return g.cfg.Attempts.ListAttempts(ctx, 0, id, limit)
	}
	_, standings, err := g.messageFor(ctx, c, u, m)
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
