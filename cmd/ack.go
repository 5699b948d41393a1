package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

// settling are the flags and arguments of ack and nack.
type settling struct {
	lease    string
	consumer int64
}

func (w *settling) register(c *cobra.Command) {
	c.Flags().StringVar(&w.lease, "lease", "", "the lease that the message was handed out under: only that very delivery is meant")
	c.Flags().Int64Var(&w.consumer, "consumer", 0, "whose subscription (default: your own)")
}

func (w *settling) settle(ctx context.Context, s *session) (client.Settle, error) {
	out := client.Settle{Consumer: schema.UserID(w.consumer)}
	if w.lease != "" && len(s.args) != 2 {
		return out, usagef("--lease is for one message")
	}
	for _, arg := range s.args[1:] {
		id, err := idOf[schema.MessageID]("MESSAGE", arg)
		if err != nil {
			return out, err
		}
		out.Messages = append(out.Messages, client.Receipt{Message: id, Lease: w.lease})
	}
	var err error
	out.Topic, err = s.topicOf(ctx, s.args[0])
	return out, err
}

// verdicts writes what became of each message; one that was not settled is a failure.
func (s *session) verdicts(results []client.Settled, want schema.Verdict) error {
	if err := list(s.printer, results, "MESSAGE RESULT", func(r client.Settled) []any { return []any{r.Message, r.Result} }); err != nil {
		return err
	}
	for _, r := range results {
		if r.Result != want {
			return fmt.Errorf("message %d: %s", r.Message, r.Result)
		}
	}
	return nil
}

func newAck(r *remote) *cobra.Command {
	var w settling
	c := r.verb("ack TOPIC MESSAGE...", "Acknowledge messages: they are done with", between(2, 1+schema.PullMessagesMax), func(ctx context.Context, s *session) error {
		body, err := w.settle(ctx, s)
		if err != nil {
			return err
		}
		results, err := s.Ack(ctx, body)
		if err != nil {
			return err
		}
		return s.verdicts(results, schema.Acknowledged)
	})
	w.register(c)
	return c
}

func newNack(r *remote) *cobra.Command {
	var w settling
	var delay time.Duration
	c := r.verb("nack TOPIC MESSAGE...", "Give messages back: they come again", between(2, 1+schema.PullMessagesMax), func(ctx context.Context, s *session) error {
		body, err := w.settle(ctx, s)
		if err != nil {
			return err
		}
		results, err := s.Nack(ctx, body, delay)
		if err != nil {
			return err
		}
		return s.verdicts(results, schema.Returned)
	})
	w.register(c)
	c.Flags().DurationVar(&delay, "delay", 0, "when they come again, up to 24h")
	return c
}
