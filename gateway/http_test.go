package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestHeadChangesNothing holds that HEAD does not do what a GET does beside answering.
func TestHeadChangesNothing(t *testing.T) {
	s := start(t)
	topic := s.topic(person{token: s.admin}, "t", "open")
	s.post(s.admin, "/subscribe", fields{"topic_id": topic})
	id := s.post(s.admin, "/publish_message", fields{"topic_id": topic, "message_content": "x"}).id("message_id")
	pull := fmt.Sprintf("/message?topic_id=%d&wait=10", topic)
	for _, path := range []string{pull, "/confirm_subscription?challenge=x"} {
		a := s.send(s.admin, "HEAD", path, nil)
		if a.status != http.StatusMethodNotAllowed || strings.Contains(a.header.Get("Allow"), "HEAD") || !strings.Contains(a.header.Get("Allow"), "GET") {
			t.Errorf("HEAD %s: %d, Allow: %s", path, a.status, a.header.Get("Allow"))
		}
	}
	if got := s.get(s.admin, pull); got.id("message_id") != id || got.id("attempt") != 1 {
		t.Errorf("after a HEAD: %s", got.body)
	}
	resp, err := http.Head(s.url + "/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("HEAD /healthz: %v, %v", resp, err)
	}
}

func TestKindsOfHTTPErrors(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		request string
		status  int
		kind    string
	}{
		{s.head("GET /nowhere"), 404, "not_found"},
		{s.head("PUT /user"), 405, "invalid"},
		{s.head("BREW /user"), 405, "invalid"},
		{"nonsense\r\n\r\n", 400, "invalid"},
		{s.head("POST /create_topic", "Content-Length: 99999999"), 413, "too_large"},
		{s.head("GET /user", "X-Large: "+strings.Repeat("x", 40<<10)), 431, "too_large"},
	} {
		a := s.dial(t).send(c.request).answer(s)
		s.refused(a, c.status, c.request[:min(len(c.request), 40)])
		if a.word("kind") != c.kind {
			t.Errorf("%d is of the kind %q, want %q", c.status, a.word("kind"), c.kind)
		}
	}
}

// TestRefusalsKeepTheConnection holds that only what could not be read as a request ends its connection.
func TestRefusalsKeepTheConnection(t *testing.T) {
	s := start(t)
	topic := s.topic(person{token: s.admin}, "t", "open")
	w := s.dial(t)
	for _, c := range []struct {
		body   string
		status int
	}{{strings.Repeat("x", mib+1), 413}, {"x", 200}} {
		head := strings.Replace(s.head(fmt.Sprintf("POST /publish_message?topic_id=%d", topic), fmt.Sprintf("Content-Length: %d", len(c.body))), "application/json", "text/plain", 1)
		if a := w.send(head, c.body).answer(s); a.status != c.status || a.header.Get("Connection") != "" {
			t.Errorf("%d bytes: %d %v", len(c.body), a.status, a.header)
		}
	}
}

// TestOneCaller holds that the scheme has no case, and that a request says once who calls.
func TestOneCaller(t *testing.T) {
	s := start(t)
	other := s.person("other").token
	ask := func(lines ...string) *answer {
		return s.dial(t).send("GET /user HTTP/1.1\r\nHost: x\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n").answer(s)
	}
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER "} {
		if a := ask("Authorization: " + scheme + other); a.word("user_name") != "other" {
			t.Errorf("%q: %s", scheme, a.body)
		}
	}
	s.refused(ask("Authorization: Bearer "+s.admin, "Authorization: Bearer "+other), 401, "two callers")
	s.refused(ask("Authorization: Bearer "+other, "authorization: Basic eDp5"), 401, "two schemes")
}

// TestSaidTwice holds that of a header that is there twice, nobody guesses which one counts.
func TestSaidTwice(t *testing.T) {
	s := start(t)
	topic := s.topic(person{token: s.admin}, "t", "open")
	line := fmt.Sprintf("POST /publish_message?topic_id=%d", topic)
	for what, twice := range map[string][]string{
		"a key":        {"Idempotency-Key: a", "Idempotency-Key: b"},
		"the same key": {"Idempotency-Key: a", "idempotency-key: a"},
		"an attribute": {"Handfast-Attribute-A: 1", "Handfast-Attribute-a: 2"},
		"an event's":   {"Ce-Specversion: 1.0", "Ce-Id: 1", "Ce-Id: 2", "Ce-Source: /s", "Ce-Type: t"},
	} {
		head := strings.Replace(s.head(line, append(twice, "Content-Length: 1")...), "application/json", "text/plain", 1)
		s.refused(s.dial(t).send(head, "x").answer(s), 422, what+" twice")
	}
}

// TestWrongTypesAreNamed holds that a refusal says where something is wrong, what belongs there and what was found.
func TestWrongTypesAreNamed(t *testing.T) {
	s := start(t)
	for body, want := range map[string]string{
		`{"topic_id": "1"}`:                         "/topic_id: want a whole number, not a string",
		`{"topic_id": 1.5}`:                         "/topic_id: want a whole number, not this number",
		`{"topic_id": 9223372036854775808}`:         "/topic_id: want a whole number, not this number",
		`{"topic_id": [1]}`:                         "/topic_id: want a whole number, not an array",
		`{"message_content": {}}`:                   "/message_content: want a string, not an object",
		`{"attributes": [1]}`:                       "/attributes: want an object, not an array",
		`{"attributes": {"a": true}}`:               "/attributes/a: want a string, not true",
		`{"delay": 1e10}`:                           "1e10 seconds are too many",
		`{"delay": "soon"}`:                         `"soon" is not a duration: want seconds, or words such as "90s" or "1h30m"`,
		`{"topic_id": 1, "surprise": 1}`:            "/surprise: no such field",
		`{"topic_id": 1, "key": "a", "key": "b"}`:   "/key: the field is there twice",
		`{"topic_id": 1, "message_content": "x"}}}`: "the body is not valid JSON: at byte 39",
	} {
		a := s.send(s.admin, "POST", "/publish_message", body, "Content-Type", "application/json")
		if s.refused(a, 422, body); a.word("detail") != want {
			t.Errorf("%s:\n got %s\nwant %s", body, a.word("detail"), want)
		}
	}
	a := s.send(s.admin, "POST", "/update_user", `{"user_id": 1, "disabled": "yes"}`, "Content-Type", "application/json")
	if a.word("detail") != "/disabled: want true or false, not a string" {
		t.Errorf("a word for a yes: %s", a.body)
	}
}
