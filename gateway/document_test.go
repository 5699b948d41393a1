package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// document is openapi.yaml, made strict: an answer with a field that it does not describe does not validate.
var document = sync.OnceValues(func() (routers.Router, error) {
	raw, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, err
	}
	no := false
	var close func(r *openapi3.SchemaRef)
	close = func(r *openapi3.SchemaRef) {
		if r == nil || r.Value == nil {
			return
		}
		s := r.Value
		if s.Type.Is("object") && s.AdditionalProperties.Has == nil && s.AdditionalProperties.Schema == nil {
			s.AdditionalProperties.Has = &no
		}
		for _, p := range s.Properties {
			close(p)
		}
		close(s.Items)
	}
	for _, s := range doc.Components.Schemas {
		close(s)
	}
	// Any path, slashes included, is what {path} means here.
	url := doc.Paths.Value("/functions/{name}/url/{path}")
	doc.Paths.Delete("/functions/{name}/url/{path}")
	doc.Paths.Set("/functions/{name}/url/{path:.*}", url)
	return gorillamux.NewRouter(doc)
})

// framework are the statuses that every path can answer with, as the document's introduction says.
var framework = []int{400, 404, 405, 408, 413, 431}

// conforms tells what is wrong with an answer by the document.
func conforms(r *http.Request, a *answer) error {
	router, err := document()
	if err != nil {
		return err
	}
	route, params, err := router.FindRoute(r)
	if errors.Is(err, routers.ErrPathNotFound) && a.status == 404 || errors.Is(err, routers.ErrMethodNotAllowed) && a.status == 405 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find route: %w", err)
	}
	if route.Operation.Responses.Status(a.status) == nil && slices.Contains(framework, a.status) {
		return nil
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 a.status, Header: a.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	in.SetBodyBytes(a.body)
	return openapi3filter.ValidateResponse(context.Background(), in)
}

func init() {
	// What is text to the document is text to the test.
	openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.FileBodyDecoder)
	for _, answer := range []string{"application/x-seen", "text/html", "application/vnd.awslambda.http-integration-response"} { // of functions in the tests
		openapi3filter.RegisterBodyDecoder(answer, openapi3filter.FileBodyDecoder)
	}
}

// TestAnswersConform makes every call with success. That each answer is as the document says is checked wherever a test sends anything.
func TestAnswersConform(t *testing.T) {
	s := start(t)
	seen := map[string]bool{}
	s.seen = func(r *http.Request, a *answer) {
		if a.status == http.StatusOK {
			seen[r.Method+" "+r.URL.Path] = true
		}
	}
	walk(s)
	router, _ := document()
	for _, method := range []string{"GET", "POST"} {
		for _, path := range paths(t) {
			r, _ := http.NewRequest(method, s.url+path, nil)
			if _, _, err := router.FindRoute(r); err != nil || strings.HasPrefix(path, "/confirm_subscription") || strings.Contains(path, "{") {
				continue // an endpoint's part, and those that functions_test has
			}
			if !seen[method+" "+path] {
				t.Errorf("no successful call of %s %s", method, path)
			}
		}
	}
}

func paths(t *testing.T) []string {
	raw, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatal(err)
	}
	return doc.Paths.InMatchingOrder()
}

// walk makes every call once with success.
func walk(s *server) {
	alice, bob := s.person("alice"), s.person("bob")
	s.get("", "/healthz")
	s.get("", "/readyz")
	s.get("", "/metrics")
	s.get("", "/openapi.yaml")
	s.get(alice.token, "/rules")
	s.get(alice.token, "/patterns")
	s.get(s.admin, "/cluster")
	rule := s.post(alice.token, "/create_rule", fields{"rule_name": "mine", "description": "d", "rego": "package handfast.rule\npublish := true"})
	s.post(alice.token, "/create_pattern", fields{"pattern_name": "two", "mode": "pull", "guarantee": "at_least_once", "ordered": true, "ack_level": "one"})
	walkFunctions(s, alice, bob)
	s.get(alice.token, "/rules")
	s.post(alice.token, "/create_topic", fields{"topic_name": "ruled", "rule_id": rule.id("rule_id")})
	dead := s.topic(alice, "dead", "approval")
	topic := s.post(alice.token, "/create_topic", fields{"topic_name": "t", "rule_id": "approval", "pattern_id": "standard", "partitions": 2, "retention": "1h",
		"retention_bytes": 1 << 30, "dead_letter_topic_id": dead, "labels": fields{"a": "b"}}).id("topic_id")
	s.post(alice.token, "/update_topic", fields{"topic_id": topic, "retention": 7200})
	s.get(alice.token, fmt.Sprintf("/topic?topic_id=%d", topic))
	s.get(alice.token, "/topics?limit=2")
	s.post(alice.token, "/grant_publish", fields{"topic_id": topic, "publisher_id": bob.id})
	s.get(alice.token, fmt.Sprintf("/grants?topic_id=%d", topic))

	sub := s.post(bob.token, "/subscribe", fields{"consumer_id": bob.id, "topic_id": topic, "accept_publishers": []int64{alice.id, bob.id}, "ack_deadline": 60,
		"filter": fields{"kind": []any{"x"}}}).id("subscription_id")
	s.post(alice.token, "/approve_subscription", fields{"subscription_id": sub})
	s.post(bob.token, "/update_subscription", fields{"subscription_id": sub, "max_outstanding": 5, "filter": fields{}, "dead_letter_topic_id": nil})
	s.post(bob.token, "/pause_subscription", fields{"subscription_id": sub, "reason": "lunch"})
	s.post(bob.token, "/resume_subscription", fields{"subscription_id": sub})
	s.post(bob.token, "/verify_subscription", fields{"subscription_id": sub})
	s.post(bob.token, "/replay", fields{"subscription_id": sub, "start": "earliest"})
	s.get(bob.token, fmt.Sprintf("/message?topic_id=%d", topic))
	walkMessages(s, alice, bob, topic, sub)

	third := s.topic(alice, "third", "approval")
	other := s.post(bob.token, "/subscribe", fields{"topic_id": third}).id("subscription_id")
	s.post(alice.token, "/reject_subscription", fields{"subscription_id": other, "reason": "no"})
	s.post(bob.token, "/unsubscribe", fields{"consumer_id": bob.id, "topic_id": topic})
	s.post(alice.token, "/revoke_publish", fields{"topic_id": topic, "publisher_id": bob.id})
	s.post(alice.token, "/delete_topic", fields{"topic_id": topic})
	hooked := s.topic(alice, "hooked", "open")
	hook := s.post(bob.token, "/subscribe", fields{"topic_id": hooked, "target": fields{"type": "webhook", "url": endpoint(s.t, nil)}, "retry_schedule": []any{0, "5s"}})
	if hook.word("state") != "active" {
		s.t.Errorf("an endpoint that consents: %s", hook.body)
	}
	s.post(bob.token, "/rotate_secret", fields{"subscription_id": hook.id("subscription_id"), "overlap": "1h"})
	walkUsers(s, bob)
}

// endpoint is a webhook receiver that consents, and hands what it gets to take.
func endpoint(t testing.TB, take func(r *http.Request)) string {
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.Header().Set("WebHook-Allowed-Origin", "*")
			return
		}
		if take != nil {
			take(r)
		}
	}))
	t.Cleanup(hook.Close)
	return hook.URL
}

func walkMessages(s *server, alice, bob person, topic, sub int64) {
	id := s.post(alice.token, "/publish_message", fields{"topic_id": topic, "message_content": "hello", "key": "k", "attributes": fields{"a": "1"},
		"content_type": "text/plain", "idempotency_key": "once"}).id("message_id")
	if again := s.post(alice.token, "/publish_message", fields{"topic_id": topic, "message_content": "hello", "key": "k", "attributes": fields{"a": "1"},
		"content_type": "text/plain", "idempotency_key": "once"}); again.id("message_id") != id || again.json["duplicate"] != true {
		s.t.Errorf("a duplicate is not known: %s", again.body)
	}
	s.post(bob.token, "/publish_messages", fields{"topic_id": topic, "messages": []any{fields{"message_content": "one"}, fields{"message_content_base64": "/w=="}}})
	s.get(alice.token, fmt.Sprintf("/message_status?message_id=%d", id))
	pulled := s.get(bob.token, fmt.Sprintf("/message?topic_id=%d&consumer_id=%d&wait=10", topic, bob.id))
	got, lease := pulled.id("message_id"), pulled.word("lease")
	s.post(bob.token, "/extend", fields{"topic_id": topic, "message_ids": []int64{got}, "ack_deadline": "20s"})
	s.post(bob.token, "/ack", fields{"topic_id": topic, "messages": []any{fields{"message_id": got, "lease": lease}}})
	pulled = s.get(bob.token, fmt.Sprintf("/message?topic_id=%d&max=2&wait=10", topic))
	for _, m := range pulled.json["messages"].([]any) {
		s.post(bob.token, "/nack", fields{"consumer_id": bob.id, "topic_id": topic, "message_ids": []any{m.(map[string]any)["message_id"]}, "delay": 1})
	}
	s.get(bob.token, fmt.Sprintf("/message_status?message_id=%d", got))
	s.get(bob.token, fmt.Sprintf("/deliveries?message_id=%d", got))
	s.get(bob.token, fmt.Sprintf("/deliveries?subscription_id=%d", sub))
	s.get(bob.token, fmt.Sprintf("/subscription?subscription_id=%d", sub))
	s.get(alice.token, fmt.Sprintf("/subscriptions?topic_id=%d&state=active", topic))
	s.post(alice.token, "/redrive", fields{"subscription_id": sub})
}

func walkUsers(s *server, bob person) {
	s.get(bob.token, "/user")
	s.get(s.admin, "/users")
	rotated := s.post(bob.token, "/rotate_token", fields{"overlap": "1h", "expires_in": 86400})
	s.get(rotated.word("token"), "/user")
	s.post(s.admin, "/revoke_token", fields{"token_id": rotated.id("token_id")})
	s.post(s.admin, "/update_user", fields{"user_id": bob.id, "disabled": true})
}
