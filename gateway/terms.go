package gateway

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/handfast-mq/handfast/schema"
)

type wireTarget struct {
	Type        schema.TargetType `json:"type"`
	URL         string            `json:"url,omitempty"`
	Format      string            `json:"format,omitempty"`
	Function    string            `json:"function,omitempty"`
	Region      string            `json:"region,omitempty"`
	RoleARN     string            `json:"role_arn,omitempty"`
	BatchSize   int               `json:"batch_size,omitzero"`
	BatchWindow seconds           `json:"batch_window,omitzero"`
	Timeout     seconds           `json:"timeout,omitzero"`
	Concurrency int               `json:"concurrency,omitzero"`
	Rate        float64           `json:"rate,omitzero"`
}

func (w *wireTarget) target() schema.Target {
	return schema.Target{Type: w.Type, URL: w.URL, Format: w.Format, Function: w.Function, Region: w.Region, RoleARN: w.RoleARN, BatchSize: w.BatchSize,
		BatchWindow: time.Duration(w.BatchWindow), Timeout: time.Duration(w.Timeout), Concurrency: w.Concurrency, Rate: w.Rate}
}

func wireTargetOf(t *schema.Target) wireTarget {
	return wireTarget{t.Type, t.URL, t.Format, t.Function, t.Region, t.RoleARN, t.BatchSize,
		seconds(t.BatchWindow), seconds(t.Timeout), t.Concurrency, t.Rate}
}

// wireStart is a position: "now", "earliest", a time, a message id, or an object that says which of them.
type wireStart struct{ schema.StartAt }

// UnmarshalJSON reads all forms.
func (w *wireStart) UnmarshalJSON(raw []byte) error {
	var object struct {
		Position string           `json:"position"`
		Time     *time.Time       `json:"time"`
		Message  schema.MessageID `json:"message_id"`
	}
	bad := schema.Errorf(schema.Invalid, "start must be \"now\", \"earliest\", a time in RFC 3339 or a message id")
	text, quoted := unquote(raw)
	if !quoted && strings.HasPrefix(text, "{") {
		if err := decodeJSON(raw, &object); err != nil {
			return err
		}
		switch {
		case object.Time != nil && object.Message == 0 && object.Position == "":
			w.StartAt = schema.StartAt{Position: "time", Time: object.Time.UTC()}
		case object.Message > 0 && object.Time == nil && object.Position == "":
			w.StartAt = schema.StartAt{Position: "message", Message: object.Message}
		case object.Message == 0 && object.Time == nil && object.Position != "":
			return w.parse(object.Position)
		default:
			return bad
		}
		return nil
	}
	return w.parse(text)
}

func (w *wireStart) parse(text string) error {
	if text == "now" || text == "earliest" {
		w.StartAt = schema.StartAt{Position: text}
		return nil
	}
	if id, err := schema.ParseID(text); err == nil && id > 0 {
		w.StartAt = schema.StartAt{Position: "message", Message: schema.MessageID(id)}
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return schema.Errorf(schema.Invalid, "start must be \"now\", \"earliest\", a time in RFC 3339 or a message id")
	}
	w.StartAt = schema.StartAt{Position: "time", Time: at.UTC()}
	return nil
}

// wireTerms is what a consumer chooses.
type wireTerms struct {
	Target           *wireTarget       `json:"target"`
	Guarantee        *schema.Guarantee `json:"guarantee"`
	Ordered          *bool             `json:"ordered"`
	Filter           *jsontext.Value   `json:"filter"`
	AcceptPublishers *[]schema.UserID  `json:"accept_publishers"`
	AckDeadline      *seconds          `json:"ack_deadline"`
	MaxOutstanding   *int              `json:"max_outstanding"`
	MaxAttempts      *int              `json:"max_attempts"`
	RetrySchedule    *[]seconds        `json:"retry_schedule"`
	DeadLetter       *schema.TopicID   `json:"dead_letter_topic_id"`
}

// check refuses what is no identifier. What else the terms must be, the catalog knows.
func (w *wireTerms) check() error {
	if w.DeadLetter != nil {
		if err := checkOptionalID("dead_letter_topic_id", *w.DeadLetter); err != nil {
			return err
		}
	}
	if w.AcceptPublishers != nil {
		for _, id := range *w.AcceptPublishers {
			if err := checkID("accept_publishers", id); err != nil {
				return err
			}
		}
	}
	return nil
}

// set copies the terms that a request gave.
func (w *wireTerms) set(s *schema.Subscription) {
	if w.Target != nil {
		s.Target = w.Target.target()
	}
	if w.Filter != nil {
		s.Filter = json.RawMessage(*w.Filter)
	}
	if w.AckDeadline != nil {
		s.AckDeadline = time.Duration(*w.AckDeadline)
	}
	if w.RetrySchedule != nil {
		s.RetrySchedule = durationsOf(*w.RetrySchedule)
	}
	set(&s.Guarantee, w.Guarantee)
	set(&s.Ordered, w.Ordered)
	set(&s.AcceptPublishers, w.AcceptPublishers)
	set(&s.MaxOutstanding, w.MaxOutstanding)
	set(&s.MaxAttempts, w.MaxAttempts)
	set(&s.DeadLetter, w.DeadLetter)
}

// wireSubscription shows a subscription. Secrets are shown to its consumer alone.
type wireSubscription struct {
	ID               schema.SubscriptionID `json:"subscription_id"`
	Topic            schema.TopicID        `json:"topic_id"`
	Consumer         schema.UserID         `json:"consumer_id"`
	State            schema.State          `json:"state"`
	Reason           string                `json:"reason,omitempty"`
	PublisherConsent schema.Consent        `json:"publisher_consent"`
	ConsumerConsent  schema.Consent        `json:"consumer_consent"`
	Target           wireTarget            `json:"target"`
	Secrets          []string              `json:"secrets,omitempty"`
	Guarantee        schema.Guarantee      `json:"guarantee"`
	Ordered          bool                  `json:"ordered"`
	Filter           jsontext.Value        `json:"filter,omitempty"`
	AcceptPublishers []schema.UserID       `json:"accept_publishers,omitempty"`
	Start            string                `json:"start"`
	AckDeadline      seconds               `json:"ack_deadline"`
	MaxOutstanding   int                   `json:"max_outstanding"`
	MaxAttempts      int                   `json:"max_attempts"`
	RetrySchedule    []seconds             `json:"retry_schedule"`
	DeadLetter       schema.TopicID        `json:"dead_letter_topic_id,omitzero"`
	SubscribeAt      string                `json:"subscribe_at"`
	ActiveAt         string                `json:"active_at,omitempty"`
	UnsubscribeAt    string                `json:"unsubscribe_at,omitempty"`
}

func wireSubscriptionOf(s *schema.Subscription, secrets bool) wireSubscription {
	w := wireSubscription{ID: s.ID, Topic: s.Topic, Consumer: s.Consumer, State: s.State, Reason: s.Reason, PublisherConsent: s.PublisherConsent,
		ConsumerConsent: s.ConsumerConsent, Target: wireTargetOf(&s.Target), Guarantee: s.Guarantee, Ordered: s.Ordered, Filter: jsontext.Value(s.Filter),
		AcceptPublishers: s.AcceptPublishers, Start: s.Start.Position, AckDeadline: seconds(s.AckDeadline), MaxOutstanding: s.MaxOutstanding,
		MaxAttempts: s.Attempts(), RetrySchedule: secondsOf(s.Schedule()), DeadLetter: s.DeadLetter,
		SubscribeAt: stamp(s.CreatedAt), ActiveAt: stamp(s.ActiveAt), UnsubscribeAt: stamp(s.EndedAt)}
	switch s.Start.Position {
	case "time":
		w.Start = stamp(s.Start.Time)
	case "message":
		w.Start = strconv.FormatInt(int64(s.Start.Message), 10)
	}
	if secrets {
		for _, k := range s.Secrets {
			w.Secrets = append(w.Secrets, k.Key)
		}
	}
	return w
}
