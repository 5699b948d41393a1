package gateway

import (
	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

type wireRule struct {
	ID          schema.RuleID `json:"rule_id"`
	Name        string        `json:"rule_name"`
	Owner       schema.UserID `json:"owner_id,omitzero"`
	Description string        `json:"description,omitempty"`
	Rego        string        `json:"rego,omitempty"`
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

func (g *Gateway) listRules(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	if _, err := queries(c); err != nil {
		return err
	}
	out := struct {
		status
		Rules []wireRule `json:"rules"`
	}{okay, nil}
	for _, r := range g.cfg.Catalog.Rules() {
		w := wireRule{r.ID, r.Name, r.Owner, r.Description, ""}
		if r.Owner == u.ID || u.HasRole(schema.RoleAdmin) {
			w.Rego = r.Rego
		}
		out.Rules = append(out.Rules, w)
	}
	return ok(c, out)
}

func (g *Gateway) createRule(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		Name        string `json:"rule_name"`
		Description string `json:"description"`
		Rego        string `json:"rego"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkDescription(w.Description); err != nil {
		return err
	}
	if err := g.cfg.CheckRule(w.Rego); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.allow(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionCreateRule}); err != nil {
		return err
	}
	r, err := g.cfg.Catalog.CreateRule(ctx, schema.Rule{Name: w.Name, Owner: u.ID, Description: w.Description, Rego: w.Rego})
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		wireRule
	}{okay, wireRule{r.ID, r.Name, r.Owner, r.Description, r.Rego}})
}

func (g *Gateway) listPatterns(c *fiber.Ctx) error {
	if _, err := g.user(c); err != nil {
		return err
	}
	if _, err := queries(c); err != nil {
		return err
	}
	out := struct {
		status
		Patterns []wirePattern `json:"patterns"`
	}{okay, nil}
	for _, p := range g.cfg.Catalog.Patterns() {
		out.Patterns = append(out.Patterns, wirePatternOf(p))
	}
	return ok(c, out)
}

func (g *Gateway) createPattern(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		Name        string           `json:"pattern_name"`
		Description string           `json:"description"`
		Mode        schema.Mode      `json:"mode"`
		Guarantee   schema.Guarantee `json:"guarantee"`
		Ordered     bool             `json:"ordered"`
		AckLevel    string           `json:"ack_level"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkDescription(w.Description); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.allow(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionCreatePatt}); err != nil {
		return err
	}
	p, err := g.cfg.Catalog.CreatePattern(ctx, schema.Pattern{Name: w.Name, Owner: u.ID, Description: w.Description, Mode: w.Mode,
		Guarantee: w.Guarantee, Ordered: w.Ordered, AckLevel: w.AckLevel})
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		wirePattern
	}{okay, wirePatternOf(p)})
}
