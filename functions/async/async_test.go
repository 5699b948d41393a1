package async

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
	"github.com/handfast-mq/handfast/schema/pebble"
)

// fixture is an Async whose function answers as the test says, and whose publishing can be broken.
type fixture struct {
	*testing.T
	async     *Async
	f         *schema.Function
	sub       *schema.Subscription
	won, lost schema.TopicID

	runs      int
	answer    *schema.Invoked
	err       error
	broken    error
	published map[schema.TopicID][]schema.Publish
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	store, err := pebble.Open(t.TempDir(), pebble.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	c, err := catalog.Open(t.Context(), store)
	if err == nil {
		_, err = c.Init(t.Context(), schema.Cluster{Partitions: 4}, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{T: t, answer: &schema.Invoked{Payload: []byte(`"well"`), Version: 1}, published: map[schema.TopicID][]schema.Publish{}}
	x.won, x.lost = x.topic(c, "won"), x.topic(c, "lost")
	x.f, err = c.PutFunction(t.Context(), "f", 1, func(f *schema.Function, v *schema.FunctionVersion) error {
		v.SHA256 = strings.Repeat("ab", 32)
		f.Async = schema.AsyncConfig{MaxRetries: 2, MaxAge: time.Hour, OnSuccess: x.won, OnFailure: x.lost}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	x.async = New(Options{Catalog: c,
		Run: func(context.Context, *schema.Function, *schema.Invocation) (*schema.Invoked, error) {
			x.runs++
			return x.answer, x.err
		},
		Publish: func(_ context.Context, id schema.TopicID, m schema.Publish) error {
			if x.broken == nil {
				x.published[id] = append(x.published[id], m)
			}
			return x.broken
		}})
	if err := x.async.Enqueue(t.Context(), x.f, &schema.Invocation{RequestID: "r", Payload: []byte(`{"x":1}`), Qualifier: "live"}); err != nil {
		t.Fatal(err)
	}
	x.f = c.Function("f")
	x.sub = c.SubscriptionOf(x.f.Events, 1)
	return x
}

func (x *fixture) topic(c *catalog.Catalog, name string) schema.TopicID {
	made, err := c.CreateTopic(x.Context(), schema.Topic{Name: name, Owner: 1})
	if err != nil {
		x.Fatal(err)
	}
	return made.ID
}

// deliver tries the event that was enqueued, as the subscription would.
func (x *fixture) deliver(attempt int, age time.Duration) schema.Result {
	m := x.published[x.f.Events][0]
	return x.async.Deliver(x.Context(), x.sub, x.f, &schema.Delivery{Message: schema.Message{ID: 5, Time: time.Now().Add(-age), Content: m.Content, Attributes: m.Attributes}, Attempt: attempt})
}

func (x *fixture) record(to schema.TopicID) (r record) {
	x.Helper()
	if len(x.published[to]) != 1 {
		x.Fatalf("%d records, want 1", len(x.published[to]))
	}
	if err := json.Unmarshal(x.published[to][0].Content, &r); err != nil {
		x.Fatal(err)
	}
	return r
}

func TestSubscriptionOfEvents(t *testing.T) {
	x := newFixture(t)
	if x.sub == nil || x.sub.State != schema.Active || x.sub.Attempts() != 3 || x.sub.Schedule()[1] != time.Minute || x.sub.Schedule()[2] != 2*time.Minute {
		t.Fatalf("subscription %+v", x.sub)
	}
	if topic := x.async.opts.Catalog.AnyTopic(x.f.Events); !topic.Internal {
		t.Errorf("topic %+v", topic)
	}
}

func TestSuccess(t *testing.T) {
	x := newFixture(t)
	if r := x.deliver(2, 0); r.Outcome != schema.Delivered {
		t.Fatalf("%+v", r)
	}
	r := x.record(x.won)
	if r.RequestContext != (requestContext{"r", x.f.ARN() + ":live", conditionSuccess, 2}) || string(r.RequestPayload) != `{"x":1}` || string(r.ResponsePayload) != `"well"` || len(x.published[x.lost]) > 0 {
		t.Errorf("record %+v", r)
	}
}

func TestRetries(t *testing.T) {
	x := newFixture(t)
	x.answer = &schema.Invoked{FunctionError: "Unhandled", Payload: []byte(`{"errorType":"T","errorMessage":"m"}`), Version: 1}
	for attempt := 1; attempt <= 3; attempt++ {
		if r := x.deliver(attempt, 0); r.Outcome != schema.Failed || (len(x.published[x.lost]) > 0) != (attempt == 3) {
			t.Errorf("attempt %d: %+v, %d records", attempt, r, len(x.published[x.lost]))
		}
	}
	if r := x.record(x.lost); r.RequestContext.Condition != conditionRetries || r.RequestContext.Invoked != 3 || r.ResponseContext.Error != "Unhandled" {
		t.Errorf("record %+v", r)
	}
}

func TestThrottled(t *testing.T) {
	x := newFixture(t)
	x.err = schema.Errorf(schema.Busy, "full").Retry(time.Second)
	for age, pause := range map[time.Duration]time.Duration{0: time.Second, 30 * time.Second: 30 * time.Second, 50 * time.Minute: throttledMax} {
		if r := x.deliver(1, age); r.Outcome != schema.Held || r.RetryAfter.Round(time.Second) != pause {
			t.Errorf("at age %v: %+v, want a pause of %v", age, r, pause)
		}
	}
	none := 0
	x.f.Reserved = &none
	if r := x.deliver(1, 0); r.Outcome != schema.Refused {
		t.Errorf("none reserved: %+v", r)
	}
}

func TestTooOld(t *testing.T) {
	x := newFixture(t)
	if r := x.deliver(1, time.Hour+time.Second); r.Outcome != schema.Refused || x.runs != 0 {
		t.Errorf("%+v, %d runs", r, x.runs)
	}
	if r := x.record(x.lost); r.RequestContext.Condition != conditionAge {
		t.Errorf("record %+v", r)
	}
}

// TestDestinationAway does not run the function again because its destination cannot be reached.
func TestDestinationAway(t *testing.T) {
	x := newFixture(t)
	x.broken = schema.Errorf(schema.Unavailable, "away")
	for range 3 {
		if r := x.deliver(1, 0); r.Outcome != schema.Held {
			t.Errorf("%+v", r)
		}
	}
	x.broken = nil
	if r := x.deliver(1, 0); r.Outcome != schema.Delivered || x.runs != 1 {
		t.Errorf("%+v after %d runs", r, x.runs)
	}
	x.record(x.won)
}

func TestRecordFits(t *testing.T) {
	x := newFixture(t)
	long, _ := json.Marshal(strings.Repeat("x", schema.ContentBytesMax))
	x.answer = &schema.Invoked{Payload: long, Version: 1}
	x.deliver(1, 0)
	if n := len(x.published[x.won][0].Content); n > schema.ContentBytesMax {
		t.Errorf("a record of %d bytes", n)
	}
	if err := x.async.Enqueue(t.Context(), x.f, &schema.Invocation{RequestID: "s", Payload: long}); schema.KindOf(err) != schema.TooLarge {
		t.Errorf("an event over the limit: %v", err)
	}
}
