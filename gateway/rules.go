package gateway

import (
	"cmp"
	"context"

	"github.com/handfast-mq/handfast/schema"
)

type wireRule struct {
	ID          schema.RuleID `json:"rule_id"`
	Name        string        `json:"rule_name"`
	Owner       schema.UserID `json:"owner_id,omitzero"`
	Description string        `json:"description,omitempty"`
	Rego        string        `json:"rego,omitempty"`
}

func wireRuleOf(r *schema.Rule) wireRule {
	return wireRule{r.ID, r.Name, r.Owner, r.Description, r.Rego}
}

type wirePattern struct {
	ID          schema.PatternID `json:"pattern_id"`
	Name        string           `json:"pattern_name"`
	Owner       schema.UserID    `json:"owner_id,omitzero"`
	Description string           `json:"description,omitempty"`
	Mode        schema.Mode      `json:"mode"`
	Guarantee   schema.Guarantee `json:"guarantee"`
	Ordered     bool             `json:"ordered"`
	AckLevel    string           `json:"ack_level"`
}

func wirePatternOf(p *schema.Pattern) wirePattern {
	return wirePattern{p.ID, p.Name, p.Owner, p.Description, p.Mode, p.Guarantee, p.Ordered, p.AckLevel}
}

func checkDescription(s string) error {
	if len(s) > 4*schema.KeyBytesMax {
		return schema.Errorf(schema.Invalid, "description has more than %d bytes", 4*schema.KeyBytesMax)
	}
	return nil
}

type wireRules struct {
	Rules []wireRule `json:"rules"`
}

func (g *Gateway) listRules(ctx context.Context, by caller, _ *params) (out wireRules, err error) {
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	for _, r := range g.cfg.Catalog.Rules() {
		w := wireRuleOf(r)
		if r.Owner != by.user.ID && !by.user.HasRole(schema.RoleAdmin) {
			w.Rego = ""
		}
		out.Rules = append(out.Rules, w)
	}
	return out, nil
}

type wireNewRule struct {
	Name        string `json:"rule_name"`
	Description string `json:"description"`
	Rego        string `json:"rego"`
}

func (g *Gateway) createRule(ctx context.Context, by caller, in *wireNewRule) (out wireRule, err error) {
	if err := cmp.Or(checkDescription(in.Description), g.cfg.CheckRule(in.Rego)); err != nil {
		return out, err
	}
	if err := g.allow(ctx, by, &schema.AuthRequest{Action: schema.ActionCreateRule}); err != nil {
		return out, err
	}
	r, err := g.cfg.Catalog.CreateRule(ctx, schema.Rule{Name: in.Name, Owner: by.user.ID, Description: in.Description, Rego: in.Rego})
	if err != nil {
		return out, err
	}
	return wireRuleOf(r), nil
}

type wirePatterns struct {
	Patterns []wirePattern `json:"patterns"`
}

func (g *Gateway) listPatterns(ctx context.Context, _ caller, _ *params) (out wirePatterns, err error) {
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	for _, p := range g.cfg.Catalog.Patterns() {
		out.Patterns = append(out.Patterns, wirePatternOf(p))
	}
	return out, nil
}

type wireNewPattern struct {
	Name        string           `json:"pattern_name"`
	Description string           `json:"description"`
	Mode        schema.Mode      `json:"mode"`
	Guarantee   schema.Guarantee `json:"guarantee"`
	Ordered     bool             `json:"ordered"`
	AckLevel    string           `json:"ack_level"`
}

func (g *Gateway) createPattern(ctx context.Context, by caller, in *wireNewPattern) (out wirePattern, err error) {
	if err := checkDescription(in.Description); err != nil {
		return out, err
	}
	if err := g.allow(ctx, by, &schema.AuthRequest{Action: schema.ActionCreatePatt}); err != nil {
		return out, err
	}
	p, err := g.cfg.Catalog.CreatePattern(ctx, schema.Pattern{Name: in.Name, Owner: by.user.ID, Description: in.Description, Mode: in.Mode,
		Guarantee: in.Guarantee, Ordered: in.Ordered, AckLevel: in.AckLevel})
	if err != nil {
		return out, err
	}
	return wirePatternOf(p), nil
}
