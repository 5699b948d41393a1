package scylla

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Earliest implements schema.Log.
func (s *Store) Earliest(ctx context.Context, t schema.TopicID, p schema.PartitionID) (schema.Offset, bool, error) {
	return s.SeekTime(ctx, t, p, time.Time{})
}

// SeekTime implements schema.Log. Times never go back along the offsets, so that an index row with a frame before the time tells
// that all buckets before it lie before the time; within a bucket the frame is found by halving.
func (s *Store) SeekTime(ctx context.Context, t schema.TopicID, p schema.PartitionID, at time.Time) (o schema.Offset, ok bool, err error) {
	err = s.try(ctx, schema.Unavailable, "seek in a topic", func(d *db) error {
		r := &reader{ctx: ctx, db: d, topic: t, partition: p, pageSize: 1}
		low, err := d.mark(ctx, t, p)
		if err != nil {
			return err
		}
		from, err := r.bucketBefore(low, at)
		if err != nil {
			return err
		}
		m := &merge{index: r.buckets(spanOf(from), schema.OffsetMax+1)}
		m.open = func(b bucket) (*source, error) { return r.seek(b, max(from, b.start), at) }
		f, found := m.next()
		o, ok = f.First, found
		return m.close()
	})
	return o, ok, err
}

// bucketBefore returns the start of the last bucket that is known to have a frame before a time, or low.
func (r *reader) bucketBefore(low schema.Offset, at time.Time) (schema.Offset, error) {
	if at.IsZero() {
		return low, nil
	}
	q := r.db.query(r.ctx, bucketColumns+" AND start > ? ORDER BY start DESC", int64(r.topic), int(r.partition), int64(low))
	index := bucketIter{iter: q.PageSize(256).Iter().Iter}
	for index.next() {
		if index.row.time.Before(at) {
			low = index.row.start
			break
		}
	}
	return low, index.iter.Close()
}

// seek opens a bucket at its first frame from an offset on whose time is at or later; nil when there is none.
func (r *reader) seek(b bucket, from schema.Offset, at time.Time) (*source, error) {
	if b.end() <= from {
		return nil, nil
	}
	low, high := from, b.end()
	for !at.IsZero() && low < high {
		middle := low + (high-low)/2
		f, ok, err := r.one(b, " AND first >= ?", int64(middle))
		if err != nil {
			return nil, err
		}
		if ok && f.Time.Before(at) {
			low = f.First + 1
		} else {
			high = middle
		}
	}
	return r.frames(b, " AND first >= ? LIMIT 1", int64(low))
}
