// Package filter decides which messages a subscription gets, in the form that users of SNS know: an object of
// conditions that must all hold, each an array of alternatives.
//
//	{"type": ["order.created", {"prefix": "refund."}], "content": {"amount": [{"numeric": [">=", 100]}]}}
//
// Top-level names are message attributes; under "content" they are members of the message's JSON content, nested as there.
// Alternatives are a string, number, boolean or null, or one of prefix, suffix, equals-ignore-case, anything-but,
// numeric, exists. Where the content has an array, one of its elements has to match.
package filter

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/handfast-mq/handfast/schema"
)

const (
	conditionsMax = 100
	depthMax      = 8
)

// Filter is a compiled filter. It is safe for concurrent use.
type Filter struct {
	attributes []condition
	content    *object
}

type object struct {
	leaves  []condition
	objects map[string]*object
}

type condition struct {
	name         string
	alternatives []alternative
}

// Compile reads a filter; nothing or null gives nil, which lets everything pass.
func Compile(raw []byte) (*Filter, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > schema.FilterBytesMax {
		return nil, schema.Errorf(schema.Invalid, "the filter has more than %d bytes", schema.FilterBytesMax)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, schema.Errorf(schema.Invalid, "the filter is not a JSON object")
	}
	f, c := &Filter{}, &compiler{}
	for name, value := range top {
		if err := f.add(c, name, value); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Filter) add(c *compiler, name string, value json.RawMessage) error {
	if isObject(value) {
		o, err := c.object(name, value, 1)
		switch {
		case err != nil:
			return err
		case name == "content":
			f.content = o
			return nil
		case name == "attributes" && len(o.objects) == 0:
			f.attributes = append(f.attributes, o.leaves...)
			return nil
		}
		return schema.Errorf(schema.Invalid, "filter: %q must be an array of alternatives", name)
	}
	cond, err := c.condition(name, value)
	if err == nil {
		f.attributes = append(f.attributes, cond)
	}
	return err
}

// Match tells whether a message passes. A nil filter lets everything pass. It never fails: content that is not JSON has no members.
func (f *Filter) Match(m *schema.Message) bool {
	if f == nil {
		return true
	}
	for i := range f.attributes {
		if !f.attributes[i].matchAttribute(m.Attributes) {
			return false
		}
	}
	if f.content == nil {
		return true
	}
	var doc any
	d := json.NewDecoder(bytes.NewReader(m.Content))
	d.UseNumber()
	if d.Decode(&doc) != nil {
		doc = nil
	}
	members, _ := doc.(map[string]any)
	return f.content.match(members)
}

func (c *condition) matchAttribute(attributes []schema.Attribute) bool {
	for _, a := range attributes {
		if a.Name == c.name {
			return c.matchValue(a.Value, true)
		}
	}
	return c.matchValue(nil, false)
}

func (o *object) match(members map[string]any) bool {
	for i := range o.leaves {
		value, found := members[o.leaves[i].name]
		if !o.leaves[i].matchValue(value, found) {
			return false
		}
	}
	for name, inner := range o.objects {
		nested, _ := members[name].(map[string]any)
		if !inner.match(nested) {
			return false
		}
	}
	return true
}

func (c *condition) matchValue(value any, found bool) bool {
	if list, ok := value.([]any); ok && found {
		for _, v := range list {
			if c.matchOne(v, true) {
				return true
			}
		}
		return false
	}
	return c.matchOne(value, found)
}

func (c *condition) matchOne(value any, found bool) bool {
	for _, a := range c.alternatives {
		if a(value, found) {
			return true
		}
	}
	return false
}

// alternative tells whether one value matches; found is false when there is none.
type alternative func(value any, found bool) bool

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}

type compiler struct{ conditions int }

func (c *compiler) object(path string, raw json.RawMessage, depth int) (*object, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || depth > depthMax {
		return nil, schema.Errorf(schema.Invalid, "filter: %q is not an object of at most %d levels", path, depthMax)
	}
	o := &object{objects: map[string]*object{}}
	for name, value := range members {
		if isObject(value) {
			inner, err := c.object(path+"."+name, value, depth+1)
			if err != nil {
				return nil, err
			}
			o.objects[name] = inner
			continue
		}
		leaf, err := c.condition(name, value)
		if err != nil {
			return nil, err
		}
		o.leaves = append(o.leaves, leaf)
	}
	return o, nil
}

func (c *compiler) condition(name string, raw json.RawMessage) (condition, error) {
	if c.conditions++; c.conditions > conditionsMax {
		return condition{}, schema.Errorf(schema.Invalid, "the filter has more than %d conditions", conditionsMax)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var list []any
	if err := d.Decode(&list); err != nil || len(list) == 0 {
		return condition{}, schema.Errorf(schema.Invalid, "filter: %q must be an array of one or more alternatives", name)
	}
	out := condition{name: name}
	for _, item := range list {
		a, err := compileAlternative(name, item)
		if err != nil {
			return condition{}, err
		}
		out.alternatives = append(out.alternatives, a)
	}
	return out, nil
}

func compileAlternative(name string, item any) (alternative, error) {
	object, ok := item.(map[string]any)
	if !ok {
		if _, isList := item.([]any); isList {
			return nil, schema.Errorf(schema.Invalid, "filter: %q has an array within its alternatives", name)
		}
		return exactly(item), nil
	}
	if len(object) == 1 {
		for operator, operand := range object {
			if a := compileOperator(operator, operand); a != nil {
				return a, nil
			}
		}
	}
	return nil, schema.Errorf(schema.Invalid, "filter: %q: want one of prefix, suffix, equals-ignore-case, anything-but, numeric, exists with its operand", name)
}

func compileOperator(operator string, operand any) alternative {
	text, isText := operand.(string)
	switch {
	case operator == "prefix" && isText:
		return onText(func(s string) bool { return strings.HasPrefix(s, text) })
	case operator == "suffix" && isText:
		return onText(func(s string) bool { return strings.HasSuffix(s, text) })
	case operator == "equals-ignore-case" && isText:
		return onText(func(s string) bool { return strings.EqualFold(s, text) })
	case operator == "exists":
		if want, ok := operand.(bool); ok {
			return func(_ any, found bool) bool { return found == want }
		}
	case operator == "anything-but":
		return anythingBut(operand)
	case operator == "numeric":
		if list, ok := operand.([]any); ok {
			return numeric(list)
		}
	}
	return nil
}

func onText(test func(string) bool) alternative {
	return func(value any, _ bool) bool {
		s, ok := value.(string)
		return ok && test(s)
	}
}

func exactly(want any) alternative {
	number, isNumber := want.(json.Number)
	if !isNumber {
		return func(value any, found bool) bool {
			switch value.(type) {
			case string, bool, nil:
				return found && value == want
			}
			return false
		}
	}
	w, err := number.Float64()
	return func(value any, _ bool) bool {
		v, ok := toNumber(value)
		return ok && err == nil && v == w
	}
}

func anythingBut(operand any) alternative {
	list, ok := operand.([]any)
	if !ok {
		list = []any{operand}
	}
	var not []alternative
	for _, item := range list {
		switch item.(type) {
		case string, json.Number:
			not = append(not, exactly(item))
		default:
			return nil
		}
	}
	if len(not) == 0 {
		return nil
	}
	return func(value any, found bool) bool {
		if !found {
			return false
		}
		for _, a := range not {
			if a(value, true) {
				return false
			}
		}
		return true
	}
}

func numeric(list []any) alternative {
	if len(list) != 2 && len(list) != 4 {
		return nil
	}
	var tests []func(float64) bool
	for i := 0; i < len(list); i += 2 {
		operator, ok1 := list[i].(string)
		number, ok2 := list[i+1].(json.Number)
		bound, err := number.Float64()
		test := comparison(operator, bound)
		if !ok1 || !ok2 || err != nil || test == nil {
			return nil
		}
		tests = append(tests, test)
	}
	return func(value any, _ bool) bool {
		v, ok := toNumber(value)
		for _, test := range tests {
			ok = ok && test(v)
		}
		return ok
	}
}

func comparison(operator string, bound float64) func(float64) bool {
	switch operator {
	case "=":
		return func(v float64) bool { return v == bound }
	case "<":
		return func(v float64) bool { return v < bound }
	case "<=":
		return func(v float64) bool { return v <= bound }
	case ">":
		return func(v float64) bool { return v > bound }
	case ">=":
		return func(v float64) bool { return v >= bound }
	}
	return nil
}

// toNumber reads a JSON number, or an attribute that is written as one.
func toNumber(value any) (float64, bool) {
	var text json.Number
	switch v := value.(type) {
	case json.Number:
		text = v
	case string:
		text = json.Number(v)
	default:
		return 0, false
	}
	n, err := text.Float64()
	return n, err == nil
}
