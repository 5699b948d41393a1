package gateway

import (
	"context"

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

func (g *Gateway) messageStatus(ctx context.Context, by caller, q *params) (out wireStatus, err error) {
	id := neededID[schema.MessageID](q, "message_id")
	if q.err != nil {
		return out, q.err
	}
	m, standings, err := g.messageFor(ctx, by, id)
	if err != nil {
		return out, err
	}
	out = wireStatus{ID: m.ID, MessageStatus: messageStatus(standings), CreatedAt: stamp(m.Time), Topic: m.Topic, Publisher: m.Publisher,
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
	return out, nil
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
func (g *Gateway) messageFor(ctx context.Context, by caller, id schema.MessageID) (m schema.Message, standings []schema.Standing, err error) {
	m, standings, found, err := g.cfg.Broker.Message(ctx, id)
	if err != nil {
		return m, nil, err
	}
	topic, rule, _ := g.cfg.Catalog.Topic(m.Topic)
	if !found || topic == nil {
		return m, nil, errNoMessage
	}
	r := schema.AuthRequest{Action: schema.ActionReadMessage, Topic: topic, Rule: rule,
		Granted: g.cfg.Catalog.Granted(topic.ID, by.user.ID), Subscription: g.cfg.Catalog.SubscriptionOf(topic.ID, by.user.ID)}
	if !g.decide(ctx, by, &r).Allow {
		return m, nil, errNoMessage
	}
	if topic.Owner == by.user.ID || r.Granted || by.user.HasRole(schema.RoleAdmin) || m.Publisher == by.user.ID {
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
