package policies

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

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
