package webhook

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/schema"
)

// metrics are what the package tells about itself.
type metrics struct {
	outcomes [schema.Nacked + 1]prometheus.Counter
	seconds  prometheus.Histogram
	refused  prometheus.Counter
	dials    atomic.Int64
	reused   atomic.Int64
}

func newMetrics(r prometheus.Registerer, open func() int) (*metrics, error) {
	m := &metrics{}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "handfast_webhook_requests_total",
		Help: "Deliveries to webhooks by how they ended."}, []string{"outcome"})
	for o := range m.outcomes {
		m.outcomes[o] = requests.WithLabelValues(schema.Outcome(o).String())
	}
	m.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "handfast_webhook_request_seconds",
		Help:    "How long one exchange with an endpoint took, body included.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30}})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{Name: "handfast_webhook_guard_refused_total",
		Help: "Deliveries that the address guard refused."})
	connections := func(reused string, f func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "handfast_webhook_connections_total",
			Help:        "Connections that exchanges took, by whether they were there already.",
			ConstLabels: prometheus.Labels{"reused": reused}}, f)
	}
	all := []prometheus.Collector{requests, m.seconds, m.refused,
		connections("false", func() float64 { return float64(m.dials.Load()) }),
		connections("true", func() float64 { return float64(m.reused.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "handfast_webhook_breakers_open",
			Help: "Subscriptions whose endpoint fails so steadily that deliveries are held back."},
			func() float64 { return float64(open()) })}
	if r == nil {
		return m, nil
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) exchanged(took time.Duration, err error) {
	m.seconds.Observe(took.Seconds())
	if isRefused(err) {
		m.refused.Inc()
	}
}
