package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

// Message is one message to publish.
type Message struct {
	Content     []byte
	ContentType string // "" = text, or none for content that is not UTF-8
	Key         string // messages of one key keep their order on ordered subscriptions; a message without a key has none
	Attributes  map[string]string
	Delay       time.Duration
	// IdempotencyKey makes a repeated publish the same message; "" = a new one for each call, so that the call can be repeated.
	IdempotencyKey string
}

type wireMessage struct {
	Content        *string           `json:"message_content,omitempty"`
	ContentBase64  []byte            `json:"message_content_base64,omitempty"`
	ContentType    string            `json:"content_type,omitempty"`
	Key            string            `json:"key,omitempty"`
	Attributes     map[string]string `json:"attributes,omitempty"`
	Delay          Seconds           `json:"delay,omitzero"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
}

func (m *Message) wire() wireMessage {
	w := wireMessage{ContentType: m.ContentType, Key: m.Key, Attributes: m.Attributes, Delay: Seconds(m.Delay), IdempotencyKey: m.IdempotencyKey}
	if utf8.Valid(m.Content) {
		text := string(m.Content)
		w.Content = &text
	} else {
		w.ContentBase64 = m.Content
	}
	return w
}

// Published is what became of one message.
type Published struct {
	ID        schema.MessageID `json:"message_id,omitzero"`
	Duplicate bool             `json:"duplicate,omitzero"` // its idempotency key was seen before: ID is the first message's
	Err       *Error           `json:"error,omitempty"`    // of a batch alone
}

// Publish publishes one message. When it returns without an error, the message is durable at the topic's ack level.
func (c *Client) Publish(ctx context.Context, topic schema.TopicID, m Message) (p Published, err error) {
	body := struct {
		Topic schema.TopicID `json:"topic_id"`
		wireMessage
	}{topic, m.wire()}
	if body.IdempotencyKey == "" {
		body.IdempotencyKey = rand.Text()
	}
	err = c.do(ctx, post("/publish_message", body).repeatable(), &p)
	return p, err
}

// wireBatch is a batch under one idempotency key, by which the server knows the messages again that have none of their own.
type wireBatch struct {
	Topic          schema.TopicID `json:"topic_id"`
	IdempotencyKey string         `json:"idempotency_key"`
	Messages       []wireMessage  `json:"messages"`
}

// PublishBatch publishes up to schema.BatchMessagesMax messages and returns one result each, in their order. Those that were refused
// have their Err set; when a busy or absent partition refused some, the batch was sent again before, as whole calls are. An error means
// that there are no results.
func (c *Client) PublishBatch(ctx context.Context, topic schema.TopicID, messages []Message) ([]Published, error) {
	batch := wireBatch{topic, rand.Text(), make([]wireMessage, len(messages))}
	for i := range messages {
		batch.Messages[i] = messages[i].wire()
	}
	results, err := c.publishBatch(ctx, batch)
	pause := newPause()
	for try := 0; err == nil && try < c.retries && slices.ContainsFunc(results, Published.again); try++ {
		if wait(ctx, pause.NextBackOff()) != nil {
			break
		}
		more, failed := c.publishBatch(ctx, batch)
		if failed != nil {
			break // what is known of the messages stands
		}
		for i := range results {
			if results[i].again() {
				results[i] = more[i]
			}
		}
	}
	return results, err
}

// again tells whether a message is worth another try.
func (p Published) again() bool { return p.Err != nil && worthAnother(p.Err, true) }

func (c *Client) publishBatch(ctx context.Context, batch wireBatch) ([]Published, error) {
	var out struct {
		Results []Published `json:"results"`
	}
	err := c.do(ctx, post("/publish_messages", batch).repeatable(), &out)
	if err == nil && len(out.Results) != len(batch.Messages) {
		err = schema.Errorf(schema.Internal, "%d messages were sent, and %d results came", len(batch.Messages), len(out.Results))
	}
	return out.Results, err
}

// Standing is where a message stands with one subscription.
type Standing struct {
	Subscription schema.SubscriptionID `json:"subscription_id"`
	Consumer     schema.UserID         `json:"consumer_id,omitzero"`
	State        schema.StandingState  `json:"state"`
	Attempts     int                   `json:"attempts,omitzero"`
}

// MessageStatus is where a message stands: accepted, delivering, delivered or dead_lettered.
type MessageStatus struct {
	ID            schema.MessageID `json:"message_id"`
	Status        string           `json:"message_status"`
	CreatedAt     time.Time        `json:"created_at"`
	Topic         schema.TopicID   `json:"topic_id"`
	Publisher     schema.UserID    `json:"publisher_id"`
	Recipients    int              `json:"num_recipients"`
	Delivered     int              `json:"num_delivered"`
	Subscriptions []Standing       `json:"subscriptions"`
}

// MessageStatus tells where a message stands.
func (c *Client) MessageStatus(ctx context.Context, id schema.MessageID) (s MessageStatus, err error) {
	err = c.do(ctx, get("/message_status", number(newQuery(), "message_id", id).Values), &s)
	return s, err
}

// Delivery is one message on its way to a consumer that pulls.
type Delivery struct {
	ID          schema.MessageID
	Content     []byte
	ContentType string
	Key         string
	Attributes  map[string]string
	Publisher   schema.UserID
	Topic       schema.TopicID
	CreatedAt   time.Time
	Attempt     int    // 1 = handed out for the first time
	Lease       string // names this very delivery
}

// Receipt names the delivery, for Ack, Nack and Extend.
func (d *Delivery) Receipt() Receipt { return Receipt{d.ID, d.Lease} }

type wireDelivery struct {
	ID            schema.MessageID  `json:"message_id"`
	Content       *string           `json:"message_content,omitempty"`
	ContentBase64 []byte            `json:"message_content_base64,omitempty"`
	ContentType   string            `json:"content_type,omitempty"`
	Key           string            `json:"key,omitempty"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	Publisher     schema.UserID     `json:"publisher_id"`
	Topic         schema.TopicID    `json:"topic_id"`
	CreatedAt     time.Time         `json:"created_at"`
	Attempt       int               `json:"attempt"`
	Lease         string            `json:"lease"`
}

// UnmarshalJSON reads a delivery as the API shows it.
func (d *Delivery) UnmarshalJSON(raw []byte) error {
	var w wireDelivery
	if err := json.Unmarshal(raw, &w); err != nil {
		return err
	}
	*d = Delivery{w.ID, w.ContentBase64, w.ContentType, w.Key, w.Attributes, w.Publisher, w.Topic, w.CreatedAt, w.Attempt, w.Lease}
	if w.Content != nil {
		d.Content = []byte(*w.Content)
	}
	return nil
}

// MarshalJSON writes a delivery as the API shows it.
func (d Delivery) MarshalJSON() ([]byte, error) {
	w := wireDelivery{d.ID, nil, nil, d.ContentType, d.Key, d.Attributes, d.Publisher, d.Topic, d.CreatedAt, d.Attempt, d.Lease}
	if utf8.Valid(d.Content) {
		text := string(d.Content)
		w.Content = &text
	} else {
		w.ContentBase64 = d.Content
	}
	return json.Marshal(w)
}
