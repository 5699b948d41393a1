package gateway

import (
	"context"
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// wireDelivery is one message as GET /message shows it. Content that is not UTF-8 comes in base64.
type wireDelivery struct {
	ID            schema.MessageID  `json:"message_id"`
	Content       *string           `json:"message_content,omitempty"`
	ContentBase64 *string           `json:"message_content_base64,omitempty"`
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
		text := string(d.Content)
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

// pullMessages is GET /message: one message in the answer itself, or up to max of them under "messages".
func (g *Gateway) pullMessages(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "consumer_id", "topic_id", "max", "wait")
	if err != nil {
		return err
	}
	n, err := queryInt(q, "max", 1, 1, schema.PullMessagesMax)
	if err != nil {
		return err
	}
	wait := time.Duration(0)
	if raw := q["wait"]; raw != "" {
		if wait, err = parseSeconds(raw); err != nil || wait < 0 || wait > schema.PullWaitMax {
			return schema.Errorf(schema.Invalid, "wait must be between 0 and %v", schema.PullWaitMax)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout+wait)
	defer cancel()
	s, err := g.consuming(ctx, c, u, q)
	if err != nil {
		return err
	}
	out, err := g.cfg.Broker.Pull(ctx, s, n, schema.PullBytesMax, wait)
	if err != nil {
		return err
	}
	_, several := q["max"]
	return ok(c, pulled(out, several))
}

// pulled shapes the answer of GET /message. Who did not ask for several gets the message in the answer itself; who did gets "messages", and a
// single one in the answer itself too, so that max=1 reads like no max.
func pulled(out []schema.Delivery, several bool) any {
	word := okay
	if len(out) == 0 {
		word.Status = "empty"
	}
	messages := make([]wireDelivery, len(out))
	for i := range out {
		messages[i] = wireDeliveryOf(&out[i])
	}
	type one struct {
		status
		wireDelivery
	}
	switch {
	case !several && len(out) == 0:
		return word
	case !several:
		return one{word, messages[0]}
	case len(out) == 1:
		return struct {
			one
			Messages []wireDelivery `json:"messages"`
		}{one{word, messages[0]}, messages}
	}
	return struct {
		status
		Messages []wireDelivery `json:"messages"`
	}{word, messages}
}

// consuming finds the subscription of a consumer and a topic in the query.
func (g *Gateway) consuming(ctx context.Context, c *fiber.Ctx, u *schema.User, q map[string]string) (*schema.Subscription, error) {
	topic, err := queryID(q, "topic_id", true)
	if err != nil {
		return nil, err
	}
	consumer, err := queryID(q, "consumer_id", false)
	if err != nil {
		return nil, err
	}
	return g.pullSubscription(ctx, c, u, actor(u, schema.UserID(consumer)), schema.TopicID(topic))
}

// pullSubscription returns the active pull subscription that a consumer has to a topic.
func (g *Gateway) pullSubscription(ctx context.Context, c *fiber.Ctx, u *schema.User, consumer schema.UserID, topic schema.TopicID) (*schema.Subscription, error) {
	s, err := g.subscriptionFor(ctx, c, u, schema.ActionConsume, g.subscriptionOf(ctx, topic, consumer))
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

func (g *Gateway) ack(c *fiber.Ctx) error {
	var w wireSettle
	return g.settle(c, &w, &w, schema.SettleAck, func() (time.Duration, error) { return 0, nil })
}

func (g *Gateway) nack(c *fiber.Ctx) error {
	var w struct {
		wireSettle
		Delay seconds `json:"delay"`
	}
	return g.settle(c, &w, &w.wireSettle, schema.SettleNack, func() (time.Duration, error) {
		if d := time.Duration(w.Delay); d >= 0 && d <= schema.RetryDelayMax {
			return d, nil
		}
		return 0, schema.Errorf(schema.Invalid, "delay must be between 0 and %v", schema.RetryDelayMax)
	})
}

func (g *Gateway) extend(c *fiber.Ctx) error {
	var w struct {
		wireSettle
		Deadline seconds `json:"ack_deadline"`
	}
	return g.settle(c, &w, &w.wireSettle, schema.SettleExtend, func() (time.Duration, error) {
		d := time.Duration(w.Deadline)
		if d == 0 {
			return schema.AckDeadlineDefault, nil
		}
		if d > 0 && d <= schema.AckDeadlineMax {
			return d, nil
		}
		return 0, schema.Errorf(schema.Invalid, "ack_deadline must be above 0 and at most %v", schema.AckDeadlineMax)
	})
}

// settle answers one verdict per message. body is what is decoded, w the part of it that all three calls share.
func (g *Gateway) settle(c *fiber.Ctx, body any, w *wireSettle, how schema.Settling, by func() (time.Duration, error)) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	if err := decode(c, body); err != nil {
		return err
	}
	if err := checkID("topic_id", w.Topic); err != nil {
		return err
	}
	if err := checkOptionalID("consumer_id", w.Consumer); err != nil {
		return err
	}
	list, err := w.list()
	if err != nil {
		return err
	}
	d, err := by()
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	s, err := g.pullSubscription(ctx, c, u, actor(u, w.Consumer), w.Topic)
	if err != nil {
		return err
	}
	verdicts, err := g.cfg.Broker.Settle(ctx, how, s, list, d)
	if err != nil {
		return err
	}
	out := struct {
		status
		Results []wireVerdict `json:"results"`
	}{okay, make([]wireVerdict, len(list))}
	for i := range list {
		out.Results[i] = wireVerdict{list[i].Message, verdicts[i]}
	}
	return ok(c, out)
}
