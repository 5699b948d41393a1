package gateway

import (
	"cmp"
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

type wireToken struct {
	ID        schema.TokenID `json:"token_id"`
	CreatedAt string         `json:"created_at"`
	ExpiresAt string         `json:"expires_at,omitempty"`
}

func wireTokenOf(t *schema.Token) wireToken {
	return wireToken{t.ID, stamp(t.CreatedAt), stamp(t.ExpiresAt)}
}

// wireSecret is a token on the one occasion that it is shown.
type wireSecret struct {
	TokenID   schema.TokenID `json:"token_id"`
	Token     string         `json:"token"`
	ExpiresAt string         `json:"expires_at,omitempty"`
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

type wireRotation struct {
	ID        schema.UserID `json:"user_id"`
	Overlap   seconds       `json:"overlap"`
	ExpiresIn *seconds      `json:"expires_in"`
}

type wireRotated struct {
	User schema.UserID `json:"user_id"`
	wireSecret
}

func (g *Gateway) rotateToken(ctx context.Context, by caller, in *wireRotation) (out wireRotated, err error) {
	expires, err := expiry(in.ExpiresIn)
	if err := cmp.Or(checkOptionalID("user_id", in.ID), err); err != nil {
		return out, err
	}
	who, err := g.userFor(ctx, by, schema.ActionUpdateUser, by.or(in.ID))
	if err != nil {
		return out, err
	}
	t, token, err := g.cfg.Catalog.RotateToken(ctx, who.ID, time.Duration(in.Overlap), expires)
	if err != nil {
		return out, err
	}
	return wireRotated{who.ID, wireSecret{t.ID, token, stamp(t.ExpiresAt)}}, nil
}

type wireTokenOnly struct {
	ID schema.TokenID `json:"token_id"`
}

func (g *Gateway) revokeToken(ctx context.Context, by caller, in *wireTokenOnly) (nothing, error) {
	if err := checkID("token_id", in.ID); err != nil {
		return nothing{}, err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return nothing{}, err
	}
	t := g.cfg.Catalog.Token(in.ID)
	if t == nil {
		return nothing{}, errNoToken
	}
	if _, err := g.userFor(ctx, by, schema.ActionUpdateUser, t.User); err == errNoUser {
		return nothing{}, errNoToken
	} else if err != nil {
		return nothing{}, err
	}
	return nothing{}, g.cfg.Catalog.RevokeToken(ctx, in.ID)
}

type wireAccessKey struct {
	ID        string `json:"access_key_id"`
	Secret    string `json:"secret_access_key"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

// createAccessKey shows the key pair that goes with the caller's token, for clients that sign as for AWS.
func (g *Gateway) createAccessKey(_ context.Context, by caller, _ *nothing) (out wireAccessKey, err error) {
	token := g.cfg.Catalog.TokenOf(bearerToken(&by.request.Request().Header), time.Now())
	if token == nil { // it ended this moment
		return out, errToken
	}
	id, secret := g.cfg.Catalog.AccessKey(token.ID)
	return wireAccessKey{id, secret, stamp(token.ExpiresAt)}, nil
}
