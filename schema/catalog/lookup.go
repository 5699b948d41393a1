package catalog

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Cluster returns the settings; nil before Init.
func (c *Catalog) Cluster() *schema.Cluster {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.cluster
}

// Authenticate returns the user of a token; nil when the token is not valid now.
func (c *Catalog) Authenticate(token []byte, now time.Time) *schema.User {
	hash := sha256.Sum256(token)
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.state.tokenHashes[hash]
	if t == nil || subtle.ConstantTimeCompare(t.Hash, hash[:]) != 1 {
		return nil
	}
	return c.state.userOf(t, now)
}

// User returns a user, nil when there is none.
func (c *Catalog) User(id schema.UserID) *schema.User {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.users[id]
}

// Users returns the users after an id, in order, up to limit.
func (c *Catalog) Users(after schema.UserID, limit int) []*schema.User {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.users, after, limit, func(*schema.User) bool { return true })
}

// Tokens returns a user's tokens.
func (c *Catalog) Tokens(id schema.UserID) []*schema.Token {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.tokens, 0, schema.ListMax, func(t *schema.Token) bool { return t.User == id })
}

// Token returns a token's record.
func (c *Catalog) Token(id schema.TokenID) *schema.Token {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.tokens[id]
}

// Topic returns a topic with its rule and pattern; nil when there is none.
func (c *Catalog) Topic(id schema.TopicID) (*schema.Topic, *schema.Rule, *schema.Pattern) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.state.topics[id]
	if t == nil || !t.DeletedAt.IsZero() {
		return nil, nil, nil
	}
	return t, c.state.rules[t.Rule], c.state.patterns[t.Pattern]
}

// AnyTopic returns a topic, also one that was deleted and still has messages.
func (c *Catalog) AnyTopic(id schema.TopicID) *schema.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.topics[id]
}

// TopicNamed returns an owner's topic by its name.
func (c *Catalog) TopicNamed(owner schema.UserID, name string) *schema.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.topicNames[nameKey{owner, name}]
}

// Topics returns the topics after an id that pass, in order, up to limit.
func (c *Catalog) Topics(after schema.TopicID, limit int, pass func(*schema.Topic) bool) []*schema.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.topics, after, limit, func(t *schema.Topic) bool { return t.DeletedAt.IsZero() && pass(t) })
}

// AllTopics returns every topic, deleted ones that still have messages included.
func (c *Catalog) AllTopics() []*schema.Topic {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*schema.Topic, 0, len(c.state.topics))
	for _, t := range c.state.topics {
		all = append(all, t)
	}
	return all
}

// Granted tells whether a publisher holds a grant on a topic.
func (c *Catalog) Granted(t schema.TopicID, u schema.UserID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.grants[grantKey{t, u}] != nil
}

// Subscription returns a subscription by its id.
func (c *Catalog) Subscription(id schema.SubscriptionID) *schema.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.subscriptions[id]
}

// SubscriptionOf returns a consumer's newest subscription to a topic.
func (c *Catalog) SubscriptionOf(t schema.TopicID, u schema.UserID) *schema.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.ofConsumer[grantKey{t, u}]
}

// Challenged returns the subscription whose endpoint was sent a challenge.
func (c *Catalog) Challenged(challenge string) *schema.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.challenges[challenge]
}

// Grants returns a topic's grants.
func (c *Catalog) Grants(t schema.TopicID) []*schema.Grant {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var grants []*schema.Grant
	for k, g := range c.state.grants {
		if k.topic == t {
			grants = append(grants, g)
		}
	}
	slices.SortFunc(grants, func(a, b *schema.Grant) int { return cmp.Compare(a.Publisher, b.Publisher) })
	return grants
}

// Subscriptions returns the subscriptions after an id that pass, in order, up to limit.
func (c *Catalog) Subscriptions(after schema.SubscriptionID, limit int, pass func(*schema.Subscription) bool) []*schema.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.subscriptions, after, limit, pass)
}

// TopicSubscriptions returns a topic's subscriptions.
func (c *Catalog) TopicSubscriptions(t schema.TopicID) []*schema.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.ofTopic[t], 0, len(c.state.ofTopic[t]), func(*schema.Subscription) bool { return true })
}

// PartitionSubscriptions returns the subscriptions, not at their end, of the topics that use a partition.
func (c *Catalog) PartitionSubscriptions(p schema.PartitionID) []*schema.Subscription {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var subs []*schema.Subscription
	for id, ofTopic := range c.state.ofTopic {
		t := c.state.topics[id]
		if t == nil || !t.Uses(p, c.state.cluster.Partitions) {
			continue
		}
		for _, s := range ofTopic {
			if !s.State.Final() {
				subs = append(subs, s)
			}
		}
	}
	return subs
}

// Rules and Patterns return what topics can refer to.
func (c *Catalog) Rules() []*schema.Rule {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.rules, 0, len(c.state.rules), func(*schema.Rule) bool { return true })
}

// Rule returns a rule by its id.
func (c *Catalog) Rule(id schema.RuleID) *schema.Rule {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.rules[id]
}

// Patterns returns all patterns.
func (c *Catalog) Patterns() []*schema.Pattern {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.patterns, 0, len(c.state.patterns), func(*schema.Pattern) bool { return true })
}

// page returns the nouns with an id above after that pass, in order of id, up to limit.
func page[K cmp.Ordered, V any](m map[K]*V, after K, limit int, pass func(*V) bool) []*V {
	var ids []K
	for id, v := range m {
		if id > after && pass(v) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = ids[:min(limit, len(ids))]
	out := make([]*V, len(ids))
	for i, id := range ids {
		out[i] = m[id]
	}
	return out
}
