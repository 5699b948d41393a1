package gateway

import (
	"context"
	"encoding/base64"
	"unicode/utf8"
	"unsafe"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// wireDelivery is one message as GET /message shows it. Content that is not UTF-8 comes in base64.
type wireDelivery struct {
	ID            schema.MessageID  `json:"message_id"`
	Content       *string           `json:"message_content,omitzero"`
	ContentBase64 *string           `json:"message_content_base64,omitzero"`
	ContentType   string            `json:"content_type,omitempty"`
	Key           string            `json:"key,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	Publisher     schema.UserID     `json:"publisher_id"`
	Topic         schema.TopicID    `json:"topic_id"`
	CreatedAt     string            `json:"created_at"`
	Attempt       int               `json:"attempt"`
	Lease         string            `json:"lease"`
}

func wireDeliveryOf(d *schema.Delivery) wireDelivery {
	w := wireDelivery{ID: d.ID, ContentType: d.ContentType, Key: d.Key, Publisher: d.Publisher, Topic: d.Topic,
		CreatedAt: stamp(d.Time), Attempt: d.Attempt, Lease: d.Lease}
	if utf8.Valid(d.Content) {
		text := unsafe.String(unsafe.SliceData(d.Content), len(d.Content)) // nobody writes into a message's content
		w.Content = &text
	} else {
		text := base64.StdEncoding.EncodeToString(d.Content)
		w.ContentBase64 = &text
	}
	if len(d.Attributes) > 0 {
		w.Attributes = make(map[string]string, len(d.Attributes))
		for _, a := range d.Attributes {
			w.Attributes[a.Name] = a.Value
		}
	}
	return w
}

// wirePulled is the answer of GET /message: the message in the answer itself for who did not ask for several; for who did "messages",
// and a single one in the answer itself too, so that max=1 reads like no max.
type wirePulled struct {
	One      *wireDelivery  `json:",embed"`
	Messages []wireDelivery `json:"messages,omitzero"`
}

// pullMessages is GET /message. With wait it is a long poll.
func (g *Gateway) pullMessages(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	by, q := caller{c, u}, paramsOf(c, "consumer_id", "topic_id", "max", "wait")
	topic, consumer := neededID[schema.TopicID](q, "topic_id"), by.or(optionalID[schema.UserID](q, "consumer_id"))
	n, wait := q.number("max", 1, 1, schema.PullMessagesMax), q.wait()
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout+wait)
	defer cancel()
	s, err := g.pullSubscription(ctx, by, consumer, topic)
	if err != nil {
		return err
	}
	deliveries, err := g.cfg.Broker.Pull(ctx, s, n, schema.PullBytesMax, wait)
	if err != nil {
		return err
	}
	status := "ok"
	if len(deliveries) == 0 {
		status = "empty"
	}
	return answer(c, status, pulled(deliveries, q.has("max")))
}

func pulled(deliveries []schema.Delivery, several bool) (out wirePulled) {
	messages := make([]wireDelivery, len(deliveries))
	for i := range deliveries {
		messages[i] = wireDeliveryOf(&deliveries[i])
	}
	if len(messages) == 1 {
		out.One = &messages[0]
	}
	if several {
		out.Messages = messages
	}
	return out
}

// pullSubscription returns the active pull subscription that a consumer has to a topic.
func (g *Gateway) pullSubscription(ctx context.Context, by caller, consumer schema.UserID, topic schema.TopicID) (*schema.Subscription, error) {
	s, err := g.subscriptionFor(ctx, by, schema.ActionConsume, g.subscriptionOf(ctx, topic, consumer))
	switch {
	case err != nil:
		return nil, err
	case s.Target.Push():
		return nil, schema.Errorf(schema.Conflict, "this subscription is delivered to its %s; only pull subscriptions are pulled from", s.Target.Type)
	case s.State != schema.Active:
		return nil, schema.Errorf(schema.NotConsented, "the subscription is %s", s.State)
	}
	return s, nil
}

// subscriptionOf finds a consumer's subscription to a topic, also when another node made it a moment ago.
func (g *Gateway) subscriptionOf(ctx context.Context, topic schema.TopicID, consumer schema.UserID) *schema.Subscription {
	s := g.cfg.Catalog.SubscriptionOf(topic, consumer)
	if (s == nil || s.State != schema.Active) && g.cfg.Catalog.Sync(ctx) == nil {
		s = g.cfg.Catalog.SubscriptionOf(topic, consumer)
	}
	return s
}
