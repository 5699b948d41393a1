package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/schema"
)

func newToken(r *remote) *cobra.Command {
	return group("token", "Give out and end tokens", tokenRotate(r), tokenRevoke(r), tokenAccessKey(r))
}

func tokenRotate(r *remote) *cobra.Command {
	var user int64
	var overlap, expires time.Duration
	c := r.verb("rotate", "New token, which is shown once; the former ones end", noArgs, func(ctx context.Context, s *session) error {
		t, err := s.RotateToken(ctx, schema.UserID(user), overlap, expires)
		if err != nil {
			return err
		}
		return s.one(t)
	})
	c.Flags().Int64Var(&user, "user", 0, "whose (default: your own)")
	c.Flags().DurationVar(&overlap, "overlap", 0, "how long the former tokens stay valid, up to 720h")
	c.Flags().DurationVar(&expires, "expires-in", 0, "how long the new token lives; 0 = for ever")
	return c
}

func tokenRevoke(r *remote) *cobra.Command {
	return r.verb("revoke TOKEN_ID", "End a token; in force when it returns", exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.TokenID]("TOKEN_ID", s.args[0])
		if err != nil {
			return err
		}
		if err := s.RevokeToken(ctx, id); err != nil {
			return err
		}
		return s.say("token %d is revoked", id)
	})
}

func tokenAccessKey(r *remote) *cobra.Command {
	c := r.verb("access-key", "Show the access key of your token, for the AWS SDKs and CLI", noArgs, func(ctx context.Context, s *session) error {
		key, err := s.CreateAccessKey(ctx)
		if err != nil {
			return err
		}
		return s.one(key)
	})
	c.Long = "Show the access key of your token: with it and the cluster's address as endpoint URL, the AWS SDKs and CLI invoke functions here. The key ends with the token."
	return c
}
