package policies

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/handfast-mq/handfast/schema"
)

var (
	owner    = &schema.User{ID: 2, Name: "owner"}
	stranger = &schema.User{ID: 5, Name: "stranger"}
	open     = &schema.BuiltinRules()[0]
	approval = &schema.BuiltinRules()[1]
	openT    = &schema.Topic{ID: 10, Name: "t", Owner: 2, Rule: schema.RuleOpen}
	closedT  = &schema.Topic{ID: 11, Name: "c", Owner: 2, Rule: schema.RuleApproval}
)

func newTest(t testing.TB, o Options) *Authorizer {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// withPolicy returns the options for a directory that holds one policy in place of the built-in one.
func withPolicy(t testing.TB, text string) Options {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "authz.rego", text)
	return Options{Dir: dir, Poll: -1}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func publish(u *schema.User, topic *schema.Topic, rule *schema.Rule) *schema.AuthRequest {
	return &schema.AuthRequest{Principal: u, Action: schema.ActionPublish, Topic: topic, Rule: rule}
}

func TestAuthorize(t *testing.T) {
	a := newTest(t, Options{})
	for range 2 { // evaluated, then cached
		if d := a.Authorize(t.Context(), publish(stranger, openT, open)); !d.Allow {
			t.Errorf("open topic: %v", d.Reasons)
		}
		d := a.Authorize(t.Context(), publish(stranger, closedT, approval))
		if d.Allow || len(d.Reasons) != 1 || !strings.Contains(d.Reasons[0], "grant") {
			t.Errorf("approval topic: %+v", d)
		}
		if d := a.Authorize(t.Context(), publish(stranger, closedT, open)); d.Allow {
			t.Error("a rule of another topic decided")
		}
		if d := a.Authorize(t.Context(), &schema.AuthRequest{Action: schema.ActionCreateTopic}); d.Allow {
			t.Error("nobody was allowed to create a topic")
		}
	}
}

// A user's rule cannot pass for a built-in one by its name.
func TestOwnRuleNamedOpen(t *testing.T) {
	a := newTest(t, Options{})
	r := &schema.Rule{ID: 100, Name: "open", Owner: 9, Rego: "package handfast.rule\npublish := false"}
	topic := &schema.Topic{ID: 1, Owner: 2, Rule: 100}
	if d := a.Authorize(t.Context(), publish(stranger, topic, r)); d.Allow {
		t.Error(d.Reasons)
	}
}

func TestFailsClosed(t *testing.T) {
	const head = "package handfast.authz\n"
	for name, text := range map[string]string{
		"undefined":   head + `decision := {"allow": true} if input.nothing`,
		"absent":      head + `other := true`,
		"not object":  head + `decision := true`,
		"no allow":    head + `decision := {"reasons": []}`,
		"string":      head + `decision := {"allow": "true"}`,
		"number":      head + `decision := {"allow": 1}`,
		"null":        head + `decision := {"allow": null}`,
		"array":       head + `decision := [{"allow": true}]`,
		"error":       head + `decision := {"allow": true} if not to_number("x") == 1`,
		"conflict":    head + "decision := {\"allow\": true} if input.action == \"publish\"\ndecision := {\"allow\": false} if input.as == 0",
		"expensive":   head + `decision := {"allow": count([1 | some i in numbers.range(1, 3000); some j in numbers.range(1, 3000); i * j == -1]) == 0}`,
		"plain false": head + `decision := {"allow": false, "reasons": ["no"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := newTest(t, withPolicy(t, text))
			for range 2 {
				d := a.Authorize(t.Context(), publish(owner, openT, open))
				if d.Allow || len(d.Reasons) == 0 {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

func TestCancelledIsRefused(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := newTest(t, Options{})
	if d := a.Authorize(ctx, publish(owner, openT, open)); d.Allow {
		t.Error("allowed without an evaluation")
	}
	if d := a.Authorize(t.Context(), publish(owner, openT, open)); !d.Allow {
		t.Error("the failure was cached:", d.Reasons)
	}
}

func TestNotLoadedIsRefused(t *testing.T) {
	a, err := newAuthorizer(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := a.Authorize(t.Context(), publish(owner, openT, open)); d.Allow || len(d.Reasons) == 0 {
		t.Errorf("%+v", d)
	}
}

func TestPanicIsRefused(t *testing.T) {
	a := newTest(t, Options{})
	v := *a.current.Load()
	v.query = rego.PreparedEvalQuery{} // panics when it is asked
	v.number++
	a.current.Store(&v)
	if d := a.Authorize(t.Context(), publish(owner, openT, open)); d.Allow || len(d.Reasons) == 0 {
		t.Errorf("%+v", d)
	}
}

func TestDecisionOf(t *testing.T) {
	allow := func(v any) *rego.ExpressionValue { return &rego.ExpressionValue{Value: map[string]any{"allow": v}} }
	one := rego.Result{Expressions: []*rego.ExpressionValue{allow(true)}}
	for name, c := range map[string]struct {
		results rego.ResultSet
		want    bool
	}{
		"one":             {rego.ResultSet{one}, true},
		"none":            {nil, false},
		"two":             {rego.ResultSet{one, one}, false},
		"two expressions": {rego.ResultSet{{Expressions: []*rego.ExpressionValue{allow(true), allow(true)}}}, false},
		"no expression":   {rego.ResultSet{{}}, false},
		"string":          {rego.ResultSet{{Expressions: []*rego.ExpressionValue{allow("true")}}}, false},
	} {
		if d, _ := decisionOf(c.results); d.Allow != c.want {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestReload(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := withPolicy(t, `package handfast.authz
decision := {"allow": true, "reasons": ["first"]}`)
	o.Registerer = registry
	a := newTest(t, o)
	reason := func() string {
		return a.Authorize(t.Context(), publish(stranger, closedT, approval)).Reasons[0]
	}
	if reason() != "first" {
		t.Fatal(reason())
	}
	for _, bad := range []string{"package", "package handfast.authz\ndecision := nowhere(1)", ""} {
		write(t, o.Dir, "authz.rego", bad)
		if err := a.Reload(t.Context()); err == nil || reason() != "first" {
			t.Errorf("%q: %v, %s", bad, err, reason())
		}
	}
	write(t, o.Dir, "authz.rego", "package handfast.authz\ndecision := {\"allow\": true, \"reasons\": [\"second\"]}")
	write(t, o.Dir, "authz_test.rego", "package handfast.authz_test\ntest_never if data.handfast.authz.decision.allow == false")
	if err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "test_never") || reason() != "first" {
		t.Errorf("a failing test: %v, %s", err, reason())
	}
	write(t, o.Dir, "authz_test.rego", "package handfast.authz_test\ntest_always if data.handfast.authz.decision.allow == true")
	if err := a.Reload(t.Context()); err != nil || reason() != "second" {
		t.Errorf("%v, %s", err, reason())
	}
	if n := testutil.ToFloat64(a.metrics.reloadFailed); n != 4 {
		t.Errorf("%v refused reloads counted", n)
	}
}

// A change of the directory takes effect without a call.
func TestWatch(t *testing.T) {
	o := withPolicy(t, `package handfast.authz
decision := {"allow": true, "reasons": ["first"]}`)
	o.Poll = time.Millisecond
	a := newTest(t, o)
	write(t, o.Dir, "authz.rego", "package handfast.authz\ndecision := {\"allow\": true, \"reasons\": [\"second\"]}")
	for a.Authorize(t.Context(), publish(stranger, openT, open)).Reasons[0] != "second" {
		if t.Context().Err() != nil {
			t.Fatal("never")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestBundle(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ".manifest", `{"revision": "1", "roots": ["handfast", "teams"]}`)
	write(t, dir, "data.json", `{"teams": {"red": [5]}}`)
	write(t, dir, "p.rego", `package handfast.authz
default decision := {"allow": false, "reasons": ["not red"]}
decision := {"allow": true, "reasons": ["red"]} if input.principal.id in data.teams.red`)
	a := newTest(t, Options{Dir: dir, Poll: -1})
	if d := a.Authorize(t.Context(), publish(stranger, openT, open)); !d.Allow {
		t.Error(d.Reasons)
	}
	if d := a.Authorize(t.Context(), publish(owner, openT, open)); d.Allow {
		t.Error(d.Reasons)
	}
}

func TestArchive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	pack := func(text string) {
		t.Helper()
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := bundle.Bundle{Data: map[string]any{}, Modules: []bundle.ModuleFile{{URL: "/p.rego", Path: "/p.rego", Raw: []byte(text)}}}
		if err := bundle.NewWriter(f).UseModulePath(true).Write(b); err != nil {
			t.Fatal(err)
		}
	}
	pack("package handfast.authz\ndecision := {\"allow\": input.grant, \"reasons\": []}")
	a := newTest(t, Options{Dir: file, Poll: -1})
	r := publish(stranger, openT, open)
	if d := a.Authorize(t.Context(), r); d.Allow {
		t.Error(d.Reasons)
	}
	pack("package handfast.authz\ndecision := {\"allow\": true, \"reasons\": []}")
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := a.Authorize(t.Context(), r); !d.Allow {
		t.Error(d.Reasons)
	}
	if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Reload(t.Context()); err == nil || !a.Authorize(t.Context(), r).Allow {
		t.Errorf("a broken archive: %v", err)
	}
}

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
	for i := range 3000 {
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

// nouns draws requests from few values, so that they repeat and are found in the cache.
type nouns struct {
	rnd           *rand.Rand
	users         []*schema.User
	topics        []*schema.Topic
	rules         []*schema.Rule
	subscriptions []*schema.Subscription
}

func newNouns(rnd *rand.Rand) *nouns {
	n := &nouns{rnd: rnd, users: []*schema.User{nil}, topics: []*schema.Topic{nil}, subscriptions: []*schema.Subscription{nil}}
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
	field := pick(n.rnd, []string{"principal", "action", "as", "topic", "grant", "subscription", "user", "function", "by", "invokers"})
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
		r.Invokers = [][]schema.UserID{nil, {1, 2}, {3}}[n.rnd.IntN(3)]
	}
	return field
}

// Ten thousand rules of users are compiled, asked and bounded.
func TestManyRules(t *testing.T) {
	a := newTest(t, Options{})
	for i := range 10_000 {
		r := &schema.Rule{ID: schema.RuleFirstOwn + schema.RuleID(i), Name: "own",
			Rego: fmt.Sprintf("package handfast.rule\npublish if input.topic.id == %d", i)}
		topic := &schema.Topic{ID: schema.TopicID(i - i%2), Owner: 2, Rule: r.ID}
		if d := a.Authorize(t.Context(), publish(stranger, topic, r)); d.Allow != (i%2 == 0) {
			t.Fatalf("rule %d: %+v", i, d)
		}
	}
	if n := a.rules.Len(); n > rulesMax {
		t.Errorf("%d rules are kept", n)
	}
}

// A policy with ten thousand rules answers within its deadline.
func TestLargePolicy(t *testing.T) {
	var b strings.Builder
	b.WriteString("package handfast.authz\ndefault decision := {\"allow\": false, \"reasons\": [\"no\"]}\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "decision := {\"allow\": true, \"reasons\": [\"yes\"]} if input.topic.id == %d\n", i)
	}
	o := withPolicy(t, b.String())
	o.Timeout = time.Minute
	a := newTest(t, o)
	for id, want := range map[schema.TopicID]bool{0: true, 9_999: true, 10_000: false} {
		if d := a.Authorize(t.Context(), publish(stranger, &schema.Topic{ID: id}, nil)); d.Allow != want {
			t.Errorf("topic %d: %+v", id, d)
		}
	}
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

func TestLog(t *testing.T) {
	var out bytes.Buffer
	a := newTest(t, Options{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), LogAllowed: true})
	a.Authorize(t.Context(), publish(stranger, openT, open))
	for range 3 * linesPerSecond {
		a.Authorize(t.Context(), publish(stranger, closedT, approval))
	}
	for _, want := range []string{"level=DEBUG msg=allowed", "level=INFO msg=refused", "user_id=5", "topic_id=11", "action=publish", "grant"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
	if n := strings.Count(out.String(), "\n"); n > 2*linesPerSecond {
		t.Errorf("%d lines", n)
	}
}

func TestMetrics(t *testing.T) {
	a := newTest(t, Options{Registerer: prometheus.NewRegistry()})
	for range 3 {
		a.Authorize(t.Context(), publish(stranger, closedT, approval))
	}
	if n := testutil.ToFloat64(a.metrics.decisions[schema.ActionPublish].denied); n != 3 {
		t.Errorf("%v refusals counted", n)
	}
	if n := testutil.ToFloat64(a.metrics.hits); n != 2 {
		t.Errorf("%v hits counted", n)
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
