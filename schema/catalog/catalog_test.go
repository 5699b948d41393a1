package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

var ctx = context.Background()

func open(t *testing.T, store schema.Store) *Catalog {
	t.Helper()
	c, err := Open(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fresh(t *testing.T) (*Catalog, schema.Store) {
	t.Helper()
	store := storetest.NewMemory()
	c := open(t, store)
	if made, err := c.Init(ctx, schema.Cluster{Partitions: 8}, NewToken()); !made || err != nil {
		t.Fatal(made, err)
	}
	return c, store
}

func user(t *testing.T, c *Catalog, name string) schema.UserID {
	t.Helper()
	u, _, _, err := c.CreateUser(ctx, schema.User{Name: name}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return u.ID
}

func topic(t *testing.T, c *Catalog, owner schema.UserID, name string) *schema.Topic {
	t.Helper()
	made, err := c.CreateTopic(ctx, schema.Topic{Name: name, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestInitOnce(t *testing.T) {
	c, store := fresh(t)
	if made, err := c.Init(ctx, schema.Cluster{Partitions: 16}, NewToken()); made || err != nil {
		t.Fatal(made, err)
	}
	if again := open(t, store); again.Cluster().Partitions != 8 || !again.User(1).HasRole(schema.RoleAdmin) {
		t.Fatal("the cluster changed")
	}
}

func TestTokens(t *testing.T) {
	c, _ := fresh(t)
	u, _, token, err := c.CreateUser(ctx, schema.User{Name: "ann"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	valid := func(token string, at time.Time, want bool) {
		t.Helper()
		if got := c.Authenticate([]byte(token), at); (got != nil) != want || got != nil && got.ID != u.ID {
			t.Fatalf("authenticated: %v, want %v", got, want)
		}
	}
	valid(token, now, true)
	valid(token+"x", now, false)
	valid("", now, false)
	_, second, err := c.RotateToken(ctx, u.ID, time.Hour, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	valid(token, now, true)
	valid(second, now, true)
	valid(token, now.Add(2*time.Hour), false)
	third, thirdToken, err := c.RotateToken(ctx, u.ID, 0, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	valid(second, now, false)
	valid(thirdToken, now, true)
	valid(thirdToken, now.Add(time.Hour), false)
	if err := c.RevokeToken(ctx, third.ID); err != nil {
		t.Fatal(err)
	}
	valid(thirdToken, now, false)
	_, last, err := c.RotateToken(ctx, u.ID, 0, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetUserDisabled(ctx, u.ID, true); err != nil {
		t.Fatal(err)
	}
	valid(last, now, false)
	for range 2 * tokensMax {
		_, _, err = c.RotateToken(ctx, u.ID, time.Hour, time.Time{})
	}
	if schema.KindOf(err) != schema.Conflict {
		t.Fatal("tokens without end", err)
	}
}

func TestConsentOfBothSides(t *testing.T) {
	c, _ := fresh(t)
	shop, billing := user(t, c, "shop"), user(t, c, "billing")
	orders := topic(t, c, shop, "orders")
	hook := schema.Target{Type: schema.TargetWebhook, URL: "https://example.com/"}
	s, err := c.Subscribe(ctx, schema.Subscription{Topic: orders.ID, Consumer: billing, Target: hook}, false, false)
	if err != nil || s.State != schema.PendingPublisher || s.Challenge == "" {
		t.Fatalf("%+v %v", s, err)
	}
	if again, err := c.Subscribe(ctx, schema.Subscription{Topic: orders.ID, Consumer: billing, Target: hook}, false, false); err != nil || again.ID != s.ID {
		t.Fatal("the same call again", again, err)
	}
	if _, err := c.Subscribe(ctx, schema.Subscription{Topic: orders.ID, Consumer: billing}, true, true); schema.KindOf(err) != schema.Conflict {
		t.Fatal("another agreement beside it", err)
	}
	if s, err = c.Approve(ctx, s.ID); err != nil || s.State != schema.PendingConsumer {
		t.Fatalf("%+v %v", s, err)
	}
	if _, err := c.Consent(ctx, s.ID, "guess"); schema.KindOf(err) != schema.NotFound {
		t.Fatal("a guessed challenge", err)
	}
	if c.Challenged(s.Challenge) != s {
		t.Fatal("the challenge is not found")
	}
	if s, err = c.Consent(ctx, s.ID, s.Challenge); err != nil || s.State != schema.Active || s.ActiveAt.IsZero() || s.Challenge != "" {
		t.Fatalf("%+v %v", s, err)
	}
	if s, err = c.Pause(ctx, s.ID, "lunch"); err != nil || s.State != schema.Paused {
		t.Fatalf("%+v %v", s, err)
	}
	if s, err = c.Resume(ctx, s.ID); err != nil || s.State != schema.Active {
		t.Fatalf("%+v %v", s, err)
	}
	s, err = c.UpdateSubscription(ctx, s.ID, func(s *schema.Subscription) { s.Target.URL = "https://example.org/" })
	if err != nil || s.State != schema.PendingConsumer || s.Challenge == "" {
		t.Fatalf("another address needs another consent: %+v %v", s, err)
	}
	if s, err = c.Reject(ctx, s.ID, "no"); err != nil || s.State != schema.Rejected {
		t.Fatalf("%+v %v", s, err)
	}
	if _, err := c.Approve(ctx, s.ID); schema.KindOf(err) != schema.Conflict {
		t.Fatal("what is over stays over", err)
	}
	if next, err := c.Subscribe(ctx, schema.Subscription{Topic: orders.ID, Consumer: billing}, true, true); err != nil || next.ID == s.ID || next.State != schema.Active {
		t.Fatalf("a new agreement: %+v %v", next, err)
	}
	if c.Subscription(s.ID) != nil {
		t.Fatal("the former one is still there")
	}
}

func TestDeletingATopicEndsWhatHangsOnIt(t *testing.T) {
	c, _ := fresh(t)
	shop, billing := user(t, c, "shop"), user(t, c, "billing")
	orders := topic(t, c, shop, "orders")
	s, err := c.Subscribe(ctx, schema.Subscription{Topic: orders.ID, Consumer: billing}, true, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Grant(ctx, orders.ID, billing); err != nil {
		t.Fatal(err)
	}
	var events []Event
	c.Watch(func(_ context.Context, e Event) { events = append(events, e) })
	before := c.Revision()
	if err := c.DeleteTopic(ctx, orders.ID); err != nil {
		t.Fatal(err)
	}
	if c.Revision() != before+1 || len(events) != 3 {
		t.Fatalf("%d revisions, %d events: want one change of three nouns", c.Revision()-before, len(events))
	}
	gone, _, _ := c.Topic(orders.ID)
	if gone != nil || c.Granted(orders.ID, billing) || c.Subscription(s.ID).State != schema.Ended {
		t.Fatal("something is left")
	}
	if next := topic(t, c, shop, "orders"); next.ID == orders.ID {
		t.Fatal("an identifier was given twice")
	}
}

func TestBadTopicsAndSubscriptionsAreRefusedAndChangeNothing(t *testing.T) {
	c, _ := fresh(t)
	shop := user(t, c, "shop")
	orders := topic(t, c, shop, "orders")
	before := c.Revision()
	for name, bad := range map[string]schema.Topic{
		"no name":                {Owner: shop},
		"a strange name":         {Owner: shop, Name: "a\nb"},
		"a long name":            {Owner: shop, Name: strings.Repeat("x", 200)},
		"no owner":               {Name: "x", Owner: 999},
		"too many partitions":    {Owner: shop, Name: "x", Partitions: 9},
		"no such rule":           {Owner: shop, Name: "x", Rule: 77},
		"no such pattern":        {Owner: shop, Name: "x", Pattern: 77},
		"a short retention":      {Owner: shop, Name: "x", RetentionTime: time.Second},
		"no such dead letters":   {Owner: shop, Name: "x", DeadLetter: 77},
		"a name that is taken":   {Owner: shop, Name: "orders"},
		"negative retention":     {Owner: shop, Name: "x", RetentionBytes: -1},
		"someone's dead letters": {Owner: 1, Name: "x", DeadLetter: orders.ID},
	} {
		if _, err := c.CreateTopic(ctx, bad); err == nil || schema.KindOf(err) == schema.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]schema.Subscription{
		"a short deadline":   {AckDeadline: time.Second},
		"a large window":     {MaxOutstanding: schema.OutstandingMax + 1},
		"attempts":           {MaxAttempts: 1000},
		"an odd guarantee":   {Guarantee: "often"},
		"a broken filter":    {Filter: []byte(`{"a": 1}`)},
		"a long retry delay": {RetrySchedule: []time.Duration{48 * time.Hour}},
		"its own dead":       {DeadLetter: orders.ID},
		"batches by webhook": {Target: schema.Target{Type: schema.TargetWebhook, BatchSize: 10}},
		"an odd target":      {Target: schema.Target{Type: "pigeon"}},
	} {
		bad.Topic, bad.Consumer = orders.ID, shop
		if _, err := c.Subscribe(ctx, bad, true, true); schema.KindOf(err) != schema.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.Revision() != before {
		t.Fatal("a refused call changed something")
	}
}

// TestWritersOnSeveralNodes lets replicas race on one log: every change is there once, and all replicas come to the same.
func TestWritersOnSeveralNodes(t *testing.T) {
	first, store := fresh(t)
	nodes := []*Catalog{first, open(t, store), open(t, store)}
	var writers sync.WaitGroup
	for n, c := range nodes {
		writers.Go(func() {
			for i := range 20 {
				if _, _, _, err := c.CreateUser(ctx, schema.User{Name: fmt.Sprintf("u%d-%d", n, i)}, time.Time{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	for _, c := range nodes {
		if err := c.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if users := c.Users(0, 1000); len(users) != 61 {
			t.Fatalf("%d users, want 61", len(users))
		}
	}
}

func TestACheckpointCarriesEverything(t *testing.T) {
	c, store := fresh(t)
	shop := user(t, c, "shop")
	orders := topic(t, c, shop, "orders")
	if err := c.Grant(ctx, orders.ID, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe(ctx, schema.Subscription{Topic: orders.ID, Consumer: 1}, true, true); err != nil {
		t.Fatal(err)
	}
	c.mu.RLock()
	records := c.state.records()
	c.mu.RUnlock()
	if err := store.SaveCheckpoint(ctx, c.Revision(), records); err != nil {
		t.Fatal(err)
	}
	again := open(t, store)
	if again.Revision() != c.Revision() || !again.Granted(orders.ID, 1) || again.SubscriptionOf(orders.ID, 1) == nil || again.TopicNamed(shop, "orders") == nil {
		t.Fatal("something is missing after the checkpoint")
	}
	if next := user(t, again, "later"); next <= schema.UserID(c.SubscriptionOf(orders.ID, 1).ID) {
		t.Fatal("identifiers begin anew after a checkpoint")
	}
}

func TestAnUnknownOutcomeIsSettled(t *testing.T) {
	inner := storetest.NewMemory()
	store := storetest.Faulty(inner)
	c := open(t, store)
	if _, err := c.Init(ctx, schema.Cluster{Partitions: 8}, NewToken()); err != nil {
		t.Fatal(err)
	}
	store.Plan(storetest.Fault{Method: "AppendChange", Nth: 1, Times: 1, Harm: storetest.LoseAnswer})
	if id := user(t, c, "made and not told"); c.User(id) == nil {
		t.Fatal("the user is missing")
	}
	store.Plan(storetest.Fault{Method: "AppendChange", Nth: 1, Times: 1, Harm: storetest.Fail})
	before := c.Revision()
	if _, _, _, err := c.CreateUser(ctx, schema.User{Name: "not made"}, time.Time{}); schema.KindOf(err) != schema.Unavailable {
		t.Fatal(err)
	}
	if c.Revision() != before {
		t.Fatal("a change that failed is there")
	}
	c.Barrier = func(context.Context, schema.Revision) error { return errors.New("a node does not answer") }
	if _, _, _, err := c.CreateUser(ctx, schema.User{Name: "made but not in force everywhere"}, time.Time{}); schema.KindOf(err) != schema.Unknown {
		t.Fatal(err)
	}
}
