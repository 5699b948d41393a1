package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	recordsMax     = 16384 // attempts that wait to be written; over it they are dropped and counted
	recordBatchMax = 1024
)

// recorder writes delivery attempts behind. It never holds up a delivery: when it cannot keep up, rows are dropped.
type recorder struct {
	store   schema.Attempts
	rows    chan schema.Attempt
	metrics *metrics
	logger  *slog.Logger
}

func newRecorder(store schema.Attempts, m *metrics, logger *slog.Logger) *recorder {
	return &recorder{store: store, rows: make(chan schema.Attempt, recordsMax), metrics: m, logger: logger}
}

func (r *recorder) add(a schema.Attempt) {
	select {
	case r.rows <- a:
	default:
		r.metrics.recordsDropped.Inc()
	}
}

func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			r.save(context.WithoutCancel(ctx), nil)
			return
		case a := <-r.rows:
			r.save(ctx, []schema.Attempt{a})
		}
	}
}

// save writes the given rows and those that wait.
func (r *recorder) save(ctx context.Context, rows []schema.Attempt) {
	for len(rows) < recordBatchMax {
		select {
		case a := <-r.rows:
			rows = append(rows, a)
			continue
		default:
		}
		break
	}
	if len(rows) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.store.SaveAttempts(ctx, rows); err != nil {
		r.metrics.recordsDropped.Add(float64(len(rows)))
		r.logger.Warn("delivery attempts could not be recorded", "rows", len(rows), "err", err)
	}
}

// record notes one attempt of an outstanding message. The feed's lock is held.
func (d *Dispatcher) record(f *feed, e *entry, o schema.Outcome, r schema.Result, took time.Duration) {
	d.records.add(schema.Attempt{Message: schema.NewMessageID(f.owner.Partition(), e.offset), Subscription: f.sub.id, Attempt: e.attempts,
		At: time.Now(), Duration: took, Outcome: o, Status: r.Status, Error: r.Error, Response: r.Response})
}

// recordOnce notes the one attempt of an at-most-once delivery.
func (d *Dispatcher) recordOnce(m *schema.Delivery, r schema.Result, took time.Duration) {
	d.records.add(schema.Attempt{Message: m.ID, Subscription: m.Subscription, Attempt: m.Attempt,
		At: time.Now(), Duration: took, Outcome: r.Outcome, Status: r.Status, Error: r.Error, Response: r.Response})
}
