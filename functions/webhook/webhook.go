// Package webhook delivers messages to HTTP endpoints: signed after Standard Webhooks 1.0.0, on request as CloudEvents,
// and only to endpoints that agreed and whose address is not a special one.
package webhook

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/schema"
)

// timeoutDefault bounds an exchange when the target does not say.
const timeoutDefault = 15 * time.Second

// Options configure a Webhook. The zero value delivers to public https endpoints.
type Options struct {
	Targets Targets
	// Origin is the DNS name that this cluster presents to endpoints; default is the machine's host name.
	Origin string
	// CallbackURL is where an endpoint can confirm later; the escaped challenge is appended. "" = it cannot.
	CallbackURL string
	// Resolver resolves host names; nil is the system's.
	Resolver *net.Resolver
	// TLS is the base of the TLS settings; nil is the system's roots and TLS 1.2 or later.
	TLS        *tls.Config
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Webhook is schema.Invoker and schema.Verifier for webhook targets.
type Webhook struct {
	opts      Options
	transport transport
	breakers  *breakers
	metrics   *metrics
	ctx       context.Context // ends with Close
	stop      context.CancelFunc
}

var (
	_ schema.Invoker  = (*Webhook)(nil)
	_ schema.Verifier = (*Webhook)(nil)
)

// New returns a Webhook that is ready to deliver. Close ends it.
func New(o Options) (*Webhook, error) {
	g, err := newGuard(o.Targets)
	if err != nil {
		return nil, err
	}
	if o.Origin == "" {
		if o.Origin, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	if strings.ContainsFunc(o.Origin, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, schema.Errorf(schema.Invalid, "the origin must be a DNS name")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	w := &Webhook{opts: o, breakers: newBreakers()}
	if w.metrics, err = newMetrics(o.Registerer, w.breakers.open); err != nil {
		return nil, err
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.transport = newTransports(counted(g.dialer(o.Resolver), &w.metrics.dials), tlsConfig(o.TLS), &w.metrics.reused)
	return w, nil
}

func tlsConfig(base *tls.Config) *tls.Config {
	if base == nil {
		base = &tls.Config{}
	}
	c := base.Clone()
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

// Close holds the deliveries that are under way and those that come later, and closes the idle connections.
func (w *Webhook) Close() error {
	w.stop()
	w.transport.close()
	return nil
}

// BreakerState names where the subscription's circuit breaker stands: closed, half-open or open.
func (w *Webhook) BreakerState(id schema.SubscriptionID) string { return w.breakers.state(id) }

// Invoke delivers each message of the batch by one POST. Webhooks get batches of one; a longer one is delivered in order.
func (w *Webhook) Invoke(ctx context.Context, s *schema.Subscription, batch []schema.Delivery) []schema.Result {
	results := make([]schema.Result, len(batch))
	for i := range batch {
		results[i] = w.deliver(ctx, s, &batch[i])
		w.metrics.outcomes[results[i].Outcome].Inc()
	}
	return results
}

func (w *Webhook) deliver(ctx context.Context, s *schema.Subscription, d *schema.Delivery) schema.Result {
	if w.ctx.Err() != nil {
		return schema.Result{Outcome: schema.Held, Error: "the node is shutting down"}
	}
	done, wait := w.breakers.allow(s.ID)
	if done == nil {
		return schema.Result{Outcome: schema.Held, RetryAfter: wait, Error: "the endpoint failed many times in a row; deliveries wait"}
	}
	result := w.post(ctx, s, d)
	done(result.Outcome)
	return result
}

func (w *Webhook) post(ctx context.Context, s *schema.Subscription, d *schema.Delivery) schema.Result {
	r, err := w.newDelivery(s, d, time.Now())
	if err != nil {
		return schema.Result{Outcome: schema.Failed, Error: clip(err.Error())}
	}
	timeout := s.Target.Timeout
	if timeout <= 0 {
		timeout = timeoutDefault
	}
	resp, err := w.exchange(ctx, r, timeout)
	if err != nil {
		if w.ctx.Err() != nil {
			ctx = w.ctx
		}
		return fromError(ctx, err, timeout)
	}
	return fromResponse(resp, time.Now())
}

// exchange makes one exchange within the timeout, the caller's context and the life of w.
func (w *Webhook) exchange(ctx context.Context, r *request, timeout time.Duration) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	began := time.Now()
	resp, err := w.transport.exchange(ctx, r)
	w.metrics.exchanged(time.Since(began), err)
	return resp, err
}
