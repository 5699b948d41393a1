package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// bench has one of everything, and for every call a body or query that is right.
type bench struct {
	*server
	alice, bob, mallory person
	topic, sub, message int64
	bodies              map[string]fields
	queries             map[string]fields
}

func newBench(t *testing.T) *bench {
	s := start(t)
	b := &bench{server: s, alice: s.person("alice"), bob: s.person("bob"), mallory: s.person("mallory")}
	b.topic = s.topic(b.alice, "t", "closed")
	b.sub = s.post(b.alice.token, "/subscribe", fields{"topic_id": b.topic}).id("subscription_id")
	b.message = s.post(b.alice.token, "/publish_message", fields{"topic_id": b.topic, "message_content": "x"}).id("message_id")
	token := s.get(b.alice.token, "/user").json["tokens"].([]any)[0].(map[string]any)["token_id"]
	topic, sub := fields{"topic_id": b.topic}, fields{"subscription_id": b.sub}
	settle := fields{"topic_id": b.topic, "consumer_id": b.alice.id, "message_ids": []int64{b.message}}
	with := func(f fields, more fields) fields { f = maps.Clone(f); maps.Copy(f, more); return f }
	b.bodies = map[string]fields{
		"/publish_message":  with(topic, fields{"message_content": "x"}),
		"/publish_messages": with(topic, fields{"messages": []any{fields{"message_content": "x"}}}),
		"/ack":              settle, "/nack": settle, "/extend": settle,
		"/create_topic": {"topic_name": "new"}, "/update_topic": topic, "/delete_topic": topic,
		"/grant_publish": with(topic, fields{"publisher_id": b.bob.id}), "/revoke_publish": with(topic, fields{"publisher_id": b.bob.id}),
		"/subscribe": topic, "/unsubscribe": topic, "/update_subscription": sub, "/approve_subscription": sub, "/reject_subscription": sub,
		"/verify_subscription": sub, "/pause_subscription": sub, "/resume_subscription": sub, "/rotate_secret": sub,
		"/replay": with(sub, fields{"start": "now"}), "/redrive": sub,
		"/create_user": {"user_name": "new"}, "/update_user": {"user_id": b.bob.id, "disabled": true}, "/rotate_token": {"user_id": b.alice.id},
		"/revoke_token": {"token_id": token}, "/create_rule": {"rule_name": "new", "rego": "package handfast.rule\npublish := true"},
		"/create_pattern": {"pattern_name": "new"},
	}
	b.queries = map[string]fields{"/message": topic, "/message_status": {"message_id": b.message}, "/topic": topic, "/topics": {}, "/grants": topic, "/subscription": sub,
		"/subscriptions": {}, "/deliveries": sub, "/user": {}, "/users": {}, "/rules": {}, "/patterns": {}}
	return b
}

// caller is who may make a call of the bench.
func (b *bench) caller(path string) string {
	switch path {
	case "/create_user", "/update_user", "/users":
		return b.admin
	}
	return b.alice.token
}

// unchanged checks that a refused call left everything as it was.
func (b *bench) bad(a *answer, what string, statuses ...int) {
	b.t.Helper()
	if !slices.Contains(statuses, a.status) {
		b.t.Errorf("%s: want %v, got %d %s", what, statuses, a.status, clip(a.body))
		return
	}
	b.refused(a, a.status, what)
}

func load(t *testing.T) *openapi3.T {
	raw, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

var strange = []any{nil, true, -1, 0, 1.5, 1e300, int64(1) << 53, "", "x", "\x00", strings.Repeat("y", 70_000), "-5s", []any{}, []any{nil}, []any{-1}, []any{[]any{}},
	fields{}, fields{"x": "y"}, fields{"": 1}, fields{"handfast-x": "y"}}

// TestBadBodies puts every strange value that the document does not allow into every field of every body, and leaves out, doubles and
// adds fields.
func TestBadBodies(t *testing.T) {
	b, doc := newBench(t), load(t)
	before := b.node.Revision()
	for path, body := range b.bodies {
		schema := doc.Paths.Value(path).Post.RequestBody.Value.Content.Get("application/json").Schema.Value
		text, _ := json.Marshal(body)
		for _, name := range schema.Required {
			less := maps.Clone(body)
			delete(less, name)
			b.bad(b.send(b.caller(path), "POST", path, less), path+" without "+name, 422)
		}
		b.badFields(path, body, schema)
		for what, raw := range map[string]string{
			"nothing": "", "null": "null", "an array": "[]", "a string": `"x"`, "half": string(text[:len(text)-1]), "two": string(text) + string(text), "rest": string(text) + "x",
			"not UTF-8":        strings.Replace(string(text), `{`, "{\"\xff\":1,", 1),
			"a lone surrogate": strings.Replace(string(text), `{`, `{"\ud800":1,`, 1),
			"deep":             strings.Repeat(`{"a":`, 20_000), "deep arrays": strings.Repeat(`[`, 200_000),
			"unknown": strings.Replace(string(text), `{`, `{"surprise":1,`, 1), "other case": strings.Replace(string(text), `"topic_`, `"Topic_`, 1) + " x",
			"twice": strings.Replace(string(text), `{`, string(text[:len(text)-1])+`,`, 1),
		} {
			b.bad(b.send(b.caller(path), "POST", path, raw, "Content-Type", "application/json"), path+" "+what, 422)
		}
		b.bad(b.send(b.caller(path), "POST", path, string(text), "Content-Type", "application/json", "Content-Encoding", "gzip"), path+" compressed", 415)
		if path != "/publish_message" {
			b.bad(b.send(b.caller(path), "POST", path, string(text), "Content-Type", "text/xml"), path+" as XML", 415)
		}
	}
	if after := b.node.Revision(); after != before {
		t.Errorf("%d changes were made", after-before)
	}
	if m := b.get(b.alice.token, fmt.Sprintf("/message?topic_id=%d&max=1000", b.topic)).json["messages"].([]any); len(m) > 1 {
		t.Errorf("%d messages more were accepted", len(m)-1)
	}
}

func (b *bench) badFields(path string, body fields, schema *openapi3.Schema) {
	for name := range schema.Properties {
		for _, v := range strange {
			more := maps.Clone(body)
			more[name] = v
			text, _ := json.Marshal(more)
			var plain any
			json.Unmarshal(text, &plain)
			if schema.VisitJSON(plain, openapi3.EnableJSONSchema2020()) == nil {
				continue // allowed by its form
			}
			if v == nil && !slices.Contains(schema.Required, name) || v == "" && name != "delay" && name != "overlap" {
				continue // the same as leaving it out
			}
			a := b.send(b.caller(path), "POST", path, text, "Content-Type", "application/json")
			b.bad(a, fmt.Sprintf("%s with %s = %.60v", path, name, v), 403, 404, 413, 422)
		}
	}
}

// TestBadQueries does the same to every parameter.
func TestBadQueries(t *testing.T) {
	b, doc := newBench(t), load(t)
	before := b.node.Revision()
	for path, query := range b.queries {
		q := url.Values{}
		for name, v := range query {
			q.Set(name, fmt.Sprint(v))
		}
		get := func(q url.Values) *answer { return b.send(b.caller(path), "GET", path+"?"+q.Encode(), nil) }
		b.bad(get(url.Values{"surprise": {"1"}}), path+" with an unknown parameter", 422)
		for _, p := range doc.Paths.Value(path).Get.Parameters {
			name := p.Value.Name
			b.bad(get(url.Values{name: {"1", "1"}}), path+" with "+name+" twice", 422)
			if p.Value.Required {
				b.bad(get(url.Values{}), path+" without "+name, 422)
			}
			for _, v := range []string{"", "x", "-1", "0", "1.5", "9007199254740992", "99999999999999999999999", "1e3", "0x10", "\x00", "\xff", "NaN", "-Inf", strings.Repeat("9", 5000)} {
				if p.Value.Schema.Value.Type.Is("string") && name != "wait" && name != "state" || v == "0" && name == "wait" || v == "" {
					continue
				}
				wrong := url.Values{}
				for k, v := range q {
					wrong[k] = v
				}
				if wrong.Set(name, v); v == "1.5" && name == "wait" || v == "1e3" && name == "wait" {
					continue
				}
				b.bad(get(wrong), path+" with "+name+" = "+clip([]byte(v)), 422)
			}
		}
	}
	for _, q := range []string{"", "topic_id=x", "topic_id=1&topic_id=1", "topic_id=-1", "topic_id=1&surprise=1", "topic_id=1&delay=x", "topic_id=1&delay=-1", "topic_id=1&delay=1e99", "topic_id=1&publisher_id=0"} {
		b.bad(b.send(b.alice.token, "POST", "/publish_message?"+q, "x", "Content-Type", "text/plain"), "a raw publish with "+q, 422)
	}
	for _, h := range [][2]string{{"Idempotency-Key", `"x`}, {"Idempotency-Key", `"a"b"`}, {"Idempotency-Key", "\xff"}, {"Idempotency-Key", strings.Repeat("k", 300)},
		{"Handfast-Attribute-Handfast-X", "y"}, {"Handfast-Attribute-A", "%zz"}, {"Handfast-Attribute-A", "%ff"}, {"Content-Type", strings.Repeat("t", 300)}, {"Content-Encoding", "br"}} {
		b.bad(b.send(b.alice.token, "POST", fmt.Sprintf("/publish_message?topic_id=%d", b.topic), "x", "Content-Type", "text/plain", h[0], h[1]), fmt.Sprintf("a raw publish with %q", h), 422, 415)
	}
	if after := b.node.Revision(); after != before {
		t.Errorf("%d changes were made", after-before)
	}
}

// TestForeignThings makes every call on what belongs to somebody else, and without a valid token.
func TestForeignThings(t *testing.T) {
	b := newBench(t)
	b.bodies["/subscribe"] = fields{"topic_id": b.topic, "consumer_id": b.alice.id}
	before := b.node.Revision()
	own := map[string]bool{"/create_topic": true, "/create_rule": true, "/create_pattern": true, "/topics": true, "/subscriptions": true, "/user": true, "/users": true,
		"/rules": true, "/patterns": true}
	for path, body := range b.bodies {
		if !own[path] {
			b.bad(b.send(b.mallory.token, "POST", path, body), path+" of alice by mallory", 403, 404)
		}
		b.noToken("POST", path, body)
	}
	for path, query := range b.queries {
		q := url.Values{}
		for name, v := range query {
			q.Set(name, fmt.Sprint(v))
		}
		if !own[path] {
			b.bad(b.send(b.mallory.token, "GET", path+"?"+q.Encode(), nil), path+" of alice by mallory", 403, 404)
		}
		b.noToken("GET", path+"?"+q.Encode(), nil)
	}
	for path, more := range map[string]fields{"/create_topic": {"topic_name": "x", "publisher_id": b.alice.id}, "/publish_message": {"topic_id": b.topic, "message_content": "x", "publisher_id": b.alice.id}} {
		b.bad(b.send(b.mallory.token, "POST", path, more), path+" in alice's name", 403, 404)
	}
	if after := b.node.Revision(); after != before {
		t.Errorf("%d changes were made", after-before)
	}
}

func (b *bench) noToken(method, path string, body any) {
	for _, h := range []string{"", "Bearer", "Bearer ", "Bearer x", "Basic YTpi", "Bearer " + b.alice.token + "x", "Bearer " + b.alice.token[:20], "Bearer " + strings.Repeat("x", 10_000)} {
		a := b.send("", method, path, body, "Authorization", h)
		if b.refused(a, 401, fmt.Sprintf("%s with %.20q", path, h)); a.header.Get("WWW-Authenticate") == "" {
			b.t.Errorf("%s: no WWW-Authenticate", path)
		}
	}
}

// TestUnknownAndInvisibleAreAlike compares what a stranger is told of a topic, a subscription, a message, a user and a token that are there
// with what it is told of those that are not.
func TestUnknownAndInvisibleAreAlike(t *testing.T) {
	b := newBench(t)
	const nobody = 123_456
	alike := func(what string, there, not *answer) {
		t.Helper()
		if there.status != not.status || string(there.body) != string(not.body) || there.status != http.StatusNotFound {
			t.Errorf("%s: there %d %s, not there %d %s", what, there.status, there.body, not.status, not.body)
		}
	}
	for path, body := range b.bodies {
		for _, name := range []string{"topic_id", "subscription_id", "user_id", "token_id"} {
			if _, has := body[name]; !has {
				continue
			}
			not := maps.Clone(body)
			not[name] = nobody
			alike(path, b.send(b.mallory.token, "POST", path, fieldsWithout(body, "consumer_id")), b.send(b.mallory.token, "POST", path, fieldsWithout(not, "consumer_id")))
		}
	}
	for path, query := range b.queries {
		for name, v := range query {
			get := func(v any) *answer {
				return b.send(b.mallory.token, "GET", fmt.Sprintf("%s?%s=%v", path, name, v), nil)
			}
			alike(path, get(v), get(nobody))
		}
	}
	alike("a name", b.send(b.mallory.token, "GET", fmt.Sprintf("/topic?topic_name=t&publisher_id=%d", b.alice.id), nil),
		b.send(b.mallory.token, "GET", fmt.Sprintf("/topic?topic_name=u&publisher_id=%d", b.alice.id), nil))
}

func fieldsWithout(f fields, name string) fields {
	f = maps.Clone(f)
	delete(f, name)
	return f
}
