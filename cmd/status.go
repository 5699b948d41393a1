package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newStatus(r *remote) *cobra.Command {
	return r.verb("status MESSAGE", "Where a message stands, with each subscription", exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.MessageID]("MESSAGE", s.args[0])
		if err != nil {
			return err
		}
		m, err := s.MessageStatus(ctx, id)
		if err != nil {
			return err
		}
		if s.json {
			return s.document(m)
		}
		fmt.Fprintf(s.w, "message %d is %s: %d of %d recipients have it\n", m.ID, m.Status, m.Delivered, m.Recipients)
		return list(s.printer, m.Subscriptions, "SUBSCRIPTION CONSUMER STATE ATTEMPTS", func(v client.Standing) []any {
			return []any{v.Subscription, v.Consumer, v.State, v.Attempts}
		})
	})
}

func newDeliveries(r *remote) *cobra.Command {
	var subscription int64
	var limit int
	c := r.verb("deliveries [MESSAGE]", "List the attempts to deliver a message, or to a subscription", between(0, 1), func(ctx context.Context, s *session) error {
		var id schema.MessageID
		if len(s.args) > 0 {
			var err error
			if id, err = idOf[schema.MessageID]("MESSAGE", s.args[0]); err != nil {
				return err
			}
		}
		if id == 0 && subscription == 0 {
			return usagef("say of what: MESSAGE or --subscription")
		}
		attempts, err := s.Deliveries(ctx, id, schema.SubscriptionID(subscription), limit)
		if err != nil {
			return err
		}
		return list(s.printer, attempts, "MESSAGE SUBSCRIPTION ATTEMPT AT TOOK OUTCOME HTTP ERROR", func(a client.Attempt) []any {
			return []any{a.Message, a.Subscription, a.Attempt, a.At, a.Duration, a.Outcome, a.HTTPStatus, a.Error}
		})
	})
	c.Flags().Int64Var(&subscription, "subscription", 0, "only of this subscription")
	c.Flags().IntVar(&limit, "limit", 100, "at most so many, up to 1000")
	return c
}
