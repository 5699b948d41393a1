package gateway

import (
	"time"

	"github.com/gofiber/fiber/v2"

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

func (g *Gateway) createTopic(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
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
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkOptionalID("publisher_id", w.Publisher); err != nil {
		return err
	}
	rule, err := g.ruleOf(w.Rule)
	if err != nil {
		return err
	}
	pattern, err := g.patternOf(w.Pattern)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	owner := actor(u, w.Publisher)
	if err := g.allow(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionCreateTopic, As: owner}); err != nil {
		return err
	}
	t, err := g.cfg.Catalog.CreateTopic(ctx, schema.Topic{Name: w.Name, Owner: owner, Rule: rule, Pattern: pattern, Partitions: w.Partitions,
		RetentionTime: time.Duration(w.Retention), RetentionBytes: w.RetentionBytes, DeadLetter: w.DeadLetter, Labels: w.Labels})
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		wireTopic
	}{okay, wireTopicOf(t)})
}

func (g *Gateway) updateTopic(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		ID             schema.TopicID     `json:"topic_id"`
		Name           *string            `json:"topic_name"`
		Rule           *ruleRef           `json:"rule_id"`
		Pattern        *patternRef        `json:"pattern_id"`
		Retention      *seconds           `json:"retention"`
		RetentionBytes *int64             `json:"retention_bytes"`
		DeadLetter     *schema.TopicID    `json:"dead_letter_topic_id"`
		Labels         *map[string]string `json:"labels"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("topic_id", w.ID); err != nil {
		return err
	}
	var rule schema.RuleID
	var pattern schema.PatternID
	if w.Rule != nil {
		if rule, err = g.ruleOf(*w.Rule); err != nil {
			return err
		}
	}
	if w.Pattern != nil {
		if pattern, err = g.patternOf(*w.Pattern); err != nil {
			return err
		}
	}
	ctx, cancel := call()
	defer cancel()
	if _, _, err := g.topicFor(ctx, c, u, 0, schema.ActionUpdateTopic, w.ID); err != nil {
		return err
	}
	t, err := g.cfg.Catalog.UpdateTopic(ctx, w.ID, func(t *schema.Topic) {
		set(&t.Name, w.Name)
		set(&t.RetentionBytes, w.RetentionBytes)
		set(&t.DeadLetter, w.DeadLetter)
		set(&t.Labels, w.Labels)
		if w.Retention != nil {
			t.RetentionTime = time.Duration(*w.Retention)
		}
		if w.Rule != nil {
			t.Rule = rule
		}
		if w.Pattern != nil {
			t.Pattern = pattern
		}
	})
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		wireTopic
	}{okay, wireTopicOf(t)})
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

func (g *Gateway) deleteTopic(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w wireTopicOnly
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("topic_id", w.ID); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if _, _, err := g.topicFor(ctx, c, u, 0, schema.ActionDeleteTopic, w.ID); err != nil {
		return err
	}
	if err := g.cfg.Catalog.DeleteTopic(ctx, w.ID); err != nil {
		return err
	}
	return ok(c, okay)
}

func (g *Gateway) getTopic(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "topic_id", "topic_name", "publisher_id")
	if err != nil {
		return err
	}
	id, err := queryID(q, "topic_id", false)
	if err != nil {
		return err
	}
	owner, err := queryID(q, "publisher_id", false)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	if name := q["topic_name"]; name != "" && id == 0 {
		if t := g.cfg.Catalog.TopicNamed(actor(u, schema.UserID(owner)), name); t != nil {
			id = int64(t.ID)
		}
	} else if id == 0 {
		return schema.Errorf(schema.Invalid, "topic_id or topic_name is needed")
	}
	t, err := g.visibleTopic(ctx, c, u, schema.TopicID(id))
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		wireTopic
	}{okay, wireTopicOf(t)})
}

func (g *Gateway) listTopics(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	after, limit, q, err := paging(c, "publisher_id")
	if err != nil {
		return err
	}
	owner, err := queryID(q, "publisher_id", false)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	// The policies are asked outside of the catalog's lock, page by page.
	out := make([]wireTopic, 0, limit)
	for last := schema.TopicID(after); len(out) < limit; {
		page := g.cfg.Catalog.Topics(last, schema.ListMax, func(t *schema.Topic) bool {
			return !t.Internal && (owner == 0 || t.Owner == schema.UserID(owner))
		})
		for _, t := range page {
			last = t.ID
			if len(out) < limit && g.maySee(ctx, c, u, t) {
				out = append(out, wireTopicOf(t))
			}
		}
		if len(page) < schema.ListMax {
			break
		}
	}
	return ok(c, struct {
		status
		Topics []wireTopic `json:"topics"`
	}{okay, out})
}

func (g *Gateway) grantPublish(c *fiber.Ctx) error {
	return g.changeGrant(c, schema.ActionGrant)
}

func (g *Gateway) revokePublish(c *fiber.Ctx) error {
	return g.changeGrant(c, schema.ActionRevoke)
}

func (g *Gateway) changeGrant(c *fiber.Ctx, action schema.Action) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	var w struct {
		Topic     schema.TopicID `json:"topic_id"`
		Publisher schema.UserID  `json:"publisher_id"`
	}
	if err := decode(c, &w); err != nil {
		return err
	}
	if err := checkID("topic_id", w.Topic); err != nil {
		return err
	}
	if err := checkID("publisher_id", w.Publisher); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if _, _, err := g.topicFor(ctx, c, u, 0, action, w.Topic); err != nil {
		return err
	}
	if action == schema.ActionGrant {
		err = g.cfg.Catalog.Grant(ctx, w.Topic, w.Publisher)
	} else {
		err = g.cfg.Catalog.Revoke(ctx, w.Topic, w.Publisher)
	}
	if err != nil {
		return err
	}
	return ok(c, okay)
}

func (g *Gateway) listGrants(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "topic_id")
	if err != nil {
		return err
	}
	id, err := queryID(q, "topic_id", true)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	if _, _, err := g.topicFor(ctx, c, u, 0, schema.ActionGrant, schema.TopicID(id)); err != nil {
		return err
	}
	type wireGrant struct {
		Publisher schema.UserID `json:"publisher_id"`
		CreatedAt string        `json:"created_at"`
	}
	out := struct {
		status
		Grants []wireGrant `json:"grants"`
	}{okay, []wireGrant{}}
	for _, grant := range g.cfg.Catalog.Grants(schema.TopicID(id)) {
		out.Grants = append(out.Grants, wireGrant{grant.Publisher, stamp(grant.CreatedAt)})
	}
	return ok(c, out)
}

// paging reads the query of a listing.
func paging(c *fiber.Ctx, more ...string) (after int64, limit int, q map[string]string, err error) {
	q, err = queries(c, append(more, "after", "limit")...)
	if err != nil {
		return 0, 0, nil, err
	}
	if after, err = queryID(q, "after", false); err != nil {
		return 0, 0, nil, err
	}
	limit, err = queryInt(q, "limit", 100, 1, schema.ListMax)
	return after, limit, q, err
}
