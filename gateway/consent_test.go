package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/handfast-mq/handfast/internal/node"
)

// reluctant is an endpoint that answers the handshake and the challenge as a test says, and keeps the challenge.
type reluctant struct {
	mu        sync.Mutex
	answer    func(w http.ResponseWriter, r *http.Request, challenge string)
	challenge string
	callback  string
	delivered int
}

func (e *reluctant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Method == http.MethodOptions {
		e.callback = r.Header.Get("Webhook-Request-Callback")
		e.answer(w, r, "")
		return
	}
	var body struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	raw, _ := io.ReadAll(r.Body)
	if json.Unmarshal(raw, &body); body.Challenge == "" {
		e.delivered++
		return
	}
	e.challenge = body.Challenge
	e.answer(w, r, body.Challenge)
}

func (e *reluctant) becomes(answer func(w http.ResponseWriter, r *http.Request, challenge string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

func (e *reluctant) deliveries() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.delivered
}

func newReluctant(t *testing.T) (*reluctant, string) {
	e := &reluctant{}
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return e, s.URL
}

// TestEndpointConsents holds that nothing is delivered to an endpoint before it agreed, in each of the ways to agree.
func TestEndpointConsents(t *testing.T) {
	s := start(t, func(c *node.Config) { c.PublicURL = "http://queue.example" })
	takes := func(w http.ResponseWriter, r *http.Request, challenge string) { // the challenge, and says nothing to it
		if challenge == "" {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	for way, agree := range map[string]func(e *reluctant, sub int64) *answer{
		"handshake": func(e *reluctant, sub int64) *answer {
			e.becomes(func(w http.ResponseWriter, r *http.Request, _ string) {
				w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
			})
			return s.post(s.admin, "/verify_subscription", fields{"subscription_id": sub})
		},
		"echo": func(e *reluctant, sub int64) *answer {
			e.becomes(func(w http.ResponseWriter, r *http.Request, challenge string) {
				if challenge == "" {
					w.WriteHeader(http.StatusMethodNotAllowed)
				}
				io.WriteString(w, challenge)
			})
			return s.post(s.admin, "/verify_subscription", fields{"subscription_id": sub})
		},
		"callback": func(e *reluctant, _ int64) *answer {
			u, err := url.Parse(e.callback)
			if err != nil || u.Host != "queue.example" || u.Query().Get("challenge") != e.challenge {
				t.Fatalf("the callback is %q, the challenge %q", e.callback, e.challenge)
			}
			return s.get("", u.RequestURI())
		},
	} {
		e, hook := newReluctant(t)
		e.becomes(takes)
		topic := s.topic(person{token: s.admin}, way, "open")
		sub := s.post(s.admin, "/subscribe", fields{"topic_id": topic, "target": fields{"type": "webhook", "url": hook}})
		if sub.word("state") != "pending_consumer" || !strings.Contains(sub.word("reason"), "has not consented") || e.challenge == "" {
			t.Fatalf("%s: subscribed: %s", way, sub.body)
		}
		id := sub.id("subscription_id")
		s.post(s.admin, "/publish_message", fields{"topic_id": topic, "message_content": "too early"})
		s.refused(s.send("", "POST", "/confirm_subscription?challenge="+e.challenge+"x", nil), 404, "a wrong challenge")
		if a := agree(e, id); a.word("state") != "active" {
			t.Errorf("%s: agreed: %s", way, a.body)
		}
		if n := e.deliveries(); n != 0 {
			t.Errorf("%s: %d deliveries before the consent", way, n)
		}
		s.refused(s.send("", "POST", "/confirm_subscription?challenge="+e.challenge, nil), 404, "a challenge that was used")
		s.post(s.admin, "/publish_message", fields{"topic_id": topic, "message_content": "now"})
		s.eventually(way+": a delivery", func() bool { return e.deliveries() == 1 })
	}
}

// TestEndpointThatCannotConsent holds that the answer says why, and how to go on.
func TestEndpointThatCannotConsent(t *testing.T) {
	s := start(t)
	topic := s.topic(person{token: s.admin}, "t", "open")
	e, hook := newReluctant(t)
	e.becomes(func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusTeapot) })
	sub := s.post(s.admin, "/subscribe", fields{"topic_id": topic, "target": fields{"type": "webhook", "url": hook}})
	if reason := sub.word("reason"); sub.word("state") != "pending_consumer" || !strings.Contains(reason, "418") || !strings.Contains(reason, "verify_subscription") {
		t.Errorf("%s", sub.body)
	}
	if a := s.get(s.admin, fmt.Sprintf("/subscription?topic_id=%d", topic)); a.word("consumer_consent") != "pending" {
		t.Errorf("asked later: %s", a.body)
	}
}
