package policies

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/schema"
)

// Policies that look at the request or the clock are not cached; the rest are.
func TestVolatile(t *testing.T) {
	for body, want := range map[string]bool{
		`decision := {"allow": input.request.tls}`:                                      true,
		`decision := {"allow": true} if time.now_ns() > 0`:                              true,
		"x := input\ndecision := {\"allow\": x.request.tls}":                            true,
		`decision := {"allow": input[k]} if k := "grant"`:                               true,
		`decision := {"allow": count([v | walk(input, v)]) > 0}`:                        true,
		"import input.request as q\ndecision := {\"allow\": q.tls}":                     true,
		`decision := {"allow": input.grant}`:                                            false,
		`decision := {"allow": input.topic.labels["request"] == "x"}`:                   false,
		"f(x) := x.tls\ndecision := {\"allow\": f(input.request)}":                      true,
		`decision := {"allow": every_one} ` + "\nevery_one if rand.intn(\"x\", 2) == 1": true,
	} {
		a := newTest(t, withPolicy(t, "package handfast.authz\n"+body))
		if got := a.current.Load().volatile; got != want {
			t.Errorf("%s: volatile is %v", body, got)
		}
	}
}

func TestVolatileIsAskedAgain(t *testing.T) {
	a := newTest(t, withPolicy(t, "package handfast.authz\ndecision := {\"allow\": input.request.tls, \"reasons\": []}"))
	r := publish(owner, openT, open)
	for _, tls := range []bool{true, false, true} {
		r.TLS = tls
		if d := a.Authorize(t.Context(), r); d.Allow != tls {
			t.Errorf("tls %v: %+v", tls, d)
		}
	}
}

// Whatever part of a request is changed: the cached decision is the uncached one.
func TestCacheKey(t *testing.T) {
	cached, plain := newTest(t, Options{}), newTest(t, Options{CacheSize: -1})
	rnd := rand.New(rand.NewPCG(1, 2))
	nouns := newNouns(rnd)
	r := nouns.request()
	changedDecisions := 0
	for i := range 4000 {
		before := plain.Authorize(t.Context(), r)
		field := nouns.change(r)
		want, got := plain.Authorize(t.Context(), r), cached.Authorize(t.Context(), r)
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("step %d, %s changed: cached %+v, want %+v, for %+v", i, field, got, want, r)
		}
		if want.Allow != before.Allow {
			changedDecisions++
		}
	}
	if changedDecisions < 150 {
		t.Errorf("only %d changes mattered", changedDecisions)
	}
	if cached.cache.Len() == 0 {
		t.Error("nothing was cached")
	}
}

// A list that begins at the same address with another length is another list.
func TestInvokersInCacheKey(t *testing.T) {
	a := newTest(t, Options{})
	invokers := []schema.UserID{1, stranger.ID}
	for n, want := range []bool{false, false, true, false} {
		r := &schema.AuthRequest{Principal: stranger, Action: schema.ActionInvokeFunc, Function: "f", FunctionBy: 9, Invokers: invokers[:n%3]}
		if d := a.Authorize(t.Context(), r); d.Allow != want {
			t.Errorf("%v: %+v", r.Invokers, d)
		}
	}
}

// nouns draws requests from few values, so that they repeat and are found in the cache.
type nouns struct {
	rnd           *rand.Rand
	users         []*schema.User
	topics        []*schema.Topic
	rules         []*schema.Rule
	subscriptions []*schema.Subscription
	invokers      []schema.UserID
}

func newNouns(rnd *rand.Rand) *nouns {
	n := &nouns{rnd: rnd, users: []*schema.User{nil}, topics: []*schema.Topic{nil}, subscriptions: []*schema.Subscription{nil},
		invokers: []schema.UserID{1, 2, 3}}
	for id := range schema.UserID(4) {
		n.users = append(n.users, &schema.User{ID: id}, &schema.User{ID: id, Disabled: true}, &schema.User{ID: id, Roles: []string{"admin"}})
	}
	for i := range schema.BuiltinRules() {
		n.rules = append(n.rules, &schema.BuiltinRules()[i])
	}
	n.rules = append(n.rules, &schema.Rule{ID: 100, Name: "own", Rego: "package handfast.rule\npublish if input.principal.id == 3\nsubscribe if not input.grant"})
	for i, r := range n.rules {
		for o := range schema.UserID(4) {
			n.topics = append(n.topics, &schema.Topic{ID: schema.TopicID(i), Owner: o, Rule: r.ID})
		}
	}
	for id := range schema.UserID(4) {
		n.subscriptions = append(n.subscriptions, &schema.Subscription{Consumer: id, State: schema.Active}, &schema.Subscription{Consumer: id, State: schema.Ended})
	}
	return n
}

func pick[T any](rnd *rand.Rand, list []T) T { return list[rnd.IntN(len(list))] }

func (n *nouns) request() *schema.AuthRequest {
	return &schema.AuthRequest{Principal: n.users[4], Action: schema.ActionPublish, Topic: n.topics[1], Rule: n.rules[0]}
}

func (n *nouns) change(r *schema.AuthRequest) string {
	field := pick(n.rnd, []string{"principal", "action", "as", "topic", "rule", "grant", "subscription", "user", "function", "by", "invokers"})
	switch field {
	case "principal":
		r.Principal = pick(n.rnd, n.users)
	case "action":
		r.Action = pick(n.rnd, actions)
	case "as":
		r.As = schema.UserID(max(0, n.rnd.IntN(8)-4))
	case "topic":
		r.Topic, r.Rule = pick(n.rnd, n.topics), pick(n.rnd, n.rules)
		for _, rule := range n.rules {
			if r.Topic != nil && rule.ID == r.Topic.Rule {
				r.Rule = rule
			}
		}
	case "rule": // one that is not the topic's own decides nothing
		r.Rule = pick(n.rnd, n.rules)
	case "grant":
		r.Granted = !r.Granted
	case "subscription":
		r.Subscription = pick(n.rnd, n.subscriptions)
	case "user":
		r.User = pick(n.rnd, n.users)
	case "function":
		r.Function = pick(n.rnd, []string{"", "f"})
	case "by":
		r.FunctionBy = schema.UserID(n.rnd.IntN(4))
	case "invokers":
		r.Invokers = n.invokers[:n.rnd.IntN(len(n.invokers)+1)]
	}
	return field
}

func TestConcurrent(t *testing.T) {
	a := newTest(t, Options{CacheSize: 8})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			n := newNouns(rand.New(rand.NewPCG(uint64(g), 1)))
			r := n.request()
			for range 100 {
				n.change(r)
				a.Authorize(context.Background(), r)
			}
			if err := a.Reload(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := a.cache.Len(); n > 8 {
		t.Errorf("%d decisions are kept", n)
	}
}

func BenchmarkCached(b *testing.B) {
	a := newTest(b, Options{Registerer: prometheus.NewRegistry()})
	r := publish(stranger, openT, open)
	b.ReportAllocs()
	for b.Loop() {
		if !a.Authorize(b.Context(), r).Allow {
			b.Fatal("refused")
		}
	}
}

func BenchmarkEvaluated(b *testing.B) {
	a := newTest(b, Options{CacheSize: -1})
	r := publish(stranger, openT, open)
	b.ReportAllocs()
	for b.Loop() {
		if !a.Authorize(b.Context(), r).Allow {
			b.Fatal("refused")
		}
	}
}
