package cmd

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newUser(r *remote) *cobra.Command {
	return group("user", "Create, show and shut out users", userCreate(r), userList(r), userShow(r), userDisable(r, true), userDisable(r, false))
}

func userCreate(r *remote) *cobra.Command {
	var roles, labels []string
	var expires time.Duration
	c := r.verb("create NAME", "Create a user and its first token, which is shown once", exactly(1), func(ctx context.Context, s *session) error {
		named, err := pairs("label", labels)
		if err != nil {
			return err
		}
		u, t, err := s.CreateUser(ctx, client.NewUser{Name: s.args[0], Roles: roles, Labels: named, ExpiresIn: client.Seconds(expires)})
		if err != nil {
			return err
		}
		return s.one(struct {
			client.User
			TokenID   schema.TokenID `json:"token_id"`
			Token     string         `json:"token"`
			ExpiresAt time.Time      `json:"expires_at,omitzero"`
		}{u, t.ID, t.Token, t.ExpiresAt})
	})
	c.Flags().StringSliceVar(&roles, "role", nil, "admin, or what the policies know; can be given several times")
	c.Flags().StringSliceVar(&labels, "label", nil, "name=value that policies can decide on; can be given several times")
	c.Flags().DurationVar(&expires, "expires-in", 0, "how long the token lives; 0 = for ever")
	return c
}

func userList(r *remote) *cobra.Command {
	var page client.Page
	c := r.verb("list", "List the users that you may see", noArgs, func(ctx context.Context, s *session) error {
		users, err := s.Users(ctx, page)
		if err != nil {
			return err
		}
		return list(s.printer, users, "USER NAME ROLES DISABLED CREATED", func(u client.User) []any {
			return []any{u.ID, u.Name, strings.Join(u.Roles, ","), u.Disabled, u.CreatedAt}
		})
	})
	paged(c, &page)
	return c
}

func userShow(r *remote) *cobra.Command {
	return r.verb("show [USER]", "Show a user and its tokens; without USER, yourself", between(0, 1), func(ctx context.Context, s *session) error {
		var id schema.UserID
		if len(s.args) > 0 {
			var err error
			if id, err = idOf[schema.UserID]("USER", s.args[0]); err != nil {
				return err
			}
		}
		u, err := s.User(ctx, id)
		if err != nil {
			return err
		}
		return s.one(u)
	})
}

func userDisable(r *remote, disabled bool) *cobra.Command {
	use, short := "disable USER", "Shut a user out; in force when it returns"
	if !disabled {
		use, short = "enable USER", "Let a user in again"
	}
	return r.verb(use, short, exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.UserID]("USER", s.args[0])
		if err != nil {
			return err
		}
		u, err := s.SetUserDisabled(ctx, id, disabled)
		if err != nil {
			return err
		}
		return s.one(u)
	})
}
