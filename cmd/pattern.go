package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newPattern(r *remote) *cobra.Command {
	return group("pattern", "Patterns say how a topic delivers", patternList(r), patternCreate(r))
}

func patternList(r *remote) *cobra.Command {
	return r.verb("list", "List the patterns", noArgs, func(ctx context.Context, s *session) error {
		patterns, err := s.Patterns(ctx)
		if err != nil {
			return err
		}
		return list(s.printer, patterns, "PATTERN NAME OWNER MODE GUARANTEE ORDERED ACK DESCRIPTION", func(p client.Pattern) []any {
			return []any{p.ID, p.Name, p.Owner, p.Mode, p.Guarantee, p.Ordered, p.AckLevel, p.Description}
		})
	})
}

func patternCreate(r *remote) *cobra.Command {
	var p client.Pattern
	c := r.verb("create NAME", "Create a pattern", exactly(1), func(ctx context.Context, s *session) error {
		p.Name = s.args[0]
		made, err := s.CreatePattern(ctx, p)
		if err != nil {
			return err
		}
		return s.one(made)
	})
	f := c.Flags()
	f.StringVar((*string)(&p.Mode), "mode", string(schema.ModeAny), "how subscribers are reached: any, push or pull")
	f.StringVar((*string)(&p.Guarantee), "guarantee", string(schema.AtLeastOnce), "at_least_once or at_most_once, for subscriptions that do not say")
	f.BoolVar(&p.Ordered, "ordered", false, "in order for each key, for subscriptions that do not say")
	f.StringVar(&p.AckLevel, "ack-level", "quorum", "when a message counts as accepted: one, quorum or all")
	f.StringVar(&p.Description, "description", "", "words for people")
	return c
}
