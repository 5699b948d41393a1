package client_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

// flaky is a server that fails the first calls in a given way and then answers.
func flaky(t *testing.T, failures int, fail http.HandlerFunc, answer string) (*client.Client, *atomic.Int64, *[]string) {
	var calls atomic.Int64
	var keys []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Key string `json:"idempotency_key"`
		}
		json.NewDecoder(r.Body).Decode(&body)
		keys = append(keys, body.Key) // one call at a time
		if calls.Add(1) <= int64(failures) {
			fail(w, r)
			return
		}
		w.Write([]byte(answer))
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{Server: s.URL, Retries: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, &calls, &keys
}

func problem(status int, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"title": "t", "status": status, "detail": "words", "kind": kind})
	}
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, _ := w.(http.Hijacker).Hijack()
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

func TestPublishIsRepeatedUnderOneKey(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{"busy": problem(429, "busy"), "unavailable": problem(503, "unavailable"),
		"unknown": problem(503, "unknown_outcome"), "hang up": hangUp, "proxy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }} {
		c, calls, keys := flaky(t, 2, fail, `{"status":"ok","message_id":5}`)
		p, err := c.Publish(t.Context(), 1, client.Message{Content: []byte("x")})
		if err != nil || p.ID != 5 || calls.Load() != 3 {
			t.Errorf("%s: %v, %v after %d calls", name, p, err, calls.Load())
		}
		if k := *keys; k[0] == "" || k[0] != k[1] || k[1] != k[2] {
			t.Errorf("%s: the keys are %q", name, k)
		}
	}
}

func TestWhatMayHaveBeenDoneIsNotDoneTwice(t *testing.T) {
	for name, c := range map[string]struct {
		fail http.HandlerFunc
		want schema.Kind
		made int64
	}{
		"hang up":     {hangUp, schema.Unknown, 1},
		"unknown":     {problem(503, "unknown_outcome"), schema.Unknown, 1},
		"conflict":    {problem(409, "conflict"), schema.Conflict, 1},
		"unavailable": {problem(503, "unavailable"), schema.Unavailable, 4},
	} {
		cl, calls, _ := flaky(t, 10, c.fail, `{}`)
		_, err := cl.CreateTopic(t.Context(), client.NewTopic{Name: "x"})
		if schema.KindOf(err) != c.want || calls.Load() != c.made {
			t.Errorf("%s: %v after %d calls", name, err, calls.Load())
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c, err := client.New(client.Options{Server: "http://queue", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if calls++; calls == 1 {
				w.Header().Set("Retry-After", "20")
				problem(429, "busy")(w, r)
			} else {
				w.WriteString(`{}`)
			}
			return w.Result(), nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := c.User(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); calls != 2 || took != 20*time.Second {
			t.Errorf("%d calls in %v", calls, took)
		}
	})
}

func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.7:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, _ := client.New(client.Options{Server: "http://" + l.Addr().String(), Retries: -1})
	if _, err := c.User(t.Context(), 0); schema.KindOf(err) != schema.Unavailable {
		t.Errorf("got %v", err)
	}
	if _, err := client.New(client.Options{Server: "ftp://x"}); schema.KindOf(err) != schema.Invalid {
		t.Errorf("got %v", err)
	}
}

// TestAnswersOfSomethingElse holds what is made of answers that did not come from a cluster, but from a proxy before it.
func TestAnswersOfSomethingElse(t *testing.T) {
	for status, want := range map[int]schema.Kind{401: schema.Unauthenticated, 403: schema.Forbidden, 404: schema.NotFound, 413: schema.TooLarge, 429: schema.Busy,
		400: schema.Invalid, 418: schema.Invalid, 500: schema.Internal, 502: schema.Unknown, 503: schema.Unknown, 504: schema.Unknown, 302: schema.Internal, 204: schema.Internal} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://elsewhere.invalid/")
			w.WriteHeader(status)
		}))
		c, err := client.New(client.Options{Server: s.URL, Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		var e *client.Error
		if _, err := c.User(t.Context(), 0); schema.KindOf(err) != want || !errors.As(err, &e) || e.Status != status || e.Detail == "" {
			t.Errorf("%d: %v, of the kind %v", status, err, schema.KindOf(err))
		}
		c.Close()
		s.Close()
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }))
	defer s.Close()
	c, err := client.New(client.Options{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.User(t.Context(), 0); schema.KindOf(err) != schema.Internal {
		t.Errorf("a page: %v", err)
	}
	for _, token := range []string{"a b", "a\n", "\x00", "é"} {
		if _, err := client.New(client.Options{Server: s.URL, Token: token}); schema.KindOf(err) != schema.Invalid {
			t.Errorf("the token %q: %v", token, err)
		}
	}
}

func TestBatchRepeatsWhatWasBusy(t *testing.T) {
	type batch struct {
		Key      string `json:"idempotency_key"`
		Messages []struct {
			Content string `json:"message_content"`
			Key     string `json:"idempotency_key"`
		} `json:"messages"`
	}
	var sent []batch
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body batch
		json.NewDecoder(r.Body).Decode(&body)
		if sent = append(sent, body); len(sent) == 1 {
			w.Write([]byte(`{"status":"partial","results":[{"message_id":1},{"error":{"detail":"full","kind":"busy"}},{"error":{"detail":"bad","kind":"invalid"}}]}`))
			return
		}
		w.Write([]byte(`{"status":"partial","results":[{"message_id":1,"duplicate":true},{"message_id":2},{"error":{"detail":"bad","kind":"invalid"}}]}`))
	}))
	defer s.Close()
	c, err := client.New(client.Options{Server: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.PublishBatch(t.Context(), 1, []client.Message{{Content: []byte("a")}, {Content: []byte("b")}, {Content: []byte("c"), IdempotencyKey: "own"}})
	if err != nil || len(got) != 3 || got[0].ID != 1 || got[0].Duplicate || got[1].ID != 2 || got[1].Err != nil || got[2].Err == nil || got[2].Err.Kind != schema.Invalid {
		t.Errorf("%+v, %v", got, err)
	}
	if len(sent) != 2 || sent[0].Key == "" || !reflect.DeepEqual(sent[0], sent[1]) || sent[0].Messages[0].Key != "" || sent[0].Messages[2].Key != "own" {
		t.Errorf("sent %q", sent)
	}
}
