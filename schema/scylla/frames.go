package scylla

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

// mark returns the topic's low mark in a partition: frames below it are forgotten.
func (d *db) mark(ctx context.Context, t schema.TopicID, p schema.PartitionID) (o schema.Offset, err error) {
	iter := d.query(ctx, "SELECT mark FROM low_marks WHERE partition_id = ? AND topic = ?", int(p), int64(t)).Iter()
	iter.Scan((*int64)(&o))
	return o, iter.Close()
}

// Frames implements schema.Log.
func (s *Store) Frames(ctx context.Context, t schema.TopicID, p schema.PartitionID, from, to schema.Offset, bytesMax int) (fs []schema.Frame, err error) {
	if from >= to {
		return nil, nil
	}
	err = s.try(ctx, schema.Unavailable, "read frames", func(d *db) error {
		r := &reader{ctx: ctx, db: d, topic: t, partition: p, pageSize: 256}
		fs, err = r.read(from, to, bytesMax)
		return err
	})
	return fs, err
}

// read finds out which frames they are by their metadata, and then reads just their blobs: frames are of 1 KiB or of 1 MiB, and pages of
// a number of them would be too small or too large.
func (r *reader) read(from, to schema.Offset, bytesMax int) ([]schema.Frame, error) {
	m := &merge{open: func(b bucket) (*source, error) {
		return r.frames(b, " AND first >= ? AND first < ?", int64(b.start), int64(to))
	}}
	var low schema.Offset
	var g errgroup.Group
	g.Go(func() (err error) {
		low, err = r.db.mark(r.ctx, r.topic, r.partition)
		return err
	})
	// A frame that begins before from does so in this span or the one before.
	m.index = r.buckets(spanOf(from)-spanOffsets, to)
	if err := g.Wait(); err != nil {
		_ = m.index.iter.Close()
		return nil, err
	}
	r.begin(m, from, to, low)
	var found []frameMeta
	size := int64(0)
	for f, ok := m.next(); ok; f, ok = m.next() {
		if f.First >= to {
			break
		}
		if size += f.size; size > int64(bytesMax) && len(found) > 0 {
			break
		}
		found = append(found, f)
	}
	if err := m.close(); err != nil {
		return nil, err
	}
	return r.fill(found)
}

// fill reads the blobs of frames, all buckets side by side.
func (r *reader) fill(found []frameMeta) ([]schema.Frame, error) {
	buckets := map[bucket][]*frameMeta{}
	for i := range found {
		b := found[i].bucket()
		buckets[b] = append(buckets[b], &found[i])
	}
	var g errgroup.Group
	for b, fs := range buckets {
		g.Go(func() error { return r.fillBucket(b, fs) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	fs := make([]schema.Frame, len(found))
	for i := range found {
		fs[i] = found[i].Frame
	}
	return fs, nil
}

// pageBytes bounds one answer of the database.
const pageBytes = 4 << 20

func (r *reader) fillBucket(b bucket, fs []*frameMeta) error {
	table, err := b.class.table()
	if err != nil {
		return err
	}
	largest := int64(1)
	for _, f := range fs {
		largest = max(largest, f.size)
	}
	q := r.db.query(r.ctx, "SELECT first, blob FROM "+table+frameWhere+" AND first >= ? AND first <= ?",
		int64(r.topic), int(r.partition), int(b.width), int64(b.start), int64(fs[0].First), int64(fs[len(fs)-1].First))
	iter := q.PageSize(int(min(max(pageBytes/largest, 1), 256))).Iter()
	for len(fs) > 0 {
		var first schema.Offset
		var blob []byte
		if !iter.Scan((*int64)(&first), &blob) {
			break
		}
		if first == fs[0].First {
			fs[0].Blob, fs = unpack(blob, fs[0].size), fs[1:]
		}
	}
	if err := iter.Close(); err != nil {
		return err
	}
	if len(fs) > 0 {
		return errExpired
	}
	return nil
}

// errExpired is tried again: then the frame is not found in the first place.
var errExpired = errors.New("a frame went between two reads")

// begin opens the buckets that begin before from: one of them may hold a frame that reaches over it.
func (r *reader) begin(m *merge, from, to, low schema.Offset) {
	var behind []bucket
	for from = max(from, low); m.index.next(); {
		if m.index.row.start >= from {
			m.pending = true
			break
		}
		// No frame is longer than its bucket is wide.
		if b := m.index.row.bucket; b.end()+b.width > from {
			behind = append(behind, b)
		}
	}
	m.ended = !m.pending
	type kind struct {
		width schema.Offset
		class class
	}
	settled := map[kind]bool{}
	for i := len(behind) - 1; i >= 0 && m.err == nil; i-- {
		b, start := behind[i], from
		if k := (kind{b.width, b.class}); from > low && !settled[k] {
			f, ok, err := r.one(b, " AND first < ? ORDER BY first DESC", int64(from))
			if err != nil {
				m.fail(err)
				return
			}
			if settled[k] = ok; ok && f.End() > from && f.First >= low {
				start = f.First
			}
		}
		if start < b.end() {
			m.add(r.frames(b, " AND first >= ? AND first < ?", int64(start), int64(to)))
		}
	}
}

// Locate implements schema.Log. Commits with an offset of a span lie in the log buckets that the span's index rows name. A row's first
// is of one of the commits there, and offsets grow from bucket to bucket: the commit is in the last bucket that begins at or
// before the offset by that, or in the one after.
func (s *Store) Locate(ctx context.Context, p schema.PartitionID, o schema.Offset) (f schema.Frame, ok bool, err error) {
	var found frameMeta
	err = s.try(ctx, schema.Unavailable, "locate a message", func(d *db) error {
		found, ok, err = d.locate(ctx, p, o)
		return err
	})
	if err != nil || !ok {
		return f, false, err
	}
	var low schema.Offset
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.try(ctx, schema.Unavailable, "read a topic's mark", func(d *db) (err error) {
			low, err = d.mark(ctx, found.Topic, p)
			return err
		})
	})
	g.Go(func() (err error) {
		f, ok, err = s.frame(ctx, p, &found)
		return err
	})
	if err := g.Wait(); err != nil || !ok || f.First < low {
		return schema.Frame{}, false, err
	}
	return f, true, nil
}

// place is a bucket of the log.
type place struct {
	epoch  schema.Epoch
	bucket int64
}

func (d *db) locate(ctx context.Context, p schema.PartitionID, o schema.Offset) (f frameMeta, ok bool, err error) {
	iter := d.query(ctx, "SELECT epoch, bucket, first FROM log_offsets WHERE partition_id = ? AND span = ?", int(p), int64(spanOf(o))).Iter()
	var candidates []place
	var at place
	var first schema.Offset
	for iter.Scan((*int64)(&at.epoch), &at.bucket, (*int64)(&first)) {
		if first <= o {
			candidates = candidates[:0]
		}
		candidates = append(candidates, at)
		if first > o {
			break
		}
	}
	if err := iter.Close(); err != nil {
		return f, false, err
	}
	for _, c := range candidates {
		f, ok, err = d.locateIn(ctx, p, c, o)
		if ok || err != nil {
			return f, ok, err
		}
	}
	return f, false, nil
}

// locateIn looks through one bucket of the log.
func (d *db) locateIn(ctx context.Context, p schema.PartitionID, at place, o schema.Offset) (f frameMeta, ok bool, err error) {
	iter := d.query(ctx, "SELECT first, count, time, frames FROM log WHERE partition_id = ? AND epoch = ? AND bucket = ?",
		int(p), int64(at.epoch), at.bucket).PageSize(commitsPerBucket).Iter()
	var r commitRow
	var frames []byte
	for iter.Scan((*int64)(&r.first), &r.count, &r.Time, &frames) {
		if r.first > o {
			break
		}
		if o >= r.first+schema.Offset(r.count) {
			continue
		}
		fs, err := parseFrames(frames, r.first, r.Time)
		if err != nil {
			_ = iter.Close()
			return f, false, schema.WrapError(schema.Internal, err, "the commit at offset %d of partition %d cannot be read", r.first, p)
		}
		for i := range fs {
			if fs[i].First <= o && o < fs[i].End() {
				f, ok = fs[i], true
			}
		}
		break
	}
	return f, ok, iter.Close()
}
