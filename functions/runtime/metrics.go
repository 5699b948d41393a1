package runtime

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/handfast-mq/handfast/schema"
)

type metrics struct {
	coldStarts  prometheus.Counter
	invocations *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		coldStarts:  f.NewCounter(prometheus.CounterOpts{Name: "handfast_function_cold_starts_total", Help: "Instances of functions that were started."}),
		invocations: f.NewCounterVec(prometheus.CounterOpts{Name: "handfast_function_invocations_total", Help: "Invocations that reached a function, by how they ended."}, []string{"outcome"}),
	}
}

func (m *metrics) count(a *schema.Invoked) {
	outcome := "success"
	if a.FunctionError != "" {
		outcome = "error"
	}
	m.invocations.WithLabelValues(outcome).Inc()
}
