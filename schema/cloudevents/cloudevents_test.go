package cloudevents

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

func headers(pairs ...string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := 0; i < len(pairs); i += 2 {
			if !yield(pairs[i], pairs[i+1]) {
				return
			}
		}
	}
}

var required = []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t"}

func TestModeOf(t *testing.T) {
	for s, want := range map[string]Mode{
		"": Binary, "application/json": Binary, "application/cloudevents+json": Structured, "application/cloudevents+json; charset=UTF-8": Structured,
		"Application/CloudEvents+JSON": Structured, "application/cloudevents-batch+json": Batch, "application/cloudevents-batch+json; charset=utf-8": Batch,
	} {
		if got := ModeOf(s); got != want {
			t.Errorf("%q: %d", s, got)
		}
	}
}

// The examples of the HTTP binding, section 3.1.3.2, and its rules for decoding.
func TestHeaderValues(t *testing.T) {
	for plain, encoded := range map[string]string{
		"Euro € 😀": "Euro%20%E2%82%AC%20%F0%9F%98%80", "": "", "plain": "plain", `"q" 100%`: "%22q%22%20100%25", "~!": "~!", "a\tb\x7f": "a%09b%7F",
	} {
		if got := EncodeHeader(plain); got != encoded {
			t.Errorf("%q: %q", plain, got)
		}
		if got, err := DecodeHeader(encoded); err != nil || got != plain {
			t.Errorf("%q: %q, %v", encoded, got, err)
		}
	}
	for encoded, plain := range map[string]string{
		"%e2%82%ac": "€", "%41bc": "Abc", `"a b"`: "a b", `"a \"b\" \\ %25"`: `a "b" \ %`, "%2541": "%41", "  x ": "x", "a b": "a b", "€": "€",
	} {
		if got, err := DecodeHeader(encoded); err != nil || got != plain {
			t.Errorf("%q: %q, %v", encoded, got, err)
		}
	}
	for _, bad := range []string{"%C0%A0", "%", "%4", "%zz", "%ED%A0%80", "\xff", `"open`, `"a"b`, `"a\`} {
		if got, err := DecodeHeader(bad); schema.KindOf(err) != schema.Invalid || err == nil {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

func TestDecodeBinary(t *testing.T) {
	e, err := DecodeBinary(headers("Content-Type", "text/plain", "CE-SpecVersion", "1.0", "Ce-Id", "1", "ce-source", "/s",
		"ce-type", "com.example", "ce-city", "Z%C3%BCrich", "X-Other", "no"), []byte("hello"))
	if err != nil || e.ContentType != "text/plain" || string(e.Data) != "hello" || e.Get("city") != "Zürich" || len(e.Attributes) != 5 {
		t.Errorf("%+v, %v", e, err)
	}
	for name, h := range map[string][]string{
		"nothing": {}, "no id": {"ce-specversion", "1.0", "ce-source", "/s", "ce-type", "t"},
		"version":         {"ce-specversion", "0.3", "ce-id", "1", "ce-source", "/s", "ce-type", "t"},
		"twice":           append([]string{"ce-x", "1", "CE-X", "2"}, required...),
		"name":            append([]string{"ce-a_b", "1"}, required...),
		"no name":         append([]string{"ce-", "1"}, required...),
		"datacontenttype": append([]string{"ce-datacontenttype", "text/plain"}, required...),
		"line break":      append([]string{"ce-x", "a%0D%0Ab"}, required...),
		"utf-8":           append([]string{"ce-x", "%C0%A0"}, required...),
	} {
		if e, err := DecodeBinary(headers(h...), nil); err == nil || schema.KindOf(err) != schema.Invalid {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	many := append([]string{}, required...)
	for i := range schema.AttributesMax {
		many = append(many, fmt.Sprintf("ce-x%d", i), "1")
	}
	if _, err := DecodeBinary(headers(many...), nil); schema.KindOf(err) != schema.TooLarge {
		t.Error(err)
	}
}

func TestDecodeStructured(t *testing.T) {
	const head = `"specversion":"1.0","id":"1","source":"/s","type":"t"`
	for body, want := range map[string]string{ // data; "-" = none
		`{` + head + `}`:                                                                   "-",
		`{` + head + `,"data":{"b": 1,  "a":2}}`:                                           `{"b": 1,  "a":2}`,
		`{` + head + `,"data":"{\"a\":1}"}`:                                                `"{\"a\":1}"`,
		`{` + head + `,"data":null}`:                                                       `null`,
		`{` + head + `,"data":1.50}`:                                                       `1.50`,
		`{` + head + `,"datacontenttype":"application/vnd.x+json","data":"s"}`:             `"s"`,
		`{` + head + `,"datacontenttype":"text/plain","data":"hi \u20ac"}`:                 `hi €`,
		`{` + head + `,"datacontenttype":"application/octet-stream","data_base64":"AP8="}`: "\x00\xff",
		`{` + head + `,"data_base64":null}`:                                                "-",
		`{` + head + `,"x":null,"y":true,"z":-5,"data":[]}`:                                `[]`,
	} {
		e, err := DecodeStructured([]byte(body))
		if err != nil || (want == "-") != (e.Data == nil) || want != "-" && string(e.Data) != want {
			t.Errorf("%s: %q, %v", body, e.Data, err)
		}
	}
	e, err := DecodeStructured([]byte(`{` + head + `,"x":null,"y":true,"z":-5}`))
	if err != nil || e.Get("y") != "true" || e.Get("z") != "-5" || e.Get("x") != "" || len(e.Attributes) != 6 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{``, `null`, `[]`, `{}`, `"x"`, `{` + head, `{` + head + `,"data":1,"data_base64":"AA=="}`, `{` + head + `,"data_base64":"!"}`,
		`{` + head + `,"data_base64":1}`, `{` + head + `,"A":"x"}`, `{` + head + `,"x":{}}`, `{` + head + `,"x":1.5}`, `{` + head + `,"x":99999999999}`,
		`{` + head + `,"x":"a\u0000"}`, `{"specversion":"2.0","id":"1","source":"/s","type":"t"}`, `{"specversion":1.0,"id":"1","source":"/s","type":"t"}`,
		`{"specversion":"1.0","id":"","source":"/s","type":"t"}`, "{" + head + ",\"x\":\"\xff\"}"} {
		if e, err := DecodeStructured([]byte(bad)); err == nil || schema.KindOf(err) != schema.Invalid {
			t.Errorf("%s: %+v, %v", bad, e, err)
		}
	}
}

func TestDecodeBatch(t *testing.T) {
	const one = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	for body, want := range map[string]int{`[]`: 0, `[` + one + `]`: 1, `[` + one + `, ` + one + `]`: 2} {
		if e, err := DecodeBatch([]byte(body)); err != nil || len(e) != want {
			t.Errorf("%s: %d, %v", body, len(e), err)
		}
	}
	for _, bad := range []string{``, `null`, one, `[` + one + `, {}]`, `[1]`, `[` + one} {
		if _, err := DecodeBatch([]byte(bad)); err == nil || schema.KindOf(err) != schema.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := DecodeBatch([]byte("[" + strings.Repeat(one+",", schema.BatchMessagesMax) + one + "]")); schema.KindOf(err) != schema.TooLarge {
		t.Error(err)
	}
}

// What is encoded in either mode is decoded to the same event.
func TestRoundTrip(t *testing.T) {
	for _, c := range []struct{ contentType, data string }{
		{"application/json", `{"b":1,   "a":"<>&"}`}, {"", `[1, 2]`}, {"text/plain", "hi\n\"€\""}, {"application/xml", "<a/>"}, {"application/json", "not json"},
		{"image/png", "\x00\xff"}, {"text/plain", "\xff"}, {"application/json", "\"\xff\""}, {"text/plain; charset=latin1", "\xe9"}, {"a/b", ""},
	} {
		m := schema.Message{ID: 5, Topic: 3, Time: time.Unix(1, 2), Key: "k", ContentType: c.contentType, Content: []byte(c.data),
			Attributes: []schema.Attribute{{Name: "type", Value: "order.made"}, {Name: "Sub-Type", Value: "€ 😀"}, {Name: "data", Value: "no"}, {Name: "€", Value: "no"}}}
		e := FromMessage(&m)
		structured, err := DecodeStructured(e.EncodeStructured())
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		pairs := []string{"Content-Type", c.contentType}
		for k, v := range e.Headers() {
			pairs = append(pairs, k, v)
		}
		binary, err := DecodeBinary(headers(pairs...), m.Content)
		if err != nil || !same(binary, e) {
			t.Errorf("binary %+v, %v, not %+v", binary, err, e)
		}
		if string(structured.Data) != c.data || structured.ContentType != c.contentType || structured.Get("subtype") != "€ 😀" ||
			structured.Get("source") != "/topics/3" || structured.Get("id") != "5" || structured.Get("partitionkey") != "k" ||
			structured.Get("time") != "1970-01-01T00:00:01.000000002Z" || structured.Get("type") != "order.made" {
			t.Errorf("structured %+v, not %+v", structured, e)
		}
	}
}

func same(a, b Event) bool {
	return reflect.DeepEqual(a.Attributes, b.Attributes) && a.ContentType == b.ContentType && string(a.Data) == string(b.Data)
}

func FuzzHeader(f *testing.F) {
	for _, s := range []string{"Euro%20%E2%82%AC", "%C0%A0", `"a\"b"`, "%", "plain", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		plain, err := DecodeHeader(s)
		if err != nil {
			return
		}
		if !utf8.ValidString(plain) {
			t.Fatalf("%q decodes to %q", s, plain)
		}
		encoded := EncodeHeader(plain)
		if strings.ContainsFunc(encoded, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q encodes to %q", plain, encoded)
		}
		if again, err := DecodeHeader(encoded); err != nil || again != plain {
			t.Fatalf("%q became %q, %v", plain, again, err)
		}
	})
}

func FuzzStructured(f *testing.F) {
	for _, s := range []string{`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}`,
		`{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"x","x":-1}`,
		`{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"AP8="}`, `[]`, `null`, `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := DecodeStructured(body)
		if err != nil {
			return
		}
		encoded := e.EncodeStructured()
		if !json.Valid(encoded) {
			t.Fatalf("%s", encoded)
		}
		again, err := DecodeStructured(encoded)
		if err != nil || !same(again, e) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

func FuzzBinary(f *testing.F) {
	f.Add("city", "Z%C3%BCrich", []byte("x"))
	f.Add("datacontenttype", "a", []byte{})
	f.Fuzz(func(t *testing.T, name, value string, body []byte) {
		e, err := DecodeBinary(headers(append([]string{"ce-" + name, value}, required...)...), body)
		if err != nil {
			return
		}
		var pairs []string
		for k, v := range e.Headers() {
			pairs = append(pairs, k, v)
		}
		if again, err := DecodeBinary(headers(pairs...), body); err != nil || !same(again, e) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add([]byte(`[{"specversion":"1.0","id":"1","source":"/s","type":"t"}]`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := DecodeBatch(body)
		if err == nil && len(events) > schema.BatchMessagesMax {
			t.Fatal(len(events))
		}
	})
}
