package catalog

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// purgeAfter is how long a deleted topic is remembered, so that every owner lets its messages go.
const purgeAfter = 24 * time.Hour

// CreateTopic adds a topic. Zero fields get their defaults.
func (c *Catalog) CreateTopic(ctx context.Context, t schema.Topic) (*schema.Topic, error) {
	if t.Rule == 0 {
		t.Rule = schema.RuleApproval
	}
	if t.Pattern == 0 {
		t.Pattern = schema.PatternStandard
	}
	if t.RetentionTime == 0 {
		t.RetentionTime = schema.RetentionDefault
	}
	if err := checkName("topic_name", t.Name); err != nil {
		return nil, err
	}
	err := c.update(ctx, func(tx *Tx) error {
		total := tx.s.cluster.Partitions
		if t.Partitions == 0 {
			t.Partitions = min(schema.TopicPartitionsDefault, total)
		}
		if t.Partitions < 1 || t.Partitions > total {
			return schema.Errorf(schema.Invalid, "partitions must be between 1 and %d", total)
		}
		if tx.s.users[t.Owner] == nil {
			return schema.Errorf(schema.NotFound, "there is no user %d", t.Owner)
		}
		if old := tx.s.topicNames[nameKey{t.Owner, t.Name}]; old != nil {
			return schema.Errorf(schema.Conflict, "this publisher has a topic of this name: topic_id %d", old.ID)
		}
		t.ID, t.CreatedAt = schema.TopicID(tx.newID()), tx.Now
		if err := tx.checkTopic(&t); err != nil {
			return err
		}
		tx.put(schema.KindTopic, key(t.ID), t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	topic, _, _ := c.Topic(t.ID)
	return topic, nil
}

func (tx *Tx) checkTopic(t *schema.Topic) error {
	switch {
	case tx.s.rules[t.Rule] == nil:
		return schema.Errorf(schema.Invalid, "there is no rule_id %d", t.Rule)
	case tx.s.patterns[t.Pattern] == nil:
		return schema.Errorf(schema.Invalid, "there is no pattern_id %d", t.Pattern)
	case t.RetentionTime < schema.RetentionMin || t.RetentionTime > schema.RetentionMax:
		return schema.Errorf(schema.Invalid, "retention must be between %v and %v", schema.RetentionMin, schema.RetentionMax)
	case t.RetentionBytes < 0 || t.RetentionBytes > schema.IDMax:
		return schema.Errorf(schema.Invalid, "retention_bytes must be between 0 and %d", int64(schema.IDMax))
	}
	if err := tx.checkDeadLetter(t.DeadLetter, t.ID, t.Owner); err != nil {
		return err
	}
	return checkLabels(t.Labels)
}

// checkDeadLetter refuses dead letter topics that do not exist, are not by's own or would feed themselves.
func (tx *Tx) checkDeadLetter(dead, of schema.TopicID, by schema.UserID) error {
	if dead == 0 {
		return nil
	}
	d := tx.s.topics[dead]
	switch {
	case d == nil || !d.DeletedAt.IsZero() || (d.Owner != by && tx.s.grants[grantKey{dead, by}] == nil):
		return schema.Errorf(schema.Invalid, "dead_letter_topic_id %d is not a topic that this user may publish to", dead)
	case dead == of:
		return schema.Errorf(schema.Invalid, "a topic cannot be its own dead letter topic")
	}
	return nil
}

// UpdateTopic changes a topic by fn, which may set everything but ID, Owner, Partitions and CreatedAt.
func (c *Catalog) UpdateTopic(ctx context.Context, id schema.TopicID, fn func(*schema.Topic)) (*schema.Topic, error) {
	err := c.update(ctx, func(tx *Tx) error {
		t, err := tx.topic(id)
		if err != nil {
			return err
		}
		changed := *t
		fn(&changed)
		if err := checkName("topic_name", changed.Name); err != nil {
			return err
		}
		if other := tx.s.topicNames[nameKey{changed.Owner, changed.Name}]; other != nil && other.ID != id {
			return schema.Errorf(schema.Conflict, "this publisher has a topic of this name: topic_id %d", other.ID)
		}
		if err := tx.checkTopic(&changed); err != nil {
			return err
		}
		tx.put(schema.KindTopic, key(id), changed)
		return nil
	})
	if err != nil {
		return nil, err
	}
	topic, _, _ := c.Topic(id)
	return topic, nil
}

// DeleteTopic ends a topic with its subscriptions and grants. Its messages go at once.
func (c *Catalog) DeleteTopic(ctx context.Context, id schema.TopicID) error {
	return c.update(ctx, func(tx *Tx) error {
		t, err := tx.topic(id)
		if err != nil {
			return err
		}
		deleted := *t
		deleted.DeletedAt = tx.Now
		tx.put(schema.KindTopic, key(id), deleted)
		for _, s := range tx.s.ofTopic[id] {
			if !s.State.Final() {
				tx.end(s, "the topic was deleted")
			}
		}
		for k := range tx.s.grants {
			if k.topic == id {
				tx.remove(schema.KindGrant, grantRecordKey(k.topic, k.user))
			}
		}
		return nil
	})
}

// Purge forgets topics that were deleted long enough ago, with what is left of their subscriptions.
func (c *Catalog) Purge(ctx context.Context) error {
	return c.update(ctx, func(tx *Tx) error {
		for _, t := range tx.s.topics {
			if t.DeletedAt.IsZero() || tx.Now.Sub(t.DeletedAt) < purgeAfter {
				continue
			}
			tx.remove(schema.KindTopic, key(t.ID))
			for id := range tx.s.ofTopic[t.ID] {
				tx.remove(schema.KindSubscription, key(id))
			}
		}
		return nil
	})
}

func (tx *Tx) topic(id schema.TopicID) (*schema.Topic, error) {
	t := tx.s.topics[id]
	if t == nil || !t.DeletedAt.IsZero() {
		return nil, schema.Errorf(schema.NotFound, "there is no such topic")
	}
	return t, nil
}

// Grant lets a publisher publish to a topic. Granting twice is no error.
func (c *Catalog) Grant(ctx context.Context, id schema.TopicID, u schema.UserID) error {
	return c.update(ctx, func(tx *Tx) error {
		if _, err := tx.topic(id); err != nil {
			return err
		}
		if tx.s.users[u] == nil {
			return schema.Errorf(schema.NotFound, "there is no user %d", u)
		}
		if tx.s.grants[grantKey{id, u}] == nil {
			tx.put(schema.KindGrant, grantRecordKey(id, u), schema.Grant{Topic: id, Publisher: u, CreatedAt: tx.Now})
		}
		return nil
	})
}

// Revoke takes a grant back.
func (c *Catalog) Revoke(ctx context.Context, id schema.TopicID, u schema.UserID) error {
	return c.update(ctx, func(tx *Tx) error {
		if _, err := tx.topic(id); err != nil {
			return err
		}
		if tx.s.grants[grantKey{id, u}] == nil {
			return schema.Errorf(schema.NotFound, "this publisher has no grant on the topic")
		}
		tx.remove(schema.KindGrant, grantRecordKey(id, u))
		return nil
	})
}

// CreateRule adds a rule of a user's own. Its Rego was checked by the caller.
func (c *Catalog) CreateRule(ctx context.Context, r schema.Rule) (*schema.Rule, error) {
	if err := checkName("rule_name", r.Name); err != nil {
		return nil, err
	}
	err := c.update(ctx, func(tx *Tx) error {
		for _, old := range tx.s.rules {
			if old.Name == r.Name {
				return schema.Errorf(schema.Conflict, "there is a rule of this name: rule_id %d", old.ID)
			}
		}
		r.ID = schema.RuleID(tx.newID())
		tx.put(schema.KindRule, key(r.ID), r)
		return nil
	})
	return &r, err
}

// CreatePattern adds a pattern of a user's own.
func (c *Catalog) CreatePattern(ctx context.Context, p schema.Pattern) (*schema.Pattern, error) {
	if p.Mode == "" {
		p.Mode = schema.ModeAny
	}
	if p.Guarantee == "" {
		p.Guarantee = schema.AtLeastOnce
	}
	if p.AckLevel == "" {
		p.AckLevel = "quorum"
	}
	switch {
	case p.Mode != schema.ModeAny && p.Mode != schema.ModePush && p.Mode != schema.ModePull:
		return nil, schema.Errorf(schema.Invalid, "mode must be any, push or pull")
	case p.Guarantee != schema.AtLeastOnce && p.Guarantee != schema.AtMostOnce:
		return nil, schema.Errorf(schema.Invalid, "guarantee must be at_least_once or at_most_once")
	}
	if _, err := schema.ParseAckLevel(p.AckLevel); err != nil {
		return nil, err
	}
	if err := checkName("pattern_name", p.Name); err != nil {
		return nil, err
	}
	err := c.update(ctx, func(tx *Tx) error {
		for _, old := range tx.s.patterns {
			if old.Name == p.Name {
				return schema.Errorf(schema.Conflict, "there is a pattern of this name: pattern_id %d", old.ID)
			}
		}
		p.ID = schema.PatternID(tx.newID())
		tx.put(schema.KindPattern, key(p.ID), p)
		return nil
	})
	return &p, err
}
