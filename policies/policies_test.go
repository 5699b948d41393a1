package policies

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	if o.Timeout == 0 {
		o.Timeout = time.Minute // a busy machine is no refusal
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
		"expensive":   head + `decision := {"allow": count([1 | some i in numbers.range(1, 30000); some j in numbers.range(1, 30000); i * j == -1]) == 0}`,
		"plain false": head + `decision := {"allow": false, "reasons": ["no"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			o := withPolicy(t, text)
			if name == "expensive" {
				o.Timeout = timeoutDefault
			}
			a := newTest(t, o)
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

// Ten thousand rules of users are compiled, asked and bounded.
func TestManyRules(t *testing.T) {
	a := newTest(t, Options{})
	count := 10_000
	if testing.Short() {
		count = 1_000
	}
	for i := range count {
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
	a := newTest(t, withPolicy(t, b.String()))
	for id, want := range map[schema.TopicID]bool{0: true, 9_999: true, 10_000: false} {
		if d := a.Authorize(t.Context(), publish(stranger, &schema.Topic{ID: id}, nil)); d.Allow != want {
			t.Errorf("topic %d: %+v", id, d)
		}
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
