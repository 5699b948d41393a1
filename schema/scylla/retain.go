package scylla

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// retainFramesMax keeps one call short.
	retainFramesMax = 2000
	// sizesMax bounds the sums that are kept of buckets that nothing is added to any more.
	sizesMax = 1 << 16
)

// Retain implements schema.Log. It reads no blobs and deletes nothing: it moves the topic's mark, which every read respects, and the
// table's time to live gives the disk back.
func (s *Store) Retain(ctx context.Context, t schema.TopicID, p schema.PartitionID, before time.Time, bytesMax int64, upTo schema.Offset) (gone []schema.OffsetRange, more bool, err error) {
	err = s.try(ctx, schema.Unavailable, "find what retention ends", func(d *db) error {
		r := &reader{ctx: ctx, db: d, topic: t, partition: p, pageSize: 500}
		gone, more, err = s.expired(r, before, bytesMax, upTo)
		return err
	})
	if err != nil || len(gone) == 0 {
		return nil, false, err
	}
	last := gone[len(gone)-1]
	mark := int64(last.First) + int64(last.Count)
	err = s.try(ctx, schema.Unknown, "move a topic's mark", func(d *db) error {
		q := d.query(ctx, "INSERT INTO low_marks (partition_id, topic, mark) VALUES (?, ?, ?)", int(p), int64(t), mark)
		q.WithTimestamp(mark)
		return q.Exec()
	})
	if err != nil {
		return nil, false, err
	}
	return gone, more, nil
}

// expired returns the runs of the oldest frames that retention ends.
func (s *Store) expired(r *reader, before time.Time, bytesMax int64, upTo schema.Offset) (gone []schema.OffsetRange, more bool, err error) {
	low, err := r.db.mark(r.ctx, r.topic, r.partition)
	if err != nil {
		return nil, false, err
	}
	var size int64
	if bytesMax > 0 {
		if size, err = s.size(r, low); err != nil {
			return nil, false, err
		}
	}
	m := &merge{index: r.buckets(spanOf(low), schema.OffsetMax+1)}
	m.open = func(b bucket) (*source, error) {
		if b.end() <= low {
			return nil, nil
		}
		return r.frames(b, " AND first >= ?", int64(max(low, b.start)))
	}
	n := 0
	for f, ok := m.next(); ok; f, ok = m.next() {
		if f.End() > upTo || !f.Time.Before(before) && (bytesMax <= 0 || size <= bytesMax) {
			break
		}
		if n++; n > retainFramesMax {
			more = true
			break
		}
		size -= f.size
		gone = addRun(gone, f.First, f.Count)
	}
	return gone, more, m.close()
}

// addRun joins offsets to the last run when they adjoin it.
func addRun(rs []schema.OffsetRange, first schema.Offset, count int) []schema.OffsetRange {
	if n := len(rs); n > 0 && rs[n-1].First+schema.Offset(rs[n-1].Count) == first {
		rs[n-1].Count += count
		return rs
	}
	return append(rs, schema.OffsetRange{First: first, Count: count})
}

// sumKey names a bucket whose size is known.
type sumKey struct {
	topic     schema.TopicID
	partition schema.PartitionID
	bucket    bucket
}

// size is the bytes of the topic's frames from an offset on. The database adds up each bucket; sums of buckets that the topic's
// newest ones have left behind by a span are kept.
func (s *Store) size(r *reader, low schema.Offset) (total int64, err error) {
	index := r.buckets(spanOf(low), schema.OffsetMax+1)
	var buckets []bucket
	for index.next() {
		if b := index.row.bucket; b.end() > low {
			buckets = append(buckets, b)
		}
	}
	if err := index.iter.Close(); err != nil || len(buckets) == 0 {
		return 0, err
	}
	newest := buckets[len(buckets)-1].start
	for _, b := range buckets {
		k := sumKey{r.topic, r.partition, b}
		kept, ok := s.sizes.Get(k)
		if !ok || b.start < low {
			if kept, err = r.sum(b, max(low, b.start)); err != nil {
				return 0, err
			}
			if b.start >= low && b.end()+spanOffsets < newest {
				s.sizes.Add(k, kept)
			}
		}
		total += kept
	}
	return total, nil
}

func (r *reader) sum(b bucket, from schema.Offset) (n int64, err error) {
	table, err := b.class.table()
	if err != nil {
		return 0, err
	}
	q := r.db.query(r.ctx, "SELECT sum(size) FROM "+table+frameWhere+" AND first >= ?", int64(r.topic), int(r.partition), int(b.width), int64(b.start), int64(from))
	return n, q.PageSize(1000).Scan(&n)
}
