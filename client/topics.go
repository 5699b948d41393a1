package client

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Topic is what producers publish to.
type Topic struct {
	ID             schema.TopicID    `json:"topic_id"`
	Name           string            `json:"topic_name"`
	Owner          schema.UserID     `json:"publisher_id"`
	Rule           schema.RuleID     `json:"rule_id"`
	Pattern        schema.PatternID  `json:"pattern_id"`
	Partitions     int               `json:"partitions"`
	Retention      Seconds           `json:"retention"`
	RetentionBytes int64             `json:"retention_bytes"`
	DeadLetter     schema.TopicID    `json:"dead_letter_topic_id,omitzero"`
	Labels         map[string]string `json:"labels,omitempty"`
	CreatedAt      time.Time         `json:"created_at"`
}

// NewTopic says what topic to make. Zero values take the defaults.
type NewTopic struct {
	Name           string            `json:"topic_name"`
	Owner          schema.UserID     `json:"publisher_id,omitzero"`
	Rule           string            `json:"rule_id,omitempty"`    // a name or a number
	Pattern        string            `json:"pattern_id,omitempty"` // a name or a number
	Partitions     int               `json:"partitions,omitzero"`
	Retention      Seconds           `json:"retention,omitzero"`
	RetentionBytes int64             `json:"retention_bytes,omitzero"`
	DeadLetter     schema.TopicID    `json:"dead_letter_topic_id,omitzero"`
	Labels         map[string]string `json:"labels,omitempty"`
}

// TopicChange says what to change of a topic; nil = nothing.
type TopicChange struct {
	Name           *string            `json:"topic_name,omitempty"`
	Rule           *string            `json:"rule_id,omitempty"`
	Pattern        *string            `json:"pattern_id,omitempty"`
	Retention      *Seconds           `json:"retention,omitempty"`
	RetentionBytes *int64             `json:"retention_bytes,omitempty"`
	DeadLetter     *schema.TopicID    `json:"dead_letter_topic_id,omitempty"`
	Labels         *map[string]string `json:"labels,omitempty"`
}

// Grant allows a user to publish to a topic.
type Grant struct {
	Publisher schema.UserID `json:"publisher_id"`
	CreatedAt time.Time     `json:"created_at"`
}

// CreateTopic makes a topic.
func (c *Client) CreateTopic(ctx context.Context, n NewTopic) (t Topic, err error) {
	err = c.do(ctx, post("/create_topic", n), &t)
	return t, err
}

// UpdateTopic changes a topic.
func (c *Client) UpdateTopic(ctx context.Context, id schema.TopicID, change TopicChange) (t Topic, err error) {
	err = c.do(ctx, post("/update_topic", struct {
		ID schema.TopicID `json:"topic_id"`
		TopicChange
	}{id, change}).repeatable(), &t)
	return t, err
}

type topicOnly struct {
	ID schema.TopicID `json:"topic_id"`
}

// DeleteTopic deletes a topic and ends its subscriptions.
func (c *Client) DeleteTopic(ctx context.Context, id schema.TopicID) error {
	return c.do(ctx, post("/delete_topic", topicOnly{id}), nil)
}

// Topic shows a topic.
func (c *Client) Topic(ctx context.Context, id schema.TopicID) (t Topic, err error) {
	err = c.do(ctx, get("/topic", number(newQuery(), "topic_id", id).Values), &t)
	return t, err
}

// TopicNamed shows the topic of a name that an owner (0 = the caller) has.
func (c *Client) TopicNamed(ctx context.Context, owner schema.UserID, name string) (t Topic, err error) {
	err = c.do(ctx, get("/topic", number(newQuery(), "publisher_id", owner).text("topic_name", name).Values), &t)
	return t, err
}

// Topics lists the topics that the caller may see; of one owner (0 = of all).
func (c *Client) Topics(ctx context.Context, owner schema.UserID, p Page) ([]Topic, error) {
	var out struct {
		Topics []Topic `json:"topics"`
	}
	err := c.do(ctx, get("/topics", p.into(number(newQuery(), "publisher_id", owner)).Values), &out)
	return out.Topics, err
}

type grantBody struct {
	Topic     schema.TopicID `json:"topic_id"`
	Publisher schema.UserID  `json:"publisher_id"`
}

// GrantPublish lets a user publish to a topic.
func (c *Client) GrantPublish(ctx context.Context, t schema.TopicID, u schema.UserID) error {
	return c.do(ctx, post("/grant_publish", grantBody{t, u}).repeatable(), nil)
}

// RevokePublish takes the grant back; it is in force when this returns.
func (c *Client) RevokePublish(ctx context.Context, t schema.TopicID, u schema.UserID) error {
	return c.do(ctx, post("/revoke_publish", grantBody{t, u}), nil)
}

// Grants lists who may publish to a topic beside its owner.
func (c *Client) Grants(ctx context.Context, t schema.TopicID) ([]Grant, error) {
	var out struct {
		Grants []Grant `json:"grants"`
	}
	err := c.do(ctx, get("/grants", number(newQuery(), "topic_id", t).Values), &out)
	return out.Grants, err
}
