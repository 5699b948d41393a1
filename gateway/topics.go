package gateway

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// ruleRef and patternRef name a rule or pattern by its number or its name.
type (
	ruleRef    struct{ ref }
	patternRef struct{ ref }
	ref        struct {
		id   int64
		name string
	}
)

// UnmarshalJSON reads both forms.
func (r *ref) UnmarshalJSON(raw []byte) error {
	text, quoted := unquote(raw)
	id, err := schema.ParseID(text)
	if err != nil && quoted {
		*r = ref{name: text}
		return nil
	}
	*r = ref{id: id}
	return err
}

func (g *Gateway) ruleOf(r ruleRef) (schema.RuleID, error) {
	if r.name == "" {
		return schema.RuleID(r.id), nil
	}
	for _, rule := range g.cfg.Catalog.Rules() {
		if rule.Name == r.name {
			return rule.ID, nil
		}
	}
	return 0, schema.Errorf(schema.Invalid, "rule_id: there is no rule %q", clip(r.name))
}

func (g *Gateway) patternOf(r patternRef) (schema.PatternID, error) {
	if r.name == "" {
		return schema.PatternID(r.id), nil
	}
	for _, p := range g.cfg.Catalog.Patterns() {
		if p.Name == r.name {
			return p.ID, nil
		}
	}
	return 0, schema.Errorf(schema.Invalid, "pattern_id: there is no pattern %q", clip(r.name))
}

type wireTopic struct {
	ID             schema.TopicID    `json:"topic_id"`
	Name           string            `json:"topic_name"`
	Owner          schema.UserID     `json:"publisher_id"`
	Rule           schema.RuleID     `json:"rule_id"`
	Pattern        schema.PatternID  `json:"pattern_id"`
	Partitions     int               `json:"partitions"`
	Retention      seconds           `json:"retention"`
	RetentionBytes int64             `json:"retention_bytes"`
	DeadLetter     schema.TopicID    `json:"dead_letter_topic_id,omitzero"`
	Labels         map[string]string `json:"labels,omitempty"`
	CreatedAt      string            `json:"created_at"`
}

func wireTopicOf(t *schema.Topic) wireTopic {
	return wireTopic{t.ID, t.Name, t.Owner, t.Rule, t.Pattern, t.Partitions, seconds(t.RetentionTime), t.RetentionBytes, t.DeadLetter, t.Labels, stamp(t.CreatedAt)}
}

type wireNewTopic struct {
	Publisher      schema.UserID     `json:"publisher_id"`
	Name           string            `json:"topic_name"`
	Rule           ruleRef           `json:"rule_id"`
	Pattern        patternRef        `json:"pattern_id"`
	Partitions     int               `json:"partitions"`
	Retention      seconds           `json:"retention"`
	RetentionBytes int64             `json:"retention_bytes"`
	DeadLetter     schema.TopicID    `json:"dead_letter_topic_id"`
	Labels         map[string]string `json:"labels"`
}

func (g *Gateway) createTopic(ctx context.Context, by caller, in *wireNewTopic) (out wireTopic, err error) {
	if err := checkOptionalID("publisher_id", in.Publisher); err != nil {
		return out, err
	}
	rule, err := g.ruleOf(in.Rule)
	if err != nil {
		return out, err
	}
	pattern, err := g.patternOf(in.Pattern)
	if err != nil {
		return out, err
	}
	owner := by.or(in.Publisher)
	if err := g.allow(ctx, by, &schema.AuthRequest{Action: schema.ActionCreateTopic, As: owner}); err != nil {
		return out, err
	}
	t, err := g.cfg.Catalog.CreateTopic(ctx, schema.Topic{Name: in.Name, Owner: owner, Rule: rule, Pattern: pattern, Partitions: in.Partitions,
		RetentionTime: time.Duration(in.Retention), RetentionBytes: in.RetentionBytes, DeadLetter: in.DeadLetter, Labels: in.Labels})
	if err != nil {
		return out, err
	}
	return wireTopicOf(t), nil
}

// wireTopicChange says what to change of a topic. What is left out stays as it is.
type wireTopicChange struct {
	ID             schema.TopicID     `json:"topic_id"`
	Name           *string            `json:"topic_name"`
	Rule           *ruleRef           `json:"rule_id"`
	Pattern        *patternRef        `json:"pattern_id"`
	Retention      *seconds           `json:"retention"`
	RetentionBytes *int64             `json:"retention_bytes"`
	DeadLetter     *schema.TopicID    `json:"dead_letter_topic_id"`
	Labels         *map[string]string `json:"labels"`
}

func (g *Gateway) updateTopic(ctx context.Context, by caller, in *wireTopicChange) (out wireTopic, err error) {
	if err := checkID("topic_id", in.ID); err != nil {
		return out, err
	}
	var rule *schema.RuleID
	var pattern *schema.PatternID
	if in.Rule != nil {
		id, err := g.ruleOf(*in.Rule)
		if err != nil {
			return out, err
		}
		rule = &id
	}
	if in.Pattern != nil {
		id, err := g.patternOf(*in.Pattern)
		if err != nil {
			return out, err
		}
		pattern = &id
	}
	if _, err := g.topicFor(ctx, by, 0, schema.ActionUpdateTopic, in.ID); err != nil {
		return out, err
	}
	t, err := g.cfg.Catalog.UpdateTopic(ctx, in.ID, func(t *schema.Topic) {
		set(&t.Name, in.Name)
		set(&t.Rule, rule)
		set(&t.Pattern, pattern)
		setSeconds(&t.RetentionTime, in.Retention)
		set(&t.RetentionBytes, in.RetentionBytes)
		set(&t.DeadLetter, in.DeadLetter)
		set(&t.Labels, in.Labels)
	})
	if err != nil {
		return out, err
	}
	return wireTopicOf(t), nil
}

// set copies a value that a request gave.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// wireTopicOnly is the body of calls that need no more than a topic.
type wireTopicOnly struct {
	ID schema.TopicID `json:"topic_id"`
}

func (g *Gateway) deleteTopic(ctx context.Context, by caller, in *wireTopicOnly) (nothing, error) {
	if err := checkID("topic_id", in.ID); err != nil {
		return nothing{}, err
	}
	if _, err := g.topicFor(ctx, by, 0, schema.ActionDeleteTopic, in.ID); err != nil {
		return nothing{}, err
	}
	return nothing{}, g.cfg.Catalog.DeleteTopic(ctx, in.ID)
}

func (g *Gateway) getTopic(ctx context.Context, by caller, q *params) (out wireTopic, err error) {
	id, name := optionalID[schema.TopicID](q, "topic_id"), q.text("topic_name")
	owner := by.or(optionalID[schema.UserID](q, "publisher_id"))
	if (id == 0) == (name == "") {
		q.refuse("one of topic_id and topic_name is needed")
	}
	if q.err != nil {
		return out, q.err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	if id == 0 {
		if t := g.cfg.Catalog.TopicNamed(owner, name); t != nil {
			id = t.ID
		}
	}
	t, _, _ := g.cfg.Catalog.Topic(id)
	if t == nil || !g.maySee(ctx, by, t) {
		return out, errNoTopic
	}
	return wireTopicOf(t), nil
}

type wireTopics struct {
	Topics []wireTopic `json:"topics"`
}

func (g *Gateway) listTopics(ctx context.Context, by caller, q *params) (out wireTopics, err error) {
	after, limit := optionalID[schema.TopicID](q, "after"), q.limit()
	owner := optionalID[schema.UserID](q, "publisher_id")
	if q.err != nil {
		return out, q.err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	page := func(after schema.TopicID, limit int) []*schema.Topic {
		return g.cfg.Catalog.Topics(after, limit, func(t *schema.Topic) bool { return !t.Internal && (owner == 0 || t.Owner == owner) })
	}
	out.Topics, err = list(ctx, after, limit, page, func(t *schema.Topic) schema.TopicID { return t.ID }, func(t *schema.Topic) (wireTopic, bool) {
		return wireTopicOf(t), g.maySee(ctx, by, t)
	})
	return out, err
}
