package policies

import (
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/handfast-mq/handfast/schema"
)

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

func TestLimits(t *testing.T) {
	for text, want := range map[string]schema.Limits{
		`{}`:                                   {},
		`{"rate": 2.5}`:                        {Rate: 2.5},
		`{"content_bytes": 10, "rate": 100}`:   {ContentBytes: 10, Rate: 100},
		`{"content_bytes": count(input.as_y)}`: {}, // undefined: the policy says nothing of limits, and so nothing at all
	} {
		a := newTest(t, withPolicy(t, "package handfast.authz\ndecision := {\"allow\": true, \"limits\": object.union("+text+", {})}"))
		d := a.Authorize(t.Context(), publish(owner, openT, open))
		if again := a.Authorize(t.Context(), publish(owner, openT, open)); again.Limits != d.Limits {
			t.Errorf("%s: cached %+v, at first %+v", text, again, d)
		}
		if d.Limits != want || d.Allow == (text == `{"content_bytes": count(input.as_y)}`) {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// Limits that nobody understands are no grounds to allow without any.
func TestMalformedLimitsAreRefused(t *testing.T) {
	for _, text := range []string{`5`, `[]`, `"x"`, `{"rates": 5}`, `{"rate": "5"}`, `{"rate": 0}`, `{"rate": -1}`, `{"rate": 1e10}`, `{"content_bytes": true}`, `{"rate": null}`} {
		a := newTest(t, withPolicy(t, "package handfast.authz\ndecision := {\"allow\": true, \"limits\": "+text+"}"))
		if d := a.Authorize(t.Context(), publish(owner, openT, open)); d.Allow || len(d.Reasons) == 0 {
			t.Errorf("%s: %+v", text, d)
		}
	}
}
