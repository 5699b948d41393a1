package dispatch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/handfast-mq/handfast/schema"
)

type metrics struct {
	deliveries       *prometheus.CounterVec
	attemptSeconds   *prometheus.HistogramVec
	ageSeconds       prometheus.Histogram
	pulledMessages   prometheus.Counter
	lost             prometheus.Counter
	deadLettered     prometheus.Counter
	deadLetterErrors prometheus.Counter
	recordsDropped   prometheus.Counter
	cursorErrors     prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		deliveries: f.NewCounterVec(prometheus.CounterOpts{Name: "handfast_push_attempts_total", Help: "Pushed messages by target and outcome."}, []string{"target", "outcome"}),
		attemptSeconds: f.NewHistogramVec(prometheus.HistogramOpts{Name: "handfast_push_attempt_seconds", Help: "Duration of one invocation of a push target.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 18)}, []string{"target"}),
		ageSeconds: f.NewHistogram(prometheus.HistogramOpts{Name: "handfast_push_age_seconds", Help: "From the acceptance of a message to the begin of an attempt to push it.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 14)}),
		pulledMessages:   counter("handfast_pulled_messages_total", "Messages handed out to pullers."),
		lost:             counter("handfast_lost_messages_total", "Messages that retention took before a subscription had them."),
		deadLettered:     counter("handfast_dead_lettered_messages_total", "Messages given up by a subscription."),
		deadLetterErrors: counter("handfast_dead_letter_errors_total", "Dead letters that could not be written and are kept."),
		recordsDropped:   counter("handfast_attempt_records_dropped_total", "Delivery attempts that were not recorded."),
		cursorErrors:     counter("handfast_cursor_save_errors_total", "Failed writes of cursors."),
	}
}

func (m *metrics) pushed(t schema.TargetType, o schema.Outcome, took, age time.Duration) {
	m.deliveries.WithLabelValues(string(t), o.String()).Inc()
	m.attemptSeconds.WithLabelValues(string(t)).Observe(took.Seconds())
	m.ageSeconds.Observe(age.Seconds())
}

func (m *metrics) pulled(out []schema.Delivery) { m.pulledMessages.Add(float64(len(out))) }
