package cmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newPull(r *remote) *cobra.Command {
	var p client.Pull
	var consumer int64
	var ack, follow bool
	c := r.verb("pull TOPIC", "Pull messages of your subscription to a topic", exactly(1), func(ctx context.Context, s *session) (err error) {
		if p.Topic, err = s.topicOf(ctx, s.args[0]); err != nil {
			return err
		}
		if p.Max < 1 {
			return usagef("--max must be from 1 to %d", schema.PullMessagesMax)
		}
		p.Consumer = schema.UserID(consumer)
		if follow && !s.cmd.Flags().Changed("wait") {
			p.Wait = schema.PullWaitMax
		}
		for {
			err := s.pullOnce(ctx, p, ack)
			if ctx.Err() != nil && follow {
				return nil
			}
			if err != nil || !follow {
				return err
			}
		}
	})
	c.Long = "Pull messages of your subscription to a topic. Each is yours until the ack deadline; then it comes again, unless it was acknowledged. " + topicHelp
	f := c.Flags()
	f.IntVar(&p.Max, "max", 10, "at most so many at once, up to 1000")
	f.DurationVar(&p.Wait, "wait", 0, "how long to wait for a first message, up to 20s")
	f.BoolVar(&ack, "ack", false, "acknowledge what was written")
	f.BoolVar(&follow, "follow", false, "go on until Ctrl-C")
	f.Int64Var(&consumer, "consumer", 0, "whose subscription (default: your own)")
	return c
}

func (s *session) pullOnce(ctx context.Context, p client.Pull, ack bool) error {
	got, err := s.Pull(ctx, p)
	if err != nil || len(got) == 0 {
		return err
	}
	if err := s.deliveries(got); err != nil || !ack {
		return err
	}
	settle := client.Settle{Topic: p.Topic, Consumer: p.Consumer}
	for i := range got {
		settle.Messages = append(settle.Messages, got[i].Receipt())
	}
	// What was shown is acknowledged, also when Ctrl-C came meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err = s.Ack(ctx, settle)
	return err
}

// deliveries writes messages: one on each line.
func (s *session) deliveries(got []client.Delivery) error {
	for i := range got {
		d := &got[i]
		var err error
		if s.json {
			err = s.document(d)
		} else {
			_, err = fmt.Fprintf(s.w, "%d  %s\n", d.ID, clean(string(d.Content)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
