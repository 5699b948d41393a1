package gateway

import (
	"context"

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

func wireUserOf(u *schema.User) wireUser {
	return wireUser{ID: u.ID, Name: u.Name, Roles: u.Roles, Labels: u.Labels, Disabled: u.Disabled, CreatedAt: stamp(u.CreatedAt)}
}

type wireNewUser struct {
	Name      string            `json:"user_name"`
	Roles     []string          `json:"roles"`
	Labels    map[string]string `json:"labels"`
	ExpiresIn *seconds          `json:"expires_in"`
}

type wireCreatedUser struct {
	wireUser
	wireSecret
}

func (g *Gateway) createUser(ctx context.Context, by caller, in *wireNewUser) (out wireCreatedUser, err error) {
	expires, err := expiry(in.ExpiresIn)
	if err != nil {
		return out, err
	}
	if err := g.allow(ctx, by, &schema.AuthRequest{Action: schema.ActionCreateUser}); err != nil {
		return out, err
	}
	u, t, token, err := g.cfg.Catalog.CreateUser(ctx, schema.User{Name: in.Name, Roles: in.Roles, Labels: in.Labels}, expires)
	if err != nil {
		return out, err
	}
	return wireCreatedUser{wireUserOf(u), wireSecret{t.ID, token, stamp(t.ExpiresAt)}}, nil
}

// userFor finds a user that the caller may act on. A user that is not there and one that is not the caller's to see answer alike.
func (g *Gateway) userFor(ctx context.Context, by caller, action schema.Action, id schema.UserID) (*schema.User, error) {
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return nil, err
	}
	who := g.cfg.Catalog.User(id)
	if who == nil || !g.decide(ctx, by, &schema.AuthRequest{Action: action, User: who}).Allow {
		return nil, errNoUser
	}
	return who, nil
}

type wireUserChange struct {
	ID       schema.UserID `json:"user_id"`
	Disabled *bool         `json:"disabled"`
}

func (g *Gateway) updateUser(ctx context.Context, by caller, in *wireUserChange) (out wireUser, err error) {
	if err := checkID("user_id", in.ID); err != nil {
		return out, err
	}
	if in.Disabled == nil {
		return out, schema.Errorf(schema.Invalid, "disabled is missing")
	}
	if _, err := g.userFor(ctx, by, schema.ActionUpdateUser, in.ID); err != nil {
		return out, err
	}
	if in.ID == by.user.ID {
		return out, schema.Errorf(schema.Conflict, "nobody can lock itself out")
	}
	if err := g.cfg.Catalog.SetUserDisabled(ctx, in.ID, *in.Disabled); err != nil {
		return out, err
	}
	return wireUserOf(g.cfg.Catalog.User(in.ID)), nil
}

func (g *Gateway) getUser(ctx context.Context, by caller, q *params) (out wireUser, err error) {
	id := by.or(optionalID[schema.UserID](q, "user_id"))
	if q.err != nil {
		return out, q.err
	}
	who, err := g.userFor(ctx, by, schema.ActionReadUser, id)
	if err != nil {
		return out, err
	}
	out = wireUserOf(who)
	for _, t := range g.cfg.Catalog.Tokens(who.ID) {
		out.Tokens = append(out.Tokens, wireTokenOf(t))
	}
	return out, nil
}

type wireUsers struct {
	Users []wireUser `json:"users"`
}

func (g *Gateway) listUsers(ctx context.Context, by caller, q *params) (out wireUsers, err error) {
	after, limit := optionalID[schema.UserID](q, "after"), q.limit()
	if q.err != nil {
		return out, q.err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	out.Users, err = list(ctx, after, limit, g.cfg.Catalog.Users, func(u *schema.User) schema.UserID { return u.ID }, func(u *schema.User) (wireUser, bool) {
		return wireUserOf(u), g.decide(ctx, by, &schema.AuthRequest{Action: schema.ActionReadUser, User: u}).Allow
	})
	return out, err
}
