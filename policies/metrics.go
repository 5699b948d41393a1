package policies

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/schema"
)

// actions are the label values of the decisions' counter; others count as "other".
var actions = []schema.Action{schema.ActionCreateTopic, schema.ActionUpdateTopic, schema.ActionDeleteTopic, schema.ActionReadTopic,
	schema.ActionPublish, schema.ActionSubscribe, schema.ActionAutoApprove, schema.ActionUnsubscribe, schema.ActionConsume,
	schema.ActionApprove, schema.ActionReject, schema.ActionGrant, schema.ActionRevoke, schema.ActionReadMessage,
	schema.ActionReadSub, schema.ActionRedrive, schema.ActionCreateUser, schema.ActionReadUser, schema.ActionUpdateUser,
	schema.ActionCreateRule, schema.ActionCreatePatt, schema.ActionManageFunc, schema.ActionInvokeFunc, schema.ActionReadCluster}

const otherAction schema.Action = "other"

type outcomes struct{ allowed, denied prometheus.Counter }

type metrics struct {
	decisions    map[schema.Action]outcomes
	seconds      prometheus.Histogram
	hits         prometheus.Counter
	reloaded     prometheus.Counter
	reloadFailed prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "handfast_policy_decisions_total",
		Help: "Decisions of the policies."}, []string{"action", "result"})
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "handfast_policy_reload_total",
		Help: "Loads of the policies."}, []string{"result"})
	m := &metrics{decisions: map[schema.Action]outcomes{},
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "handfast_policy_evaluation_seconds",
			Help: "How long a decision took that was not cached.", Buckets: prometheus.ExponentialBuckets(50e-6, 2, 12)}),
		hits: prometheus.NewCounter(prometheus.CounterOpts{Name: "handfast_policy_cache_hits_total",
			Help: "Decisions that were cached."}),
		reloaded:     reloads.WithLabelValues("ok"),
		reloadFailed: reloads.WithLabelValues("refused"),
	}
	for _, a := range append([]schema.Action{otherAction}, actions...) {
		m.decisions[a] = outcomes{decisions.WithLabelValues(string(a), "allow"), decisions.WithLabelValues(string(a), "deny")}
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{decisions, reloads, m.seconds, m.hits} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) count(a schema.Action, allow bool) {
	o, ok := m.decisions[a]
	if !ok {
		o = m.decisions[otherAction]
	}
	if allow {
		o.allowed.Inc()
	} else {
		o.denied.Inc()
	}
}

func (m *metrics) hit(a schema.Action, allow bool) {
	m.hits.Inc()
	m.count(a, allow)
}

func (m *metrics) miss(a schema.Action, allow bool, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	m.count(a, allow)
}

// log writes the decision's line: refusals at info, the rest at debug on demand, and not more than a bounded number
// a second. What was left out is counted in the next line.
func (a *Authorizer) log(r *schema.AuthRequest, d schema.Decision, took time.Duration) {
	level, message := slog.LevelInfo, "refused"
	if d.Allow {
		if !a.opts.LogAllowed {
			return
		}
		level, message = slog.LevelDebug, "allowed"
	}
	if !a.opts.Logger.Enabled(context.Background(), level) {
		return
	}
	if !a.lines.Allow() {
		a.dropped.Add(1)
		return
	}
	attrs := []slog.Attr{slog.String("action", string(r.Action)), slog.Any("reasons", d.Reasons), slog.Duration("took", took)}
	if r.Principal != nil {
		attrs = append(attrs, slog.Int64("user_id", int64(r.Principal.ID)))
	}
	if r.As != 0 {
		attrs = append(attrs, slog.Int64("as", int64(r.As)))
	}
	if r.Topic != nil {
		attrs = append(attrs, slog.Int64("topic_id", int64(r.Topic.ID)))
	}
	if n := a.dropped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("lines_left_out", n))
	}
	a.opts.Logger.LogAttrs(context.Background(), level, message, attrs...)
}
