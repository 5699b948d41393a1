package filter

import (
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

func TestMatch(t *testing.T) {
	message := schema.Message{
		Attributes: []schema.Attribute{{Name: "type", Value: "order.created"}, {Name: "size", Value: "12"}},
		Content:    []byte(`{"amount": 250, "currency": "EUR", "tags": ["new", "big"], "buyer": {"country": "IT", "vip": true, "note": null}}`),
	}
	for filter, want := range map[string]bool{
		``:                                   true,
		`null`:                               true,
		`{}`:                                 true,
		`{"type": ["order.created"]}`:        true,
		`{"type": ["x", "order.created"]}`:   true,
		`{"type": ["x"]}`:                    false,
		`{"missing": ["x"]}`:                 false,
		`{"missing": [{"exists": false}]}`:   true,
		`{"type": [{"exists": false}]}`:      false,
		`{"type": [{"prefix": "order."}]}`:   true,
		`{"type": [{"suffix": ".deleted"}]}`: false,
		`{"type": [{"equals-ignore-case": "ORDER.CREATED"}]}`:           true,
		`{"type": [{"anything-but": ["a", "b"]}]}`:                      true,
		`{"type": [{"anything-but": "order.created"}]}`:                 false,
		`{"missing": [{"anything-but": "order.created"}]}`:              false,
		`{"size": [{"numeric": [">", 10, "<=", 12]}]}`:                  true,
		`{"size": [{"numeric": ["<", 12]}]}`:                            false,
		`{"size": [12]}`:                                                true,
		`{"attributes": {"type": ["order.created"]}}`:                   true,
		`{"content": {"amount": [{"numeric": [">=", 250]}]}}`:           true,
		`{"content": {"amount": [250.0]}}`:                              true,
		`{"content": {"amount": ["250"]}}`:                              false,
		`{"content": {"tags": ["big"]}}`:                                true,
		`{"content": {"tags": ["small"]}}`:                              false,
		`{"content": {"buyer": {"country": ["IT"], "vip": [true]}}}`:    true,
		`{"content": {"buyer": {"note": [null]}}}`:                      true,
		`{"content": {"buyer": {"vip": [false]}}}`:                      false,
		`{"content": {"absent": {"x": [{"exists": false}]}}}`:           true,
		`{"type": ["order.created"], "content": {"currency": ["USD"]}}`: false,
	} {
		f, err := Compile([]byte(filter))
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		if got := f.Match(&message); got != want {
			t.Errorf("%s: got %v", filter, got)
		}
	}
}

func TestMatchAnyContent(t *testing.T) {
	f, err := Compile([]byte(`{"content": {"a": [1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "\x00\xff", `"a string"`, `17`, `null`, `[{"a":1}]`, `{"a":`} {
		if f.Match(&schema.Message{Content: []byte(content)}) {
			t.Errorf("%q passed", content)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, filter := range []string{`[]`, `"x"`, `{"a": "b"}`, `{"a": []}`, `{"a": [["b"]]}`, `{"a": {"b": ["c"]}}`, `{"a": [{"like": "b"}]}`,
		`{"a": [{"prefix": 1}]}`, `{"a": [{"numeric": [">"]}]}`, `{"a": [{"numeric": ["!", 1]}]}`, `{"a": [{"prefix": "b", "suffix": "c"}]}`,
		`{"content": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": [1]}}}}}}}}}}`, `{"a": [{"exists": "yes"}]}`, `{"a": [{"anything-but": []}]}`} {
		if _, err := Compile([]byte(filter)); schema.KindOf(err) != schema.Invalid {
			t.Errorf("%s: %v", filter, err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(`{"type": [{"numeric": [">", 1]}], "content": {"a": [null]}}`), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, raw, content []byte) {
		if c, err := Compile(raw); err == nil {
			c.Match(&schema.Message{Content: content})
		}
	})
}
