package scylla

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

const attemptColumns = "at, attempt, duration_ns, outcome, status, error, response"

// SaveAttempts implements schema.Attempts. Whoever calls it writes behind already; here a bounded number of rows is under way. Rows are at
// quorum, so that who reads them sees them: the replicas' work is the same at ONE.
func (s *Store) SaveAttempts(ctx context.Context, rows []schema.Attempt) error {
	n := s.noter(ctx)
	for i := range rows {
		sub, hour := int64(rows[i].Subscription), hourOf(rows[i].At)
		n.add(note{kind: noteAttemptHour, a: sub, b: hour}, "INSERT INTO attempt_hours (subscription, hour) VALUES (?, ?)", sub, hour)
	}
	if err := n.wait(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writesAtOnce)
	for i := range rows {
		a := &rows[i]
		m, sub := int64(a.Message), int64(a.Subscription)
		values := []any{a.At, a.Attempt, int64(a.Duration), int8(a.Outcome), a.Status, a.Error, bytesOf(a.Response)}
		write := func(stmt string, key ...any) {
			g.Go(func() error {
				return s.try(ctx, schema.Unknown, "save an attempt", func(d *db) error { return d.query(ctx, stmt, append(key, values...)...).Exec() })
			})
		}
		write("INSERT INTO attempts_by_message (message, subscription, "+attemptColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", m, sub)
		write("INSERT INTO attempts_by_subscription (subscription, hour, message, "+attemptColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			sub, hourOf(a.At), m)
	}
	return g.Wait()
}

// ListAttempts implements schema.Attempts.
func (s *Store) ListAttempts(ctx context.Context, m schema.MessageID, sub schema.SubscriptionID, limit int) (as []schema.Attempt, err error) {
	if limit < 1 {
		return nil, nil
	}
	err = s.try(ctx, schema.Unavailable, "read attempts", func(d *db) error {
		as = nil
		if m != 0 {
			return d.scanAttempts(ctx, &as, "SELECT message, subscription, "+attemptColumns+" FROM attempts_by_message WHERE message = ? LIMIT ?", int64(m), limit)
		}
		hours := d.query(ctx, "SELECT hour FROM attempt_hours WHERE subscription = ?", int64(sub)).PageSize(24).Iter()
		var hour int64
		for len(as) < limit && hours.Scan(&hour) {
			err := d.scanAttempts(ctx, &as, "SELECT message, subscription, "+attemptColumns+" FROM attempts_by_subscription WHERE subscription = ? AND hour = ? LIMIT ?",
				int64(sub), hour, limit-len(as))
			if err != nil {
				_ = hours.Close()
				return err
			}
		}
		return hours.Close()
	})
	return as, err
}

func (d *db) scanAttempts(ctx context.Context, as *[]schema.Attempt, stmt string, args ...any) error {
	iter := d.query(ctx, stmt, args...).PageSize(100).Iter()
	for {
		var a schema.Attempt
		var outcome int8
		if !iter.Scan((*int64)(&a.Message), (*int64)(&a.Subscription), &a.At, &a.Attempt, (*int64)(&a.Duration), &outcome, &a.Status, &a.Error, &a.Response) {
			return iter.Close()
		}
		a.Outcome = schema.Outcome(outcome)
		*as = append(*as, a)
	}
}
