package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/handfast-mq/handfast/schema"
)

func TestVerify(t *testing.T) {
	options := func(origin, rate string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodOptions {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			if origin != "" {
				w.Header().Set("WebHook-Allowed-Origin", origin)
			}
			if rate != "" {
				w.Header().Set("WebHook-Allowed-Rate", rate)
			}
			w.WriteHeader(status)
		}
	}
	echo := func(status int, answer func(challenge string) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			var v verification
			json.NewDecoder(r.Body).Decode(&v)
			w.WriteHeader(status)
			io.WriteString(w, answer(v.Challenge))
		}
	}
	plain := func(c string) string { return c }
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		rate    float64
		want    schema.Consent
		kind    schema.Kind // 0 = no error
	}{
		"origin":            {options("queue.example.com", "", 200), 0, schema.ConsentGiven, 0},
		"origin, case":      {options("Queue.Example.COM", "", 200), 0, schema.ConsentGiven, 0},
		"any origin":        {options("*", "", 200), 0, schema.ConsentGiven, 0},
		"status is nothing": {options("*", "", 500), 0, schema.ConsentGiven, 0},
		"no header":         {options("", "", 200), 0, schema.ConsentPending, 0},
		"other origin":      {options("evil.example.com", "", 200), 0, schema.ConsentPending, 0},
		"rate":              {options("*", "120", 200), 2, schema.ConsentGiven, 0},
		"any rate":          {options("*", "*", 200), 2, schema.ConsentGiven, 0},
		"no rate":           {options("*", "", 200), 2, schema.ConsentPending, 0},
		"rate too low":      {options("*", "60", 200), 2, schema.ConsentPending, schema.Invalid},
		"rate is nonsense":  {options("*", "fast", 200), 2, schema.ConsentPending, 0},
		"rate is zero":      {options("*", "0", 200), 2, schema.ConsentPending, 0},
		"echo":              {echo(200, plain), 0, schema.ConsentGiven, 0},
		"echo, spaces":      {echo(201, func(c string) string { return " " + c + "\n" }), 0, schema.ConsentGiven, 0},
		"echo, json":        {echo(200, func(c string) string { return fmt.Sprintf(`{"challenge": %q, "x": 1}`, c) }), 0, schema.ConsentGiven, 0},
		"echo, not 2xx":     {echo(400, plain), 0, schema.ConsentPending, schema.Unavailable},
		"echo, redirect":    {echo(302, plain), 0, schema.ConsentPending, schema.Unavailable},
		"other echo":        {echo(200, func(string) string { return "hello" }), 0, schema.ConsentPending, 0},
		"empty echo":        {echo(200, func(string) string { return "" }), 0, schema.ConsentPending, 0},
		"part of a page":    {echo(200, func(c string) string { return "<html>" + c }), 0, schema.ConsentPending, 0},
		"gone":              {echo(410, plain), 0, schema.ConsentRefused, 0},
		"mirror":            {func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }, 0, schema.ConsentPending, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.handler)
			sub := subscription(s.URL + "/hook")
			sub.Challenge = "c-h/a+llenge"
			sub.Target.Rate = c.rate
			got, err := newLocal(t).Verify(t.Context(), sub)
			if got != c.want || (err != nil) != (c.kind != 0) || err != nil && schema.KindOf(err) != c.kind {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

// What the endpoint is asked with.
func TestVerifyRequests(t *testing.T) {
	verifier, _ := standardwebhooks.NewWebhook(testSecret)
	asked := map[string]http.Header{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked[r.Method] = r.Header.Clone()
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost {
			return
		}
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		var v map[string]any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Error(err)
		}
		for k, want := range map[string]any{"type": verificationType, "challenge": "a b", "subscription_id": 7.0, "topic_id": 3.0,
			"confirm_url": "https://queue.example.com/confirm?challenge=a+b"} {
			if v[k] != want {
				t.Errorf("%s is %v", k, v[k])
			}
		}
	})
	w := newTest(t, Options{Targets: Targets{AllowPrivate: true}, CallbackURL: "https://queue.example.com/confirm?challenge="})
	sub := subscription(s.URL)
	sub.Challenge, sub.Target.Rate = "a b", 0.5
	if consent, err := w.Verify(t.Context(), sub); consent != schema.ConsentPending || err != nil {
		t.Fatal(consent, err)
	}
	for name, want := range map[string]string{"WebHook-Request-Origin": "queue.example.com", "WebHook-Request-Rate": "30",
		"WebHook-Request-Callback": "https://queue.example.com/confirm?challenge=a+b"} {
		if got := asked[http.MethodOptions].Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestVerifyUnreachable(t *testing.T) {
	s := serve(t, nil)
	s.Close()
	sub := subscription(s.URL)
	sub.Challenge = "x"
	if consent, err := newLocal(t).Verify(t.Context(), sub); consent != schema.ConsentPending || schema.KindOf(err) != schema.Unavailable || !strings.Contains(err.Error(), "refused") {
		t.Error(consent, err)
	}
	if consent, err := newTest(t, Options{}).Verify(t.Context(), sub); consent != schema.ConsentPending || schema.KindOf(err) != schema.Invalid {
		t.Error(consent, err)
	}
}
