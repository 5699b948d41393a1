package client

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// Rule says who may publish and subscribe to the topics that it governs.
type Rule struct {
	ID          schema.RuleID `json:"rule_id,omitzero"`
	Name        string        `json:"rule_name"`
	Owner       schema.UserID `json:"owner_id,omitzero"` // 0 = built in
	Description string        `json:"description,omitempty"`
	Rego        string        `json:"rego,omitempty"` // shown to its owner alone
}

// Pattern says how a topic delivers.
type Pattern struct {
	ID          schema.PatternID `json:"pattern_id,omitzero"`
	Name        string           `json:"pattern_name"`
	Owner       schema.UserID    `json:"owner_id,omitzero"` // 0 = built in
	Description string           `json:"description,omitempty"`
	Mode        schema.Mode      `json:"mode,omitempty"`
	Guarantee   schema.Guarantee `json:"guarantee,omitempty"`
	Ordered     bool             `json:"ordered"`
	AckLevel    string           `json:"ack_level,omitempty"`
}

// Rules lists all rules.
func (c *Client) Rules(ctx context.Context) ([]Rule, error) {
	var out struct {
		Rules []Rule `json:"rules"`
	}
	err := c.do(ctx, get("/rules", nil), &out)
	return out.Rules, err
}

// CreateRule makes a rule of name, description and rego.
func (c *Client) CreateRule(ctx context.Context, name, description, rego string) (r Rule, err error) {
	err = c.do(ctx, post("/create_rule", Rule{Name: name, Description: description, Rego: rego}), &r)
	return r, err
}

// Patterns lists all patterns.
func (c *Client) Patterns(ctx context.Context) ([]Pattern, error) {
	var out struct {
		Patterns []Pattern `json:"patterns"`
	}
	err := c.do(ctx, get("/patterns", nil), &out)
	return out.Patterns, err
}

// CreatePattern makes a pattern; ID and Owner of p are not looked at.
func (c *Client) CreatePattern(ctx context.Context, p Pattern) (made Pattern, err error) {
	p.ID, p.Owner = 0, 0
	err = c.do(ctx, post("/create_pattern", p), &made)
	return made, err
}
