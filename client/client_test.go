package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/internal/node"
	"github.com/handfast-mq/handfast/schema"
)

// wire keeps the last answer as it came.
type wire struct {
	mu   sync.Mutex
	last []byte
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	w.mu.Lock()
	w.last = body
	w.mu.Unlock()
	return resp, err
}

// cluster is a node in this process.
type cluster struct {
	t     *testing.T
	url   string
	wire  *wire
	admin *client.Client
}

func start(t *testing.T) *cluster {
	cfg := node.Default()
	cfg.Dir, cfg.Listen, cfg.Partitions, cfg.AllowPrivateTargets, cfg.Logger = t.TempDir(), "127.0.0.7:0", 8, true, slog.New(slog.DiscardHandler)
	n, err := node.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(context.Background()) })
	token, err := os.ReadFile(filepath.Join(cfg.Dir, node.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, url: n.URL(), wire: &wire{}}
	c.admin = c.as(strings.TrimSpace(string(token)))
	return c
}

func (c *cluster) as(token string) *client.Client {
	cl, err := client.New(client.Options{Server: c.url, Token: token, HTTP: &http.Client{Transport: c.wire}})
	if err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// whole checks that a value holds all that the last answer said: written again, it says the same.
func (c *cluster) whole(v any, under ...string) {
	c.t.Helper()
	var said map[string]any
	if err := json.Unmarshal(c.wire.last, &said); err != nil {
		c.t.Fatal(err)
	}
	delete(said, "status")
	delete(said, "num_receipients")
	var want any = said
	for _, name := range under {
		want = want.(map[string]any)[name]
	}
	text, err := json.Marshal(v)
	if err != nil {
		c.t.Fatal(err)
	}
	var got any
	json.Unmarshal(text, &got)
	if !reflect.DeepEqual(sameTimes(got), sameTimes(want)) {
		c.t.Errorf("%T\n has %s\nsaid %s", v, text, c.wire.last)
	}
}

// sameTimes writes times in one way.
func sameTimes(v any) any {
	switch v := v.(type) {
	case string:
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return at.UTC().Format(time.RFC3339Nano)
		}
	case []any:
		for i := range v {
			v[i] = sameTimes(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = sameTimes(v[k])
		}
	}
	return v
}

func must[T any](c *cluster) func(v T, err error) T {
	return func(v T, err error) T {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
		return v
	}
}

func (c *cluster) done(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestRoundTrip calls a real node with every method and holds what comes back against what was said.
func TestRoundTrip(t *testing.T) {
	c, ctx := start(t), t.Context()
	alice, err := c.user("alice")
	c.done(err)
	bob, err := c.user("bob")
	c.done(err)
	me := must[client.User](c)(bob.User(ctx, 0))
	c.whole(me)
	must[[]client.User](c)(c.admin.Users(ctx, client.Page{Limit: 10}))

	c.whole(must[client.Cluster](c)(c.admin.Cluster(ctx)))

	c.whole(must[[]client.Rule](c)(alice.Rules(ctx)), "rules")
	c.whole(must[[]client.Pattern](c)(alice.Patterns(ctx)), "patterns")
	c.whole(must[client.Rule](c)(alice.CreateRule(ctx, "mine", "words", "package handfast.rule\npublish := true")))
	c.whole(must[client.Pattern](c)(alice.CreatePattern(ctx, client.Pattern{Name: "two", Mode: schema.ModeAny, Guarantee: schema.AtLeastOnce, Ordered: true, AckLevel: "one"})))

	topic := must[client.Topic](c)(alice.CreateTopic(ctx, client.NewTopic{Name: "t", Rule: "approval", Pattern: "two", Partitions: 2, Retention: client.Seconds(time.Hour), Labels: map[string]string{"a": "b"}}))
	c.whole(topic)
	hours := client.Seconds(2 * time.Hour)
	topic = must[client.Topic](c)(alice.UpdateTopic(ctx, topic.ID, client.TopicChange{Retention: &hours}))
	if c.whole(topic); topic.Retention != hours {
		t.Errorf("retention is %v", topic.Retention)
	}
	c.whole(must[client.Topic](c)(alice.Topic(ctx, topic.ID)))
	c.whole(must[client.Topic](c)(alice.TopicNamed(ctx, 0, "t")))
	c.whole(must[[]client.Topic](c)(alice.Topics(ctx, topic.Owner, client.Page{})), "topics")
	c.done(alice.GrantPublish(ctx, topic.ID, me.ID))
	c.whole(must[[]client.Grant](c)(alice.Grants(ctx, topic.ID)), "grants")

	sub := c.subscriptions(alice, bob, topic)
	c.messages(alice, bob, topic, sub)
	c.done(alice.RevokePublish(ctx, topic.ID, me.ID))
	c.whole(must[client.Subscription](c)(bob.Unsubscribe(ctx, topic.ID, 0)))
	c.done(alice.DeleteTopic(ctx, topic.ID))
	c.tokens(bob, me)
}

func (c *cluster) user(name string) (*client.Client, error) {
	_, token, err := c.admin.CreateUser(c.t.Context(), client.NewUser{Name: name, Labels: map[string]string{"team": "red"}})
	return c.as(token.Token), err
}

func (c *cluster) subscriptions(alice, bob *client.Client, topic client.Topic) client.Subscription {
	ctx, one := c.t.Context(), must[client.Subscription](c)
	deadline, five := client.Seconds(time.Minute), 5
	terms := client.Terms{AckDeadline: &deadline, MaxOutstanding: &five, RetrySchedule: &[]client.Seconds{0, client.Seconds(time.Second)}}
	sub := one(bob.Subscribe(ctx, client.NewSubscription{Topic: topic.ID, Start: "earliest", Terms: terms}))
	if c.whole(sub); sub.State != schema.PendingPublisher || sub.AckDeadline != deadline {
		c.t.Errorf("subscribed: %+v", sub)
	}
	c.whole(one(alice.ApproveSubscription(ctx, sub.ID)))
	c.whole(one(bob.UpdateSubscription(ctx, sub.ID, client.Terms{Filter: json.RawMessage(`{"kind":["x"]}`)})))
	c.whole(one(bob.UpdateSubscription(ctx, sub.ID, client.Terms{Filter: json.RawMessage(`{}`)})))
	c.whole(one(bob.PauseSubscription(ctx, sub.ID, "lunch")))
	c.whole(one(bob.ResumeSubscription(ctx, sub.ID)))
	c.whole(one(bob.VerifySubscription(ctx, sub.ID)))
	c.whole(one(bob.Replay(ctx, sub.ID, "earliest")))
	c.whole(must[client.Progress](c)(bob.Subscription(ctx, sub.ID)))
	c.whole(must[client.Progress](c)(bob.SubscriptionOf(ctx, topic.ID, 0)))
	c.whole(must[[]client.Subscription](c)(bob.Subscriptions(ctx, client.SubscriptionFilter{State: schema.Active}, client.Page{})), "subscriptions")
	must[int](c)(alice.Redrive(ctx, sub.ID, 10))
	if _, err := bob.RotateSecret(ctx, sub.ID, nil); schema.KindOf(err) != schema.Conflict {
		c.t.Errorf("a new secret for who pulls: %v", err)
	}
	other := must[client.Topic](c)(alice.CreateTopic(ctx, client.NewTopic{Name: "other"}))
	refused := one(bob.Subscribe(ctx, client.NewSubscription{Topic: other.ID}))
	c.whole(one(alice.RejectSubscription(ctx, refused.ID, "no")))
	return sub
}

func (c *cluster) messages(alice, bob *client.Client, topic client.Topic, sub client.Subscription) {
	ctx := c.t.Context()
	m := client.Message{Content: []byte("hello <&> \u00fc"), Key: "k", Attributes: map[string]string{"kind": "x"}, IdempotencyKey: "once"}
	first := must[client.Published](c)(alice.Publish(ctx, topic.ID, m))
	c.whole(first)
	if again := must[client.Published](c)(alice.Publish(ctx, topic.ID, m)); again.ID != first.ID || !again.Duplicate {
		c.t.Errorf("published again: %+v, first %+v", again, first)
	}
	got := must[[]client.Delivery](c)(bob.Pull(ctx, client.Pull{Topic: topic.ID, Wait: 10 * time.Second}))
	if len(got) != 1 || got[0].ID != first.ID || string(got[0].Content) != string(m.Content) || got[0].Key != "k" || got[0].Attributes["kind"] != "x" {
		c.t.Fatalf("pulled %+v", got)
	}
	c.whole(got, "messages")
	receipts := client.Settle{Topic: topic.ID, Messages: []client.Receipt{got[0].Receipt()}}
	verdict := func(want schema.Verdict) func([]client.Settled, error) {
		return func(list []client.Settled, err error) {
			c.t.Helper()
			if c.done(err); len(list) != 1 || list[0].Message != first.ID || list[0].Result != want {
				c.t.Errorf("want %s, got %+v", want, list)
			}
		}
	}
	verdict(schema.Extended)(bob.Extend(ctx, receipts, 20*time.Second))
	verdict(schema.Returned)(bob.Nack(ctx, receipts, 0))
	got = must[[]client.Delivery](c)(bob.Pull(ctx, client.Pull{Topic: topic.ID, Max: 10, Wait: 10 * time.Second}))
	if len(got) != 1 || got[0].Attempt != 2 {
		c.t.Fatalf("pulled again %+v", got)
	}
	verdict(schema.Stale)(bob.Ack(ctx, receipts))
	receipts.Messages[0] = got[0].Receipt()
	verdict(schema.Acknowledged)(bob.Ack(ctx, receipts))
	c.whole(must[client.MessageStatus](c)(alice.MessageStatus(ctx, first.ID)))
	must[[]client.Attempt](c)(alice.Deliveries(ctx, first.ID, 0, 10))

	batch := []client.Message{{Content: []byte{0xff, 0}}, {Content: []byte("b"), Attributes: map[string]string{"no good": ""}}}
	if _, err := alice.PublishBatch(ctx, topic.ID, batch); schema.KindOf(err) != schema.Invalid {
		c.t.Errorf("a batch with a bad message: %v", err)
	}
	results := must[[]client.Published](c)(alice.PublishBatch(ctx, topic.ID, batch[:1]))
	got = must[[]client.Delivery](c)(bob.Pull(ctx, client.Pull{Topic: topic.ID, Max: 10, Wait: 10 * time.Second}))
	if len(got) != 1 || got[0].ID != results[0].ID || !bytes.Equal(got[0].Content, batch[0].Content) {
		c.t.Errorf("published %+v, pulled %+v", results, got)
	}
	c.whole(got, "messages")
}

func (c *cluster) tokens(bob *client.Client, me client.User) {
	ctx := c.t.Context()
	token := must[client.Token](c)(bob.RotateToken(ctx, 0, time.Hour, 24*time.Hour))
	c.whole(token)
	fresh := c.as(token.Token)
	c.whole(must[client.User](c)(fresh.User(ctx, me.ID)))
	c.done(fresh.RevokeToken(ctx, token.ID))
	if _, err := fresh.User(ctx, 0); schema.KindOf(err) != schema.Unauthenticated {
		c.t.Errorf("with a revoked token: %v", err)
	}
	c.whole(must[client.User](c)(c.admin.SetUserDisabled(ctx, me.ID, true)))
	if _, err := bob.User(ctx, 0); schema.KindOf(err) != schema.Unauthenticated {
		c.t.Errorf("a disabled user: %v", err)
	}
}

func TestErrorTellsKindStatusAndSentence(t *testing.T) {
	c := start(t)
	_, err := c.admin.Topic(t.Context(), 77)
	e, is := err.(*client.Error)
	if !is || e.Kind != schema.NotFound || e.Status != 404 || e.Detail == "" || fmt.Sprint(err) != e.Detail || schema.KindOf(err) != schema.NotFound {
		t.Errorf("got %#v", err)
	}
}
