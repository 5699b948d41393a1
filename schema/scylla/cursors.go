package scylla

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

// writesAtOnce bounds how many small rows of one call are on their way.
const writesAtOnce = 32

// SaveCursors implements schema.Cursors. Every row is on a quorum when it returns, with or without sync. Timestamps grow within the
// process, and a row has no writer but the process that owns its epoch.
func (s *Store) SaveCursors(ctx context.Context, rows []schema.CursorRow, _ bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writesAtOnce)
	for i := range rows {
		r, at := &rows[i], s.clock.next()
		g.Go(func() error {
			return s.try(ctx, schema.Unknown, "save a cursor", func(d *db) error {
				q := d.query(ctx, "INSERT INTO cursors (partition_id, subscription, epoch, state) VALUES (?, ?, ?, ?)",
					int(r.Partition), int64(r.Subscription), int64(r.Epoch), bytesOf(r.State))
				q.WithTimestamp(at)
				return q.Exec()
			})
		})
	}
	return g.Wait()
}

// LoadCursors implements schema.Cursors.
func (s *Store) LoadCursors(ctx context.Context, p schema.PartitionID) (rows []schema.CursorRow, err error) {
	err = s.try(ctx, schema.Unavailable, "read cursors", func(d *db) error {
		rows = nil
		iter := d.query(ctx, "SELECT subscription, epoch, state FROM cursors WHERE partition_id = ?", int(p)).PageSize(100).Iter()
		for {
			r := schema.CursorRow{Partition: p}
			if !iter.Scan((*int64)(&r.Subscription), (*int64)(&r.Epoch), &r.State) {
				return iter.Close()
			}
			rows = append(rows, r)
		}
	})
	return rows, err
}

// dropped is a cursor row that goes, and when it was written.
type dropped struct{ subscription, epoch, written int64 }

// DropCursors implements schema.Cursors. A row is deleted with its own timestamp: that hides it whatever the clocks of its writer
// and of this process say, and hides nothing that is written later.
func (s *Store) DropCursors(ctx context.Context, p schema.PartitionID, sub schema.SubscriptionID, before schema.Epoch) error {
	var drop []dropped
	err := s.try(ctx, schema.Unavailable, "read cursors", func(d *db) error {
		drop = nil
		iter := d.query(ctx, "SELECT subscription, epoch, writetime(state) FROM cursors WHERE partition_id = ?", int(p)).PageSize(1000).Iter()
		for r := (dropped{}); iter.Scan(&r.subscription, &r.epoch, &r.written); r = (dropped{}) {
			if (sub == 0 || r.subscription == int64(sub)) && (before == 0 || r.epoch < int64(before)) {
				drop = append(drop, r)
			}
		}
		return iter.Close()
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writesAtOnce)
	for _, r := range drop {
		g.Go(func() error {
			return s.try(ctx, schema.Unknown, "drop a cursor", func(d *db) error {
				q := d.query(ctx, "DELETE FROM cursors WHERE partition_id = ? AND subscription = ? AND epoch = ?", int(p), r.subscription, r.epoch)
				q.WithTimestamp(r.written)
				return q.Exec()
			})
		})
	}
	return g.Wait()
}
