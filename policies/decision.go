package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/handfast-mq/handfast/schema"
)

// decisionOf allows only on exactly one object whose allow is the literal true.
func decisionOf(results rego.ResultSet) (d schema.Decision, err error) {
	if len(results) == 0 {
		return refuse("the policy has no answer"), errors.New("the decision is undefined")
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return refuse("the policy has more than one answer"), fmt.Errorf("%d results", len(results))
	}
	object, ok := results[0].Expressions[0].Value.(map[string]any)
	if !ok {
		return refuse("the policy's answer is malformed"), errors.New("the decision is no object")
	}
	allow, ok := object["allow"].(bool)
	if !ok {
		return refuse("the policy's answer is malformed"), errors.New("allow is no boolean")
	}
	d = schema.Decision{Allow: allow}
	reasons, _ := object["reasons"].([]any)
	for _, r := range reasons {
		if s, ok := r.(string); ok && len(d.Reasons) < reasonsMax {
			d.Reasons = append(d.Reasons, clip(s))
		}
	}
	if d.Limits, err = limitsOf(object["limits"]); err != nil {
		return refuse("the policy's answer is malformed"), err
	}
	return d, nil
}

// limitsOf reads what a decision says of limits, if anything: an object whose members are known and numbers above 0.
func limitsOf(says any) (l schema.Limits, err error) {
	if says == nil {
		return l, nil
	}
	object, ok := says.(map[string]any)
	if !ok {
		return l, errors.New("limits is no object")
	}
	for name, value := range object {
		number, _ := value.(json.Number)
		n, err := number.Float64()
		if err != nil || !(n > 0) || n > limitMax {
			return l, fmt.Errorf("the limit %q is no number above 0", clip(name))
		}
		switch name {
		case "content_bytes":
			l.ContentBytes = max(int(n), 1)
		case "rate":
			l.Rate = n
		default:
			return l, fmt.Errorf("there is no limit %q", clip(name))
		}
	}
	return l, nil
}

const (
	reasonsMax     = 16
	reasonBytesMax = 256
	limitMax       = 1e9
)

func clip(s string) string {
	if len(s) > reasonBytesMax {
		return strings.ToValidUTF8(s[:reasonBytesMax], "") + "…"
	}
	return s
}
