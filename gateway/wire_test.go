package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

// refusal checks that an error is for the caller's eyes: of ours, short and readable.
func refusal(t *testing.T, err error, in string) {
	var ours *schema.Error
	if !errors.As(err, &ours) || ours.Kind != schema.Invalid || ours.Message == "" || len(ours.Message) > 512 || !utf8.ValidString(ours.Message) {
		t.Fatalf("%.200q: not an error for a caller: %#v", in, err)
	}
}

func FuzzSeconds(f *testing.F) {
	for _, s := range []string{"0", "1.5", "-3", "1e9", "1e10", `"90s"`, `"1h30m"`, `"30"`, `""`, `"NaN"`, `"Inf"`, `"0x1p-2"`, "null", "true", `"\u0031s"`, `"290y"`, "[]", `"9223372036s"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var s seconds
		if err := s.UnmarshalJSON([]byte(in)); err != nil {
			refusal(t, err, in)
			return
		}
		text, err := s.MarshalJSON()
		if err != nil || !json.Valid(text) {
			t.Fatalf("%q is written as %q, %v", in, text, err)
		}
		var again seconds
		if err := again.UnmarshalJSON(text); time.Duration(s).Abs() <= 1e9*time.Second && (err != nil || (time.Duration(again)-time.Duration(s)).Abs() > time.Microsecond) {
			t.Fatalf("%q is %v, and then %v, %v", in, time.Duration(s), time.Duration(again), err)
		}
	})
}

func FuzzStart(f *testing.F) {
	for _, s := range []string{`"now"`, `"earliest"`, `"2026-01-02T03:04:05Z"`, "17", `"17"`, `{"position":"now"}`, `{"time":"2026-01-02T03:04:05+01:00"}`, `{"message_id":3}`, `{"message_id":-3}`,
		`{"position":"now","message_id":3}`, `{}`, "null", `""`, "[", `{"position":{"position":"now"}}`, `"\u006eow"`, "-1", "1e3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var w wireStart
		if err := w.UnmarshalJSON([]byte(in)); err != nil {
			refusal(t, err, in)
			return
		}
		switch w.Position {
		case "now", "earliest":
		case "time":
			if w.Time.IsZero() && !strings.Contains(in, "0001-01-01") {
				t.Fatalf("%q has no time", in)
			}
		case "message":
			if w.Message < 1 {
				t.Fatalf("%q is message %d", in, w.Message)
			}
		default:
			t.Fatalf("%q begins at %q", in, w.Position)
		}
	})
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"1", `"1"`, `"open"`, `"team\/rule"`, "-1", "1.5", `""`, "null", "9007199254740992", `"\ud83d\ude00"`, "{}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var r ref
		if err := r.UnmarshalJSON([]byte(in)); err != nil {
			refusal(t, err, in)
			return
		}
		if r.id < 0 || r.id > schema.IDMax || r.id != 0 && r.name != "" {
			t.Fatalf("%q is %+v", in, r)
		}
	})
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"a", `"a"`, `"a\"b\\"`, `"`, `""`, `"a"b"`, `"\x"`, " a ", "\x00", "é", strings.Repeat("k", 257), `"` + strings.Repeat("k", 256) + `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		key, err := idempotencyKey(in)
		if err != nil {
			refusal(t, err, in)
			return
		}
		if key == "" || len(key) > schema.KeyBytesMax || !printable(key) {
			t.Fatalf("%q is the key %q", in, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := idempotencyKey(quoted); err != nil || again != key {
			t.Fatalf("%q is %q, and quoted %q, %v", in, key, again, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"topic_id":1,"message_content":"x"}`, `{"topic_id":"1"}`, `{"topic_id":1,"topic_id":1}`, `{"x":1}`, `{`, "", "null", `{"message_content":null}`, `{"message_content":7}`, `{"topic_id":1, "message_content" : "a\nb\u00e9\"" }`, `{"message_content_base64":"aG\u00f4="}`, `{"message_content_base64":"aGk="}`, `{"attributes":{"a":1}}`, `{"delay":"x"}`,
		`{"message_content":"\ud800"}`, "{\"message_content\":\"\xff\"}", `{"` + strings.Repeat("x", 5000) + `":1}`, `{"attributes":{"` + strings.Repeat("y", 5000) + `":1}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var w wirePublish
		if err := decodeJSON([]byte(in), &w); err != nil {
			refusal(t, err, in)
			return
		}
		m, err := w.message([]byte(in))
		if err != nil {
			if k := schema.KindOf(err); k != schema.Invalid && k != schema.TooLarge {
				t.Fatalf("%.200q: %v", in, err)
			}
			return
		}
		var plain struct {
			Content       *string `json:"message_content"`
			ContentBase64 []byte  `json:"message_content_base64"`
		}
		if err := json.Unmarshal([]byte(in), &plain); err != nil {
			return // its own base64 is stricter
		}
		want := plain.ContentBase64
		if plain.Content != nil {
			want = []byte(*plain.Content)
		}
		if err := checkMessage(&m); err != nil || !bytes.Equal(m.Content, want) {
			t.Fatalf("%.200q is %+v, %v, want %q", in, m, err, want)
		}
	})
}
