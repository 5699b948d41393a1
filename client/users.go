package client

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// User is producer, consumer and operator in one identity.
type User struct {
	ID        schema.UserID     `json:"user_id"`
	Name      string            `json:"user_name"`
	Roles     []string          `json:"roles,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Disabled  bool              `json:"disabled,omitzero"`
	CreatedAt time.Time         `json:"created_at"`
	Tokens    []TokenInfo       `json:"tokens,omitempty"` // of User alone
}

// TokenInfo is what is known of a token.
type TokenInfo struct {
	ID        schema.TokenID `json:"token_id"`
	CreatedAt time.Time      `json:"created_at"`
	ExpiresAt time.Time      `json:"expires_at,omitzero"` // zero = never
}

// Token is a new token. It is shown once.
type Token struct {
	User      schema.UserID  `json:"user_id"`
	ID        schema.TokenID `json:"token_id"`
	Token     string         `json:"token"`
	ExpiresAt time.Time      `json:"expires_at,omitzero"` // zero = never
}

// NewUser says what user to make.
type NewUser struct {
	Name      string            `json:"user_name"`
	Roles     []string          `json:"roles,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	ExpiresIn Seconds           `json:"expires_in,omitzero"` // of its token; 0 = never
}

// CreateUser makes a user and its first token.
func (c *Client) CreateUser(ctx context.Context, n NewUser) (User, Token, error) {
	var out struct {
		User
		TokenID   schema.TokenID `json:"token_id"`
		Token     string         `json:"token"`
		ExpiresAt time.Time      `json:"expires_at"`
	}
	err := c.do(ctx, post("/create_user", n), &out)
	return out.User, Token{out.User.ID, out.TokenID, out.Token, out.ExpiresAt}, err
}

// SetUserDisabled shuts a user out, or lets it in again.
func (c *Client) SetUserDisabled(ctx context.Context, id schema.UserID, disabled bool) (u User, err error) {
	err = c.do(ctx, post("/update_user", struct {
		ID       schema.UserID `json:"user_id"`
		Disabled bool          `json:"disabled"`
	}{id, disabled}).repeatable(), &u)
	return u, err
}

// User shows a user (0 = the caller) and its tokens.
func (c *Client) User(ctx context.Context, id schema.UserID) (u User, err error) {
	err = c.do(ctx, get("/user", number(newQuery(), "user_id", id).Values), &u)
	return u, err
}

// Users lists the users that the caller may see.
func (c *Client) Users(ctx context.Context, p Page) ([]User, error) {
	var out struct {
		Users []User `json:"users"`
	}
	err := c.do(ctx, get("/users", p.into(newQuery()).Values), &out)
	return out.Users, err
}

// RotateToken gives a user (0 = the caller) a new token that lives for expiresIn (0 = for ever). The former ones stay valid for the overlap.
func (c *Client) RotateToken(ctx context.Context, id schema.UserID, overlap, expiresIn time.Duration) (t Token, err error) {
	err = c.do(ctx, post("/rotate_token", struct {
		ID        schema.UserID `json:"user_id,omitzero"`
		Overlap   Seconds       `json:"overlap,omitzero"`
		ExpiresIn Seconds       `json:"expires_in,omitzero"`
	}{id, Seconds(overlap), Seconds(expiresIn)}), &t)
	return t, err
}

// RevokeToken ends a token at once.
func (c *Client) RevokeToken(ctx context.Context, id schema.TokenID) error {
	return c.do(ctx, post("/revoke_token", struct {
		ID schema.TokenID `json:"token_id"`
	}{id}), nil)
}
