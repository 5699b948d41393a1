package cmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newTopic(r *remote) *cobra.Command {
	return group("topic", "Create and change topics, and say who may publish",
		topicCreate(r), topicList(r), topicShow(r), topicUpdate(r), topicDelete(r), topicGrant(r), topicRevoke(r), topicGrants(r))
}

const topicHelp = "TOPIC is a number, or the name of a topic of your own."

// topicTerms are the flags that create and update share.
type topicTerms struct {
	rule, pattern  string
	retention      time.Duration
	retentionBytes int64
	deadLetter     int64
	labels         []string
}

func (t *topicTerms) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.rule, "rule", "", "who may publish and subscribe: open, approval, closed, or an own rule")
	f.StringVar(&t.pattern, "pattern", "", "how it delivers: standard, ordered, at_most_once, fast, all, pull, push, or an own pattern")
	f.DurationVar(&t.retention, "retention", 0, "how long messages are kept, such as 24h (1m to 336h; 168h when a topic is made)")
	f.Int64Var(&t.retentionBytes, "retention-bytes", 0, "how many bytes are kept; 0 = no bound")
	f.Int64Var(&t.deadLetter, "dead-letter", 0, "number of the topic that gets what cannot be delivered; 0 = none")
	f.StringSliceVar(&t.labels, "label", nil, "name=value that policies can decide on; can be given several times")
}

func topicCreate(r *remote) *cobra.Command {
	var t topicTerms
	var partitions int
	var owner int64
	c := r.verb("create NAME", "Create a topic", exactly(1), func(ctx context.Context, s *session) error {
		labels, err := pairs("label", t.labels)
		if err != nil {
			return err
		}
		made, err := s.CreateTopic(ctx, client.NewTopic{Name: s.args[0], Owner: schema.UserID(owner), Rule: t.rule, Pattern: t.pattern, Partitions: partitions,
			Retention: client.Seconds(t.retention), RetentionBytes: t.retentionBytes, DeadLetter: schema.TopicID(t.deadLetter), Labels: labels})
		if err != nil {
			return err
		}
		return s.one(made)
	})
	t.register(c)
	c.Flags().IntVar(&partitions, "partitions", 0, "how many partitions it spreads over; it can never be changed (default 4)")
	c.Flags().Int64Var(&owner, "owner", 0, "user whose topic it is (default: you)")
	return c
}

func topicUpdate(r *remote) *cobra.Command {
	var t topicTerms
	var name string
	c := r.verb("update TOPIC", "Change a topic", exactly(1), func(ctx context.Context, s *session) error {
		labels, err := pairs("label", t.labels)
		if err != nil {
			return err
		}
		id, err := s.topicOf(ctx, s.args[0])
		if err != nil {
			return err
		}
		after, err := s.UpdateTopic(ctx, id, client.TopicChange{Name: changed(s, "name", name), Rule: changed(s, "rule", t.rule),
			Pattern: changed(s, "pattern", t.pattern), Retention: changed(s, "retention", client.Seconds(t.retention)),
			RetentionBytes: changed(s, "retention-bytes", t.retentionBytes), DeadLetter: changed(s, "dead-letter", schema.TopicID(t.deadLetter)),
			Labels: changed(s, "label", labels)})
		if err != nil {
			return err
		}
		return s.one(after)
	})
	c.Long = "Change a topic. What no flag names stays as it is. " + topicHelp
	t.register(c)
	c.Flags().StringVar(&name, "name", "", "another name")
	return c
}

func topicList(r *remote) *cobra.Command {
	var owner int64
	var page client.Page
	c := r.verb("list", "List the topics that you may see", noArgs, func(ctx context.Context, s *session) error {
		topics, err := s.Topics(ctx, schema.UserID(owner), page)
		if err != nil {
			return err
		}
		return list(s.printer, topics, "TOPIC NAME OWNER RULE PATTERN PARTITIONS RETENTION CREATED", func(t client.Topic) []any {
			return []any{t.ID, t.Name, t.Owner, t.Rule, t.Pattern, t.Partitions, t.Retention, t.CreatedAt}
		})
	})
	c.Flags().Int64Var(&owner, "owner", 0, "only the topics of this user")
	paged(c, &page)
	return c
}

// paged registers the flags of a listing.
func paged(c *cobra.Command, p *client.Page) {
	c.Flags().Int64Var(&p.After, "after", 0, "begin after this number: the last one of the page before")
	c.Flags().IntVar(&p.Limit, "limit", 1000, "at most so many, up to 1000")
}

func topicShow(r *remote) *cobra.Command {
	c := r.verb("show TOPIC", "Show a topic", exactly(1), func(ctx context.Context, s *session) error {
		id, err := s.topicOf(ctx, s.args[0])
		if err != nil {
			return err
		}
		t, err := s.Topic(ctx, id)
		if err != nil {
			return err
		}
		return s.one(t)
	})
	c.Long = "Show a topic. " + topicHelp
	return c
}

func topicDelete(r *remote) *cobra.Command {
	return r.verb("delete TOPIC", "Delete a topic; its subscriptions end", exactly(1), func(ctx context.Context, s *session) error {
		id, err := s.topicOf(ctx, s.args[0])
		if err != nil {
			return err
		}
		if err := s.DeleteTopic(ctx, id); err != nil {
			return err
		}
		return s.say("topic %d is deleted", id)
	})
}

func topicGrant(r *remote) *cobra.Command {
	return r.verb("grant TOPIC USER", "Let a user publish", exactly(2), func(ctx context.Context, s *session) error {
		return s.onGrant(ctx, s.GrantPublish, "user %d may publish to topic %d")
	})
}

func topicRevoke(r *remote) *cobra.Command {
	return r.verb("revoke TOPIC USER", "No longer let a user publish; in force when it returns", exactly(2), func(ctx context.Context, s *session) error {
		return s.onGrant(ctx, s.RevokePublish, "user %d may no longer publish to topic %d")
	})
}

func (s *session) onGrant(ctx context.Context, change func(context.Context, schema.TopicID, schema.UserID) error, words string) error {
	user, err := idOf[schema.UserID]("USER", s.args[1])
	if err != nil {
		return err
	}
	topic, err := s.topicOf(ctx, s.args[0])
	if err != nil {
		return err
	}
	if err := change(ctx, topic, user); err != nil {
		return err
	}
	return s.say(words, user, topic)
}

func topicGrants(r *remote) *cobra.Command {
	return r.verb("grants TOPIC", "List who may publish beside the owner", exactly(1), func(ctx context.Context, s *session) error {
		topic, err := s.topicOf(ctx, s.args[0])
		if err != nil {
			return err
		}
		grants, err := s.Grants(ctx, topic)
		if err != nil {
			return err
		}
		return list(s.printer, grants, "USER SINCE", func(g client.Grant) []any { return []any{g.Publisher, g.CreatedAt} })
	})
}
