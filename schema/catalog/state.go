package catalog

import (
	"encoding/json"
	"fmt"

	"github.com/handfast-mq/handfast/schema"
)

const (
	lastIDKey   = "last_id"
	settingsKey = "settings"
	firstID     = 1000 // smaller identifiers are kept for what is built in
)

type (
	grantKey struct {
		topic schema.TopicID
		user  schema.UserID
	}
	nameKey struct {
		owner schema.UserID
		name  string
	}
	tokenHash [32]byte
)

// state is the replica's content and its indexes.
type state struct {
	revision      schema.Revision
	lastID        int64
	cluster       *schema.Cluster
	users         map[schema.UserID]*schema.User
	userNames     map[string]*schema.User
	tokens        map[schema.TokenID]*schema.Token
	tokenHashes   map[tokenHash]*schema.Token
	topics        map[schema.TopicID]*schema.Topic
	topicNames    map[nameKey]*schema.Topic
	grants        map[grantKey]*schema.Grant
	subscriptions map[schema.SubscriptionID]*schema.Subscription
	ofTopic       map[schema.TopicID]map[schema.SubscriptionID]*schema.Subscription
	ofConsumer    map[grantKey]*schema.Subscription // the newest
	challenges    map[string]*schema.Subscription
	rules         map[schema.RuleID]*schema.Rule
	patterns      map[schema.PatternID]*schema.Pattern
	functions     map[string]*schema.Function
}

func newState() state {
	s := state{
		lastID:        firstID,
		users:         map[schema.UserID]*schema.User{},
		userNames:     map[string]*schema.User{},
		tokens:        map[schema.TokenID]*schema.Token{},
		tokenHashes:   map[tokenHash]*schema.Token{},
		topics:        map[schema.TopicID]*schema.Topic{},
		topicNames:    map[nameKey]*schema.Topic{},
		grants:        map[grantKey]*schema.Grant{},
		subscriptions: map[schema.SubscriptionID]*schema.Subscription{},
		ofTopic:       map[schema.TopicID]map[schema.SubscriptionID]*schema.Subscription{},
		ofConsumer:    map[grantKey]*schema.Subscription{},
		challenges:    map[string]*schema.Subscription{},
		rules:         map[schema.RuleID]*schema.Rule{},
		patterns:      map[schema.PatternID]*schema.Pattern{},
		functions:     map[string]*schema.Function{},
	}
	for _, r := range schema.BuiltinRules() {
		s.rules[r.ID] = &r
	}
	for _, p := range schema.BuiltinPatterns() {
		s.patterns[p.ID] = &p
	}
	return s
}

// put applies one record.
func (s *state) put(r schema.Record) (Event, error) {
	e := Event{Kind: r.Kind}
	var err error
	switch r.Kind {
	case schema.KindCluster:
		err = s.putCluster(r)
	case schema.KindUser:
		err = apply(&e, r, s.putUser)
	case schema.KindToken:
		err = apply(&e, r, s.putToken)
	case schema.KindTopic:
		err = apply(&e, r, s.putTopic)
	case schema.KindGrant:
		err = apply(&e, r, s.putGrant)
	case schema.KindSubscription:
		err = apply(&e, r, s.putSubscription)
	case schema.KindRule:
		err = apply(&e, r, s.putRule)
	case schema.KindPattern:
		err = apply(&e, r, s.putPattern)
	case schema.KindFunction:
		err = apply(&e, r, s.putFunction)
	default: // of a newer version: not ours to understand
	}
	if err != nil {
		return e, fmt.Errorf("metadata record %s %s: %w", r.Kind, r.Key, err)
	}
	return e, nil
}

// apply decodes a record and puts its noun; put returns what was there before.
func apply[T any](e *Event, r schema.Record, put func(key string, noun *T) *T) error {
	var noun *T
	if r.Value != nil {
		noun = new(T)
		if err := json.Unmarshal(r.Value, noun); err != nil {
			return err
		}
		e.New = noun
	}
	if old := put(r.Key, noun); old != nil {
		e.Old = old
	}
	return nil
}

func (s *state) putCluster(r schema.Record) error {
	switch r.Key {
	case lastIDKey:
		return json.Unmarshal(r.Value, &s.lastID)
	case settingsKey:
		s.cluster = new(schema.Cluster)
		return json.Unmarshal(r.Value, s.cluster)
	}
	return nil
}

func parse[T ~int64](key string) T {
	id, _ := schema.ParseID(key)
	return T(id)
}

// replace sets or removes a map entry and returns the former one.
func replace[K comparable, V any](m map[K]*V, k K, v *V) *V {
	old := m[k]
	if v == nil {
		delete(m, k)
	} else {
		m[k] = v
	}
	return old
}

func (s *state) putUser(key string, u *schema.User) *schema.User {
	old := replace(s.users, parse[schema.UserID](key), u)
	if old != nil {
		delete(s.userNames, old.Name)
	}
	if u != nil {
		s.userNames[u.Name] = u
	}
	return old
}

func (s *state) putToken(key string, t *schema.Token) *schema.Token {
	old := replace(s.tokens, parse[schema.TokenID](key), t)
	if old != nil {
		delete(s.tokenHashes, tokenHash(old.Hash))
	}
	if t != nil {
		s.tokenHashes[tokenHash(t.Hash)] = t
	}
	return old
}

func (s *state) putTopic(key string, t *schema.Topic) *schema.Topic {
	old := replace(s.topics, parse[schema.TopicID](key), t)
	if old != nil && s.topicNames[nameKey{old.Owner, old.Name}] == old {
		delete(s.topicNames, nameKey{old.Owner, old.Name})
	}
	if t != nil && t.DeletedAt.IsZero() {
		s.topicNames[nameKey{t.Owner, t.Name}] = t
	}
	return old
}

func grantRecordKey(t schema.TopicID, u schema.UserID) string {
	return fmt.Sprintf("%d/%d", t, u)
}

func (s *state) putGrant(key string, g *schema.Grant) *schema.Grant {
	var k grantKey
	fmt.Sscanf(key, "%d/%d", &k.topic, &k.user)
	return replace(s.grants, k, g)
}

func (s *state) putSubscription(key string, sub *schema.Subscription) *schema.Subscription {
	id := parse[schema.SubscriptionID](key)
	old := replace(s.subscriptions, id, sub)
	if old != nil {
		delete(s.challenges, old.Challenge)
		delete(s.ofTopic[old.Topic], id)
		if len(s.ofTopic[old.Topic]) == 0 {
			delete(s.ofTopic, old.Topic)
		}
		if k := (grantKey{old.Topic, old.Consumer}); s.ofConsumer[k] == old {
			delete(s.ofConsumer, k)
		}
	}
	if sub != nil {
		if sub.Challenge != "" {
			s.challenges[sub.Challenge] = sub
		}
		if s.ofTopic[sub.Topic] == nil {
			s.ofTopic[sub.Topic] = map[schema.SubscriptionID]*schema.Subscription{}
		}
		s.ofTopic[sub.Topic][id] = sub
		s.ofConsumer[grantKey{sub.Topic, sub.Consumer}] = sub
	}
	return old
}

func (s *state) putRule(key string, r *schema.Rule) *schema.Rule {
	return replace(s.rules, parse[schema.RuleID](key), r)
}

func (s *state) putPattern(key string, p *schema.Pattern) *schema.Pattern {
	return replace(s.patterns, parse[schema.PatternID](key), p)
}

func (s *state) putFunction(key string, f *schema.Function) *schema.Function {
	return replace(s.functions, key, f)
}

// records returns everything as records, for a checkpoint.
func (s *state) records() []schema.Record {
	tx := &Tx{}
	tx.put(schema.KindCluster, lastIDKey, s.lastID)
	if s.cluster != nil {
		tx.put(schema.KindCluster, settingsKey, s.cluster)
	}
	for id, u := range s.users {
		tx.put(schema.KindUser, key(id), u)
	}
	for id, t := range s.tokens {
		tx.put(schema.KindToken, key(id), t)
	}
	for id, t := range s.topics {
		tx.put(schema.KindTopic, key(id), t)
	}
	for k, g := range s.grants {
		tx.put(schema.KindGrant, grantRecordKey(k.topic, k.user), g)
	}
	for id, sub := range s.subscriptions {
		tx.put(schema.KindSubscription, key(id), sub)
	}
	for id, r := range s.rules {
		if r.Owner != 0 {
			tx.put(schema.KindRule, key(id), r)
		}
	}
	for id, p := range s.patterns {
		if p.Owner != 0 {
			tx.put(schema.KindPattern, key(id), p)
		}
	}
	for name, f := range s.functions {
		tx.put(schema.KindFunction, name, f)
	}
	return tx.records
}
