package client

import (
	"cmp"
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Pull says what to pull.
type Pull struct {
	Topic    schema.TopicID
	Consumer schema.UserID // 0 = the caller
	Max      int           // 0 = 1; at most schema.PullMessagesMax
	Wait     time.Duration // for a first message, at most schema.PullWaitMax
}

// Pull hands out messages of the consumer's subscription. None within the wait is no error. Each is leased until the subscription's ack
// deadline: Ack it, Nack it or Extend it before.
func (c *Client) Pull(ctx context.Context, p Pull) ([]Delivery, error) {
	q := number(number(newQuery(), "topic_id", p.Topic), "consumer_id", p.Consumer)
	k := get("/message", number(q, "max", cmp.Or(p.Max, 1)).seconds("wait", p.Wait).Values)
	k.wait = p.Wait
	var out struct {
		Messages []Delivery `json:"messages"`
	}
	err := c.do(ctx, k, &out)
	return out.Messages, err
}

// Receipt names a message that was handed out. With the lease, only that very delivery is meant.
type Receipt struct {
	Message schema.MessageID `json:"message_id"`
	Lease   string           `json:"lease,omitempty"`
}

// Settle says which messages are settled, for whom.
type Settle struct {
	Topic    schema.TopicID `json:"topic_id"`
	Consumer schema.UserID  `json:"consumer_id,omitzero"` // 0 = the caller
	Messages []Receipt      `json:"messages"`             // at most schema.PullMessagesMax
}

// Settled is what became of one message.
type Settled struct {
	Message schema.MessageID `json:"message_id"`
	Result  schema.Verdict   `json:"result"`
}

// Ack says that messages are done with.
func (c *Client) Ack(ctx context.Context, s Settle) ([]Settled, error) {
	return c.settle(ctx, "/ack", s)
}

// Nack gives messages back; they come again after the delay.
func (c *Client) Nack(ctx context.Context, s Settle, delay time.Duration) ([]Settled, error) {
	return c.settle(ctx, "/nack", struct {
		Settle
		Delay Seconds `json:"delay,omitzero"`
	}{s, Seconds(delay)})
}

// Extend prolongs leases to end that long from now; 0 = the default.
func (c *Client) Extend(ctx context.Context, s Settle, by time.Duration) ([]Settled, error) {
	return c.settle(ctx, "/extend", struct {
		Settle
		Deadline Seconds `json:"ack_deadline,omitzero"`
	}{s, Seconds(by)})
}

func (c *Client) settle(ctx context.Context, path string, body any) ([]Settled, error) {
	var out struct {
		Results []Settled `json:"results"`
	}
	err := c.do(ctx, post(path, body).repeatable(), &out)
	return out.Results, err
}
