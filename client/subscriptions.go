package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Target is where a subscription's messages go.
type Target struct {
	Type        schema.TargetType `json:"type"`
	URL         string            `json:"url,omitempty"`
	Format      string            `json:"format,omitempty"` // "" = the content as it is; binary, structured = CloudEvents
	Function    string            `json:"function,omitempty"`
	Region      string            `json:"region,omitempty"`
	RoleARN     string            `json:"role_arn,omitempty"`
	BatchSize   int               `json:"batch_size,omitzero"`
	BatchWindow Seconds           `json:"batch_window,omitzero"`
	Timeout     Seconds           `json:"timeout,omitzero"`
	Concurrency int               `json:"concurrency,omitzero"`
	Rate        float64           `json:"rate,omitzero"`
}

// Terms are what a consumer chooses; nil = the default, or as it is.
type Terms struct {
	Target           *Target           `json:"target,omitempty"`
	Guarantee        *schema.Guarantee `json:"guarantee,omitempty"`
	Ordered          *bool             `json:"ordered,omitempty"`
	Filter           json.RawMessage   `json:"filter,omitempty"` // {} = everything
	AcceptPublishers *[]schema.UserID  `json:"accept_publishers,omitempty"`
	AckDeadline      *Seconds          `json:"ack_deadline,omitempty"`
	MaxOutstanding   *int              `json:"max_outstanding,omitempty"`
	MaxAttempts      *int              `json:"max_attempts,omitempty"`
	RetrySchedule    *[]Seconds        `json:"retry_schedule,omitempty"`
	DeadLetter       *schema.TopicID   `json:"dead_letter_topic_id,omitempty"`
}

// NewSubscription says what to subscribe to, and how.
type NewSubscription struct {
	Topic    schema.TopicID `json:"topic_id"`
	Consumer schema.UserID  `json:"consumer_id,omitzero"` // 0 = the caller
	Start    string         `json:"start,omitempty"`      // now (the default), earliest, a time in RFC 3339, or a message id
	Terms
}

// Subscription is one consumer's agreement with one topic.
type Subscription struct {
	ID               schema.SubscriptionID `json:"subscription_id"`
	Topic            schema.TopicID        `json:"topic_id"`
	Consumer         schema.UserID         `json:"consumer_id"`
	State            schema.State          `json:"state"`
	Reason           string                `json:"reason,omitempty"`
	PublisherConsent schema.Consent        `json:"publisher_consent"`
	ConsumerConsent  schema.Consent        `json:"consumer_consent"`
	Target           Target                `json:"target"`
	Secrets          []string              `json:"secrets,omitempty"` // for its consumer's eyes alone
	Guarantee        schema.Guarantee      `json:"guarantee"`
	Ordered          bool                  `json:"ordered"`
	Filter           json.RawMessage       `json:"filter,omitempty"`
	AcceptPublishers []schema.UserID       `json:"accept_publishers,omitempty"`
	Start            string                `json:"start"`
	AckDeadline      Seconds               `json:"ack_deadline"`
	MaxOutstanding   int                   `json:"max_outstanding"`
	MaxAttempts      int                   `json:"max_attempts"`
	RetrySchedule    []Seconds             `json:"retry_schedule"`
	DeadLetter       schema.TopicID        `json:"dead_letter_topic_id,omitzero"`
	SubscribeAt      time.Time             `json:"subscribe_at"`
	ActiveAt         time.Time             `json:"active_at,omitzero"`
	UnsubscribeAt    time.Time             `json:"unsubscribe_at,omitzero"`
}

// Progress is a subscription, and how far it is.
type Progress struct {
	Subscription
	Outstanding int   `json:"num_outstanding"` // handed out, or waiting for another try
	Lost        int64 `json:"num_lost"`        // taken by retention before they were delivered
	CaughtUp    bool  `json:"caught_up"`
}

// Attempt is one try to deliver.
type Attempt struct {
	Message        schema.MessageID      `json:"message_id"`
	Subscription   schema.SubscriptionID `json:"subscription_id"`
	Attempt        int                   `json:"attempt"`
	At             time.Time             `json:"at"`
	Duration       Seconds               `json:"duration"`
	Outcome        string                `json:"outcome"`
	HTTPStatus     int                   `json:"http_status,omitzero"`
	Error          string                `json:"error,omitempty"`
	Response       string                `json:"response,omitempty"`
	ResponseBase64 []byte                `json:"response_base64,omitempty"` // of a response that is not UTF-8
}

// Subscribe makes a subscription; its state tells whose consent is missing. Saying the same again answers the same.
func (c *Client) Subscribe(ctx context.Context, n NewSubscription) (Subscription, error) {
	return c.subscription(ctx, post("/subscribe", n).repeatable())
}

// Unsubscribe ends a consumer's (0 = the caller's) subscription to a topic. The topic's owner may do so too.
func (c *Client) Unsubscribe(ctx context.Context, t schema.TopicID, consumer schema.UserID) (Subscription, error) {
	return c.subscription(ctx, post("/unsubscribe", struct {
		Topic    schema.TopicID `json:"topic_id"`
		Consumer schema.UserID  `json:"consumer_id,omitzero"`
	}{t, consumer}).repeatable())
}

// UpdateSubscription changes the terms of a subscription.
func (c *Client) UpdateSubscription(ctx context.Context, id schema.SubscriptionID, terms Terms) (Subscription, error) {
	return c.subscription(ctx, post("/update_subscription", struct {
		ID schema.SubscriptionID `json:"subscription_id"`
		Terms
	}{id, terms}).repeatable())
}

// ApproveSubscription is the consent of the topic's owner.
func (c *Client) ApproveSubscription(ctx context.Context, id schema.SubscriptionID) (Subscription, error) {
	return c.changeSubscription(ctx, "/approve_subscription", id, "")
}

// RejectSubscription is the refusal of the topic's owner.
func (c *Client) RejectSubscription(ctx context.Context, id schema.SubscriptionID, reason string) (Subscription, error) {
	return c.changeSubscription(ctx, "/reject_subscription", id, reason)
}

// PauseSubscription has nothing delivered for the time being.
func (c *Client) PauseSubscription(ctx context.Context, id schema.SubscriptionID, reason string) (Subscription, error) {
	return c.changeSubscription(ctx, "/pause_subscription", id, reason)
}

// ResumeSubscription has messages delivered again.
func (c *Client) ResumeSubscription(ctx context.Context, id schema.SubscriptionID) (Subscription, error) {
	return c.changeSubscription(ctx, "/resume_subscription", id, "")
}

// VerifySubscription has a webhook's endpoint asked for its consent again.
func (c *Client) VerifySubscription(ctx context.Context, id schema.SubscriptionID) (Subscription, error) {
	return c.changeSubscription(ctx, "/verify_subscription", id, "")
}

func (c *Client) changeSubscription(ctx context.Context, path string, id schema.SubscriptionID, reason string) (Subscription, error) {
	return c.subscription(ctx, post(path, struct {
		ID     schema.SubscriptionID `json:"subscription_id"`
		Reason string                `json:"reason,omitempty"`
	}{id, reason}))
}

// RotateSecret gives a webhook a new signing key. The former ones sign beside it for the overlap; nil = 24 hours.
func (c *Client) RotateSecret(ctx context.Context, id schema.SubscriptionID, overlap *Seconds) (Subscription, error) {
	return c.subscription(ctx, post("/rotate_secret", struct {
		ID      schema.SubscriptionID `json:"subscription_id"`
		Overlap *Seconds              `json:"overlap,omitempty"`
	}{id, overlap}))
}

// Replay moves a subscription to a position: see NewSubscription.Start.
func (c *Client) Replay(ctx context.Context, id schema.SubscriptionID, start string) (Subscription, error) {
	return c.subscription(ctx, post("/replay", struct {
		ID    schema.SubscriptionID `json:"subscription_id"`
		Start string                `json:"start"`
	}{id, start}))
}

// Redrive puts up to limit (0 = 1000) dead letters of a subscription back and returns how many.
func (c *Client) Redrive(ctx context.Context, id schema.SubscriptionID, limit int) (int, error) {
	var out struct {
		Redriven int `json:"redriven"`
	}
	err := c.do(ctx, post("/redrive", struct {
		ID    schema.SubscriptionID `json:"subscription_id"`
		Limit int                   `json:"limit,omitzero"`
	}{id, limit}), &out)
	return out.Redriven, err
}

func (c *Client) subscription(ctx context.Context, k call) (s Subscription, err error) {
	err = c.do(ctx, k, &s)
	return s, err
}

// Subscription shows a subscription and its progress.
func (c *Client) Subscription(ctx context.Context, id schema.SubscriptionID) (p Progress, err error) {
	err = c.do(ctx, get("/subscription", number(newQuery(), "subscription_id", id).Values), &p)
	return p, err
}

// SubscriptionOf shows a consumer's (0 = the caller's) subscription to a topic.
func (c *Client) SubscriptionOf(ctx context.Context, t schema.TopicID, consumer schema.UserID) (p Progress, err error) {
	err = c.do(ctx, get("/subscription", number(number(newQuery(), "topic_id", t), "consumer_id", consumer).Values), &p)
	return p, err
}

// SubscriptionFilter narrows a listing; zero values narrow nothing.
type SubscriptionFilter struct {
	Topic    schema.TopicID
	Consumer schema.UserID
	State    schema.State
}

// Subscriptions lists the subscriptions that the caller may see.
func (c *Client) Subscriptions(ctx context.Context, f SubscriptionFilter, p Page) ([]Subscription, error) {
	q := number(number(newQuery(), "topic_id", f.Topic), "consumer_id", f.Consumer).text("state", string(f.State))
	var out struct {
		Subscriptions []Subscription `json:"subscriptions"`
	}
	err := c.do(ctx, get("/subscriptions", p.into(q).Values), &out)
	return out.Subscriptions, err
}

// Deliveries lists attempts to deliver a message (0 = all), to a subscription (0 = all); one of the two is needed.
func (c *Client) Deliveries(ctx context.Context, m schema.MessageID, s schema.SubscriptionID, limit int) ([]Attempt, error) {
	q := number(number(number(newQuery(), "message_id", m), "subscription_id", s), "limit", limit)
	var out struct {
		Deliveries []Attempt `json:"deliveries"`
	}
	err := c.do(ctx, get("/deliveries", q.Values), &out)
	return out.Deliveries, err
}
