package pebble

import (
	"bytes"
	"context"
	"errors"
	"math"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

func cursorKey(p schema.PartitionID, s schema.SubscriptionID, e schema.Epoch) key {
	return row(rowCursor).partition(p).number(int64(s)).number(int64(e))
}

func writeOptions(sync bool) *cockroach.WriteOptions {
	if sync {
		return cockroach.Sync
	}
	return cockroach.NoSync
}

// SaveCursors implements schema.Cursors.
func (s *Store) SaveCursors(_ context.Context, rows []schema.CursorRow, sync bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	b := s.db.NewBatch()
	for i := range rows {
		r := &rows[i]
		_ = b.Set(cursorKey(r.Partition, r.Subscription, r.Epoch), r.State, nil)
	}
	return internal(errors.Join(b.Commit(writeOptions(sync)), b.Close()), "save cursors")
}

// LoadCursors implements schema.Cursors.
func (s *Store) LoadCursors(_ context.Context, p schema.PartitionID) (rows []schema.CursorRow, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	err = scan(s.db, row(rowCursor).partition(p), func(k, v []byte) (bool, error) {
		rows = append(rows, schema.CursorRow{Partition: p, Subscription: schema.SubscriptionID(numberAt(k, 3)),
			Epoch: schema.Epoch(numberAt(k, 11)), State: bytes.Clone(v)})
		return true, nil
	})
	return rows, internal(err, "load cursors")
}

// DropCursors implements schema.Cursors.
func (s *Store) DropCursors(_ context.Context, p schema.PartitionID, sub schema.SubscriptionID, before schema.Epoch) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if before == 0 {
		before = math.MaxInt64
	}
	b := s.db.NewBatch()
	if sub != 0 {
		_ = b.DeleteRange(cursorKey(p, sub, 0), cursorKey(p, sub, before), nil)
	} else {
		err := scan(s.db, row(rowCursor).partition(p), func(k, _ []byte) (bool, error) {
			if schema.Epoch(numberAt(k, 11)) < before {
				_ = b.Delete(k, nil)
			}
			return true, nil
		})
		if err != nil {
			return internal(errors.Join(err, b.Close()), "drop cursors")
		}
	}
	return internal(errors.Join(b.Commit(cockroach.NoSync), b.Close()), "drop cursors")
}
