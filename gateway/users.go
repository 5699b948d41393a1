package gateway

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

type wireUser struct {
	ID        schema.UserID     `json:"user_id"`
	Name      string            `json:"user_name"`
	Roles     []string          `json:"roles,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Disabled  bool              `json:"disabled,omitzero"`
	CreatedAt string            `json:"created_at"`
	Tokens    []wireToken       `json:"tokens,omitempty"`
}

type wireToken struct {
	ID        schema.TokenID `json:"token_id"`
	CreatedAt string         `json:"created_at"`
	ExpiresAt string         `json:"expires_at,omitempty"`
}

func wireUserOf(u *schema.User) wireUser {
	return wireUser{ID: u.ID, Name: u.Name, Roles: u.Roles, Labels: u.Labels, Disabled: u.Disabled, CreatedAt: stamp(u.CreatedAt)}
}

func wireTokenOf(t *schema.Token) wireToken {
	return wireToken{t.ID, stamp(t.CreatedAt), stamp(t.ExpiresAt)}
}

// lifetimeMax bounds how far ahead a token's end may lie.
const lifetimeMax = 10 * 365 * 24 * time.Hour

// expiry turns a token's lifetime into its end; no lifetime means none.
func expiry(lifetime *seconds) (time.Time, error) {
	if lifetime == nil {
		return time.Time{}, nil
	}
	d := time.Duration(*lifetime)
	if d <= 0 || d > lifetimeMax {
		return time.Time{}, schema.Errorf(schema.Invalid, "expires_in must be above 0 and at most 10 years")
	}
	return time.Now().UTC().Add(d).Truncate(time.Millisecond), nil
}

func (g *Gateway) createUser(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		Name      string            `json:"user_name"`
		Roles     []string          `json:"roles"`
		Labels    map[string]string `json:"labels"`
		ExpiresIn *seconds          `json:"expires_in"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	expires, err := expiry(w.ExpiresIn)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.allow(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionCreateUser}); err != nil {
		return err
	}
	made, t, token, err := g.cfg.Catalog.CreateUser(ctx, schema.User{Name: w.Name, Roles: w.Roles, Labels: w.Labels}, expires)
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		wireUser
		TokenID   schema.TokenID `json:"token_id"`
		Token     string         `json:"token"`
		ExpiresAt string         `json:"expires_at,omitempty"`
	}{okay, wireUserOf(made), t.ID, token, stamp(t.ExpiresAt)})
}

// userFor finds a user that the caller may act on. A user that is not there and one that is not the caller's to see answer alike.
func (g *Gateway) userFor(c *fiber.Ctx, u *schema.User, action schema.Action, id schema.UserID) (*schema.User, error) {
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return nil, err
	}
	who := g.cfg.Catalog.User(id)
	if who == nil || !g.decide(ctx, c, &schema.AuthRequest{Principal: u, Action: action, User: who}).Allow {
		return nil, errNoUser
	}
	return who, nil
}

func (g *Gateway) updateUser(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID       schema.UserID `json:"user_id"`
		Disabled *bool         `json:"disabled"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("user_id", w.ID); err != nil {
		return err
	}
	if w.Disabled == nil {
		return schema.Errorf(schema.Invalid, "disabled is missing")
	}
	if _, err := g.userFor(c, u, schema.ActionUpdateUser, w.ID); err != nil {
		return err
	}
	if w.ID == u.ID {
		return schema.Errorf(schema.Conflict, "nobody can lock itself out")
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.SetUserDisabled(ctx, w.ID, *w.Disabled); err != nil {
		return err
	}
	return ok(c, struct {
		status
		wireUser
	}{okay, wireUserOf(g.cfg.Catalog.User(w.ID))})
}

func (g *Gateway) rotateToken(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID        schema.UserID `json:"user_id"`
		Overlap   seconds       `json:"overlap"`
		ExpiresIn *seconds      `json:"expires_in"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkOptionalID("user_id", w.ID); err != nil {
		return err
	}
	expires, err := expiry(w.ExpiresIn)
	if err != nil {
		return err
	}
	who, err := g.userFor(c, u, schema.ActionUpdateUser, actor(u, w.ID))
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	t, token, err := g.cfg.Catalog.RotateToken(ctx, who.ID, time.Duration(w.Overlap), expires)
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		User      schema.UserID  `json:"user_id"`
		TokenID   schema.TokenID `json:"token_id"`
		Token     string         `json:"token"`
		ExpiresAt string         `json:"expires_at,omitempty"`
	}{okay, who.ID, t.ID, token, stamp(t.ExpiresAt)})
}

func (g *Gateway) revokeToken(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID schema.TokenID `json:"token_id"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("token_id", w.ID); err != nil {
		return err
	}
	t := g.cfg.Catalog.Token(w.ID)
	if t == nil {
		return schema.Errorf(schema.NotFound, "there is no such token, or it is not yours to see")
	}
	if _, err := g.userFor(c, u, schema.ActionUpdateUser, t.User); err != nil {
		return schema.Errorf(schema.NotFound, "there is no such token, or it is not yours to see")
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.RevokeToken(ctx, w.ID); err != nil {
		return err
	}
	return ok(c, okay)
}

func (g *Gateway) getUser(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "user_id")
	if err != nil {
		return err
	}
	id, err := queryID(q, "user_id", false)
	if err != nil {
		return err
	}
	who, err := g.userFor(c, u, schema.ActionReadUser, actor(u, schema.UserID(id)))
	if err != nil {
		return err
	}
	w := wireUserOf(who)
	for _, t := range g.cfg.Catalog.Tokens(who.ID) {
		w.Tokens = append(w.Tokens, wireTokenOf(t))
	}
	return ok(c, struct {
		status
		wireUser
	}{okay, w})
}

func (g *Gateway) listUsers(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	after, limit, _, err := paging(c)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	out := make([]wireUser, 0, limit)
	for last := schema.UserID(after); len(out) < limit; {
		page := g.cfg.Catalog.Users(last, schema.ListMax)
		for _, who := range page {
			last = who.ID
			if len(out) < limit && g.decide(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionReadUser, User: who}).Allow {
				out = append(out, wireUserOf(who))
			}
		}
		if len(page) < schema.ListMax {
			break
		}
	}
	return ok(c, struct {
		status
		Users []wireUser `json:"users"`
	}{okay, out})
}
