package owner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts what all owners of a node do.
type Metrics struct {
	messages, bytes          prometheus.Counter
	commits                  prometheus.Counter
	seconds                  prometheus.Histogram
	queueFull, commitRetries prometheus.Counter
}

// NewMetrics registers the owners' metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := promauto.With(r)
	return &Metrics{
		messages:      f.NewCounter(prometheus.CounterOpts{Name: "handfast_committed_messages_total", Help: "Messages acknowledged to producers."}),
		bytes:         f.NewCounter(prometheus.CounterOpts{Name: "handfast_committed_bytes_total", Help: "Bytes of frames acknowledged."}),
		commits:       f.NewCounter(prometheus.CounterOpts{Name: "handfast_commits_total", Help: "Commits acknowledged."}),
		seconds:       f.NewHistogram(prometheus.HistogramOpts{Name: "handfast_commit_seconds", Help: "From forming a commit to its acknowledgement.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
		queueFull:     f.NewCounter(prometheus.CounterOpts{Name: "handfast_publish_queue_full_total", Help: "Batches refused because a partition's queue was full."}),
		commitRetries: f.NewCounter(prometheus.CounterOpts{Name: "handfast_commit_retries_total", Help: "Commits that were written again after an error."}),
	}
}

func (m *Metrics) committed(messages, bytes int, took time.Duration) {
	m.messages.Add(float64(messages))
	m.bytes.Add(float64(bytes))
	m.commits.Inc()
	m.seconds.Observe(took.Seconds())
}
