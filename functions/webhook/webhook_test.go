package webhook

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cloudevents"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newTest(t testing.TB, o Options) *Webhook {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Origin == "" {
		o.Origin = "queue.example.com"
	}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func newLocal(t testing.TB) *Webhook {
	return newTest(t, Options{Targets: Targets{AllowPrivate: true}})
}

// eachTransport runs a test with either way to make an exchange.
func eachTransport(t *testing.T, test func(t *testing.T, w *Webhook)) {
	for name, choose := range map[string]func(*transports) transport{
		"net":  func(t *transports) transport { return t.net },
		"fast": func(t *transports) transport { return t.fast },
	} {
		t.Run(name, func(t *testing.T) {
			w := newLocal(t)
			all := w.transport.(*transports)
			t.Cleanup(all.close)
			w.transport = choose(all)
			test(t, w)
		})
	}
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func subscription(url string) *schema.Subscription {
	return &schema.Subscription{ID: 7, Topic: 3, Secrets: []schema.Secret{{Key: testSecret}},
		Target: schema.Target{Type: schema.TargetWebhook, URL: url, Timeout: 20 * time.Second}}
}

func delivery(content string) schema.Delivery {
	return schema.Delivery{Subscription: 7, Attempt: 1, Message: schema.Message{ID: schema.NewMessageID(2, 9), Topic: 3,
		ContentType: "application/json", Content: []byte(content), Time: time.Unix(1700000000, 0)}}
}

func invoke(t testing.TB, w *Webhook, s *schema.Subscription, d schema.Delivery) schema.Result {
	t.Helper()
	results := w.Invoke(context.Background(), s, []schema.Delivery{d})
	if len(results) != 1 {
		t.Fatalf("%d results", len(results))
	}
	return results[0]
}

// received is what an endpoint saw.
type received struct {
	header http.Header
	body   []byte
}

// endpoint keeps the last request and answers 204.
func endpoint(t testing.TB) (*httptest.Server, func() received) {
	var mu sync.Mutex
	var last received
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		last = received{r.Header.Clone(), body}
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	})
	return s, func() received {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// What arrives is what was stored, and the published library accepts its signature.
func TestDelivery(t *testing.T) { eachTransport(t, testDelivery) }

func testDelivery(t *testing.T, w *Webhook) {
	s, last := endpoint(t)
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{`{"b":1, "a": 2.0 }`, "", "\x00\xff binary \r\n", strings.Repeat("x", schema.ContentBytesMax)} {
		sub := subscription(s.URL + "/hook?a=b")
		sub.Secrets = append([]schema.Secret{{Key: NewSecret()}}, sub.Secrets...)
		if r := invoke(t, w, sub, delivery(content)); r.Outcome != schema.Delivered || r.Status != 204 {
			t.Fatalf("%+v", r)
		}
		got := last()
		if string(got.body) != content {
			t.Errorf("%d bytes became %d", len(content), len(got.body))
		}
		if err := verifier.Verify(got.body, got.header); err != nil {
			t.Error(err)
		}
		if n := len(got.header.Values("webhook-signature")); n != 1 {
			t.Errorf("%d signature lines", n)
		}
	}
	h := last().header
	for name, want := range map[string]string{"Content-Type": "application/json", "Webhook-Id": "msg_" + strconv.FormatInt(2<<40|9, 10) + "_7",
		"Handfast-Topic-Id": "3", "Handfast-Message-Id": strconv.FormatInt(2<<40|9, 10), "Handfast-Attempt": "1",
		"Handfast-Subscription-Id": "7", "Webhook-Request-Origin": "queue.example.com", "Accept-Encoding": "identity"} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if _, ok := h["Idempotency-Key"]; ok {
		t.Error("an Idempotency-Key was sent")
	}
}

// Attributes cannot break out of their header or take another one's place.
func TestAttributes(t *testing.T) { eachTransport(t, testAttributes) }

func testAttributes(t *testing.T, w *Webhook) {
	s, last := endpoint(t)
	d := delivery("{}")
	d.Attributes = []schema.Attribute{{Name: "plain", Value: "yes"}, {Name: "a\r\nX-Evil: 1", Value: "b\r\nX-Evil: 2"},
		{Name: "€", Value: "Euro € 😀"}, {Name: "", Value: "empty"}, {Name: "bad", Value: "\xff\x00"},
		{Name: "webhook-signature", Value: "v1,forged"}, {Name: "Content-Length", Value: "5"}}
	if r := invoke(t, w, subscription(s.URL), d); r.Outcome != schema.Delivered {
		t.Fatalf("%+v", r)
	}
	h := last().header
	if h.Get("X-Evil") != "" || strings.Contains(h.Get("Webhook-Signature"), "forged") {
		t.Error(h)
	}
	for name, want := range map[string]string{"plain": "yes", "%E2%82%AC": "Euro%20%E2%82%AC%20%F0%9F%98%80",
		"webhook-signature": "v1,forged", "a%0D%0AX-Evil%3A%201": "b%0D%0AX-Evil:%202"} {
		if got := h.Get(attributePrefix + name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
}

func TestCloudEvents(t *testing.T) {
	w := newLocal(t)
	s, last := endpoint(t)
	verifier, _ := standardwebhooks.NewWebhook(testSecret)
	for _, format := range []string{"binary", "structured"} {
		sub := subscription(s.URL)
		sub.Target.Format = format
		d := delivery(`{"a":  1}`)
		d.Attributes = []schema.Attribute{{Name: "type", Value: "order.made"}, {Name: "city", Value: "Zürich"}}
		if r := invoke(t, w, sub, d); r.Outcome != schema.Delivered {
			t.Fatalf("%+v", r)
		}
		got := last()
		if err := verifier.Verify(got.body, got.header); err != nil {
			t.Error(format, err)
		}
		var e cloudevents.Event
		var err error
		if format == "binary" {
			e, err = cloudevents.DecodeBinary(func(yield func(string, string) bool) {
				for k, v := range got.header {
					if !yield(k, v[0]) {
						return
					}
				}
			}, got.body)
		} else {
			e, err = cloudevents.DecodeStructured(got.body)
		}
		if err != nil || string(e.Data) != `{"a":  1}` || e.Get("type") != "order.made" || e.Get("city") != "Zürich" || e.Get("source") != "/topics/3" {
			t.Errorf("%s: %+v, %v", format, e, err)
		}
	}
	sub := subscription(s.URL)
	sub.Target.Format = "avro"
	if r := invoke(t, w, sub, delivery("{}")); r.Outcome != schema.Failed || r.Error == "" {
		t.Errorf("%+v", r)
	}
}

func TestOutcomes(t *testing.T) { eachTransport(t, testOutcomes) }

func testOutcomes(t *testing.T, w *Webhook) {
	var hits atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		if status != 204 && status != 304 {
			w.Write([]byte("\x00\xffsaid"))
		}
	})
	for _, c := range []struct {
		status  int
		after   string
		outcome schema.Outcome
		wait    time.Duration
	}{
		{200, "", schema.Delivered, 0}, {201, "", schema.Delivered, 0}, {202, "", schema.Delivered, 0}, {204, "", schema.Delivered, 0},
		{299, "", schema.Delivered, 0}, {301, "", schema.Failed, 0}, {302, "", schema.Failed, 0}, {304, "", schema.Failed, 0},
		{307, "", schema.Failed, 0}, {308, "", schema.Failed, 0}, {400, "", schema.Failed, 0}, {404, "9", schema.Failed, 0},
		{410, "", schema.EndpointGone, 0}, {429, "7", schema.Held, 7 * time.Second}, {429, "", schema.Held, 0},
		{500, "", schema.Failed, 0}, {503, "120.5", schema.Failed, 120500 * time.Millisecond}, {503, "soon", schema.Failed, 0},
	} {
		before := hits.Load()
		sub := subscription(s.URL + "/?status=" + strconv.Itoa(c.status) + "&after=" + c.after)
		sub.ID = schema.SubscriptionID(1000 + c.status) // its own breaker
		r := invoke(t, w, sub, delivery("{}"))
		if r.Outcome != c.outcome || r.RetryAfter != c.wait || r.Status != c.status {
			t.Errorf("%d %q: %+v", c.status, c.after, r)
		}
		if (r.Error == "") != (c.outcome == schema.Delivered) {
			t.Errorf("%d: error %q", c.status, r.Error)
		}
		if c.status != 204 && c.status != 304 && string(r.Response) != "\x00\xffsaid" {
			t.Errorf("%d: response %q", c.status, r.Response)
		}
		if n := hits.Load() - before; n != 1 {
			t.Errorf("%d: %d requests", c.status, n)
		}
	}
}

// A shutdown holds what is under way: nothing counts against the endpoint.
func TestShutdownHolds(t *testing.T) {
	arrived, stop := make(chan struct{}, 2), make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-stop
	})
	t.Cleanup(func() { close(stop) })
	for name, end := range map[string]func(w *Webhook, cancel func()){
		"context": func(_ *Webhook, cancel func()) { cancel() },
		"close":   func(w *Webhook, _ func()) { w.Close() },
	} {
		w := newLocal(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-arrived
			end(w, cancel)
		}()
		r := w.Invoke(ctx, subscription(s.URL), []schema.Delivery{delivery("{}")})[0]
		if r.Outcome != schema.Held {
			t.Errorf("%s: %+v", name, r)
		}
		if w.breakers.failing.Len() != 0 {
			t.Errorf("%s: the endpoint was blamed", name)
		}
	}
}

// The numbers are registered once and count what happened.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s, _ := endpoint(t)
	w := newTest(t, Options{Targets: Targets{AllowPrivate: true}, Registerer: registry})
	for range 3 {
		invoke(t, w, subscription(s.URL), delivery("{}"))
	}
	invoke(t, w, subscription("http://169.254.169.254/"), delivery("{}"))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{"handfast_webhook_requests_total delivered": 3, "handfast_webhook_requests_total failed": 1,
		"handfast_webhook_guard_refused_total": 1, "handfast_webhook_connections_total false": 1, "handfast_webhook_connections_total true": 2, "handfast_webhook_request_seconds": 4} {
		if got[name] != want {
			t.Errorf("%s is %v, not %v", name, got[name], want)
		}
	}
	if _, err := New(Options{Registerer: registry}); err == nil {
		t.Error("registered twice")
	}
}

func TestNoSecret(t *testing.T) {
	s, last := endpoint(t)
	w := newLocal(t)
	sub := subscription(s.URL)
	sub.Secrets = []schema.Secret{{Key: testSecret, ExpiresAt: time.Unix(1, 0)}}
	if r := invoke(t, w, sub, delivery("{}")); r.Outcome != schema.Failed || !strings.Contains(r.Error, "secret") {
		t.Errorf("%+v", r)
	}
	if last().header != nil {
		t.Error("it was sent unsigned")
	}
}

// No goroutine outlives Close.
func TestCloseEndsAll(t *testing.T) {
	s, _ := endpoint(t)
	before := runtime.NumGoroutine()
	w := newLocal(t)
	for range 10 {
		invoke(t, w, subscription(s.URL), delivery("{}"))
	}
	w.Close()
	s.CloseClientConnections()
	for runtime.NumGoroutine() > before+1 {
		if t.Context().Err() != nil {
			t.Fatal("goroutines stay")
		}
		runtime.Gosched()
	}
	if r := invoke(t, w, subscription(s.URL), delivery("{}")); r.Outcome != schema.Held {
		t.Errorf("%+v", r)
	}
}
