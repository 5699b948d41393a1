package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newSubscription(r *remote) *cobra.Command {
	return group("subscription", "Agree on deliveries, and steer them",
		subscriptionCreate(r), subscriptionList(r), subscriptionShow(r), subscriptionUpdate(r),
		subscriptionVerb(r, "approve SUBSCRIPTION", "The topic's owner agrees", func(ctx context.Context, s *session, id schema.SubscriptionID, _ string) (client.Subscription, error) {
			return s.ApproveSubscription(ctx, id)
		}),
		reasoned(subscriptionVerb(r, "reject SUBSCRIPTION", "The topic's owner refuses", func(ctx context.Context, s *session, id schema.SubscriptionID, reason string) (client.Subscription, error) {
			return s.RejectSubscription(ctx, id, reason)
		})),
		reasoned(subscriptionVerb(r, "pause SUBSCRIPTION", "Deliver nothing for the time being", func(ctx context.Context, s *session, id schema.SubscriptionID, reason string) (client.Subscription, error) {
			return s.PauseSubscription(ctx, id, reason)
		})),
		subscriptionVerb(r, "resume SUBSCRIPTION", "Deliver again", func(ctx context.Context, s *session, id schema.SubscriptionID, _ string) (client.Subscription, error) {
			return s.ResumeSubscription(ctx, id)
		}),
		subscriptionVerb(r, "verify SUBSCRIPTION", "Ask a webhook's endpoint for its consent again", func(ctx context.Context, s *session, id schema.SubscriptionID, _ string) (client.Subscription, error) {
			return s.VerifySubscription(ctx, id)
		}),
		subscriptionReplay(r), subscriptionRedrive(r), subscriptionSecret(r))
}

func subscriptionCreate(r *remote) *cobra.Command {
	var t terms
	var start string
	var consumer int64
	c := r.verb("create TOPIC", "Subscribe to a topic", exactly(1), func(ctx context.Context, s *session) error {
		chosen, err := t.terms(s)
		if err != nil {
			return err
		}
		if t.nameTarget(s) {
			if chosen.Target, err = t.target(s, client.Target{}); err != nil {
				return err
			}
		}
		topic, err := s.topicOf(ctx, s.args[0])
		if err != nil {
			return err
		}
		made, err := s.Subscribe(ctx, client.NewSubscription{Topic: topic, Consumer: schema.UserID(consumer), Start: start, Terms: chosen})
		if err != nil {
			return err
		}
		return s.one(made)
	})
	c.Long = "Subscribe to a topic: to pull from it, or to have messages brought to a webhook or a function. It is active once both sides agree: the state says who has not. " + topicHelp
	t.register(c)
	c.Flags().StringVar(&start, "start", "", "where to begin: now, earliest, a time in RFC 3339, or the number of a message (default now)")
	c.Flags().Int64Var(&consumer, "consumer", 0, "user who subscribes (default: you)")
	return c
}

func subscriptionUpdate(r *remote) *cobra.Command {
	var t terms
	c := r.verb("update SUBSCRIPTION", "Change the terms; what no flag names stays", exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.SubscriptionID]("SUBSCRIPTION", s.args[0])
		if err != nil {
			return err
		}
		chosen, err := t.terms(s)
		if err != nil {
			return err
		}
		if t.nameTarget(s) {
			now, err := s.Subscription(ctx, id)
			if err != nil {
				return err
			}
			if chosen.Target, err = t.target(s, now.Target); err != nil {
				return err
			}
		}
		after, err := s.UpdateSubscription(ctx, id, chosen)
		if err != nil {
			return err
		}
		return s.one(after)
	})
	t.register(c)
	return c
}

// subscriptionVerb makes a verb that does one thing to one subscription.
func subscriptionVerb(r *remote, use, short string, do func(context.Context, *session, schema.SubscriptionID, string) (client.Subscription, error)) *cobra.Command {
	return r.verb(use, short, exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.SubscriptionID]("SUBSCRIPTION", s.args[0])
		if err != nil {
			return err
		}
		reason := ""
		if f := s.cmd.Flags().Lookup("reason"); f != nil {
			reason = f.Value.String()
		}
		after, err := do(ctx, s, id, reason)
		if err != nil {
			return err
		}
		return s.one(after)
	})
}

func reasoned(c *cobra.Command) *cobra.Command {
	c.Flags().String("reason", "", "words for the other side")
	return c
}

func subscriptionList(r *remote) *cobra.Command {
	var page client.Page
	var topic, consumer int64
	var state string
	c := r.verb("list", "List the subscriptions that you may see", noArgs, func(ctx context.Context, s *session) error {
		subs, err := s.Subscriptions(ctx, client.SubscriptionFilter{Topic: schema.TopicID(topic), Consumer: schema.UserID(consumer), State: schema.State(state)}, page)
		if err != nil {
			return err
		}
		return list(s.printer, subs, "SUBSCRIPTION TOPIC CONSUMER STATE TARGET SINCE REASON", func(v client.Subscription) []any {
			where := string(v.Target.Type)
			if v.Target.URL != "" {
				where = v.Target.URL
			}
			return []any{v.ID, v.Topic, v.Consumer, v.State, where, v.SubscribeAt, v.Reason}
		})
	})
	c.Flags().Int64Var(&topic, "topic", 0, "only of this topic")
	c.Flags().Int64Var(&consumer, "consumer", 0, "only of this user")
	c.Flags().StringVar(&state, "state", "", "only in this state: pending_publisher, pending_consumer, active, paused, rejected or ended")
	paged(c, &page)
	return c
}

func subscriptionShow(r *remote) *cobra.Command {
	return r.verb("show SUBSCRIPTION", "Show a subscription and how far it is", exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.SubscriptionID]("SUBSCRIPTION", s.args[0])
		if err != nil {
			return err
		}
		p, err := s.Subscription(ctx, id)
		if err != nil {
			return err
		}
		return s.one(p)
	})
}

func subscriptionReplay(r *remote) *cobra.Command {
	var start string
	c := subscriptionVerb(r, "replay SUBSCRIPTION", "Deliver again from a position, or skip to one", func(ctx context.Context, s *session, id schema.SubscriptionID, _ string) (client.Subscription, error) {
		return s.Replay(ctx, id, start)
	})
	c.Flags().StringVar(&start, "start", "earliest", "now, earliest, a time in RFC 3339, or the number of a message")
	return c
}

func subscriptionRedrive(r *remote) *cobra.Command {
	var limit int
	c := r.verb("redrive SUBSCRIPTION", "Put dead letters back", exactly(1), func(ctx context.Context, s *session) error {
		id, err := idOf[schema.SubscriptionID]("SUBSCRIPTION", s.args[0])
		if err != nil {
			return err
		}
		n, err := s.Redrive(ctx, id, limit)
		if err != nil {
			return err
		}
		return s.one(struct {
			Redriven int `json:"redriven"`
		}{n})
	})
	c.Flags().IntVar(&limit, "limit", 1000, "at most so many, up to 10000")
	return c
}

func subscriptionSecret(r *remote) *cobra.Command {
	var overlap time.Duration
	c := subscriptionVerb(r, "rotate-secret SUBSCRIPTION", "New signing key for a webhook", func(ctx context.Context, s *session, id schema.SubscriptionID, _ string) (client.Subscription, error) {
		return s.RotateSecret(ctx, id, changed(s, "overlap", client.Seconds(overlap)))
	})
	c.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the former keys sign beside it, up to 720h")
	return c
}

func newUnsubscribe(r *remote) *cobra.Command {
	var consumer int64
	c := r.verb("unsubscribe TOPIC", "End a subscription", exactly(1), func(ctx context.Context, s *session) error {
		topic, err := s.topicOf(ctx, s.args[0])
		if err != nil {
			return err
		}
		after, err := s.Unsubscribe(ctx, topic, schema.UserID(consumer))
		if err != nil {
			return err
		}
		return s.one(after)
	})
	c.Long = "End a subscription: your own, or as the topic's owner that of a consumer. In force when it returns. " + topicHelp
	c.Flags().Int64Var(&consumer, "consumer", 0, "whose (default: your own)")
	return c
}
