package scylla

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

// commitRow is a row of the log.
type commitRow struct {
	schema.Commit // no frames
	first         schema.Offset
	count         int
	frames        []frameMeta
}

// commit returns the row as a commit without blobs.
func (r *commitRow) commit() schema.Commit {
	c := r.Commit
	c.Frames = make([]schema.Frame, len(r.frames))
	for i := range r.frames {
		c.Frames[i] = r.frames[i].Frame
	}
	return c
}

const commitColumns = "SELECT seq, committed, first, count, time, frames, keys FROM log WHERE partition_id = ? AND epoch = ? AND bucket = ?"

// scanCommits reads rows until each says stop.
func (d *db) scanCommits(ctx context.Context, p schema.PartitionID, e schema.Epoch, pageSize int, each func(*commitRow) (more bool), stmt string, args ...any) error {
	q := d.query(ctx, stmt, args...)
	q.PageSize(pageSize)
	iter := q.Iter()
	for {
		r := commitRow{Commit: schema.Commit{Partition: p, Epoch: e}}
		var frames []byte
		if !iter.Scan((*int64)(&r.Seq), (*int64)(&r.Committed), (*int64)(&r.first), &r.count, &r.Time, &frames, &r.Keys) {
			return iter.Close()
		}
		var err error
		if r.frames, err = parseFrames(frames, r.first, r.Time); err != nil {
			_ = iter.Close()
			return schema.WrapError(schema.Internal, err, "commit %d of epoch %d of partition %d cannot be read", r.Seq, e, p)
		}
		if !each(&r) {
			return iter.Close()
		}
	}
}

// LastCommit implements schema.Log. The index has a bucket before the bucket has a row, so the newest one may be empty.
func (s *Store) LastCommit(ctx context.Context, p schema.PartitionID, e schema.Epoch) (c schema.Commit, ok bool, err error) {
	err = s.try(ctx, schema.Unavailable, "read the last commit", func(d *db) error {
		c, ok = schema.Commit{}, false
		q := d.query(ctx, "SELECT bucket FROM log_buckets WHERE partition_id = ? AND epoch = ?", int(p), int64(e))
		q.PageSize(4)
		iter := q.Iter()
		var bucket int64
		for !ok && iter.Scan(&bucket) {
			err := d.scanCommits(ctx, p, e, 1, func(r *commitRow) bool {
				c, ok = r.commit(), true
				return false
			}, commitColumns+" ORDER BY seq DESC LIMIT 1", int(p), int64(e), bucket)
			if err != nil {
				_ = iter.Close()
				return err
			}
		}
		return iter.Close()
	})
	return c, ok, err
}

// Commits implements schema.Log.
func (s *Store) Commits(ctx context.Context, p schema.PartitionID, e schema.Epoch, first schema.Seq, limit int) ([]schema.Commit, error) {
	rows, err := s.commits(ctx, p, e, first, limit)
	if err != nil {
		return nil, err
	}
	cs := make([]schema.Commit, len(rows))
	for i := range rows {
		cs[i] = rows[i].commit()
	}
	return cs, nil
}

// commits returns the rows from first up to a hole. A row whose frames are not all there is one: the row may have been written and
// a frame not.
func (s *Store) commits(ctx context.Context, p schema.PartitionID, e schema.Epoch, first schema.Seq, limit int) (rows []commitRow, err error) {
	if first < 1 || limit < 1 {
		return nil, nil
	}
	err = s.try(ctx, schema.Unavailable, "read commits", func(d *db) error {
		rows = rows[:0]
		for next, full := first, true; full && len(rows) < limit; next = first + schema.Seq(len(rows)) {
			want := min(limit-len(rows), commitsPerBucket)
			err := d.scanCommits(ctx, p, e, min(want, 256), func(r *commitRow) bool {
				if r.Seq != first+schema.Seq(len(rows)) {
					return false
				}
				rows = append(rows, *r)
				return true
			}, commitColumns+" AND seq >= ? LIMIT ?", int(p), int64(e), logBucket(next), int64(next), want)
			if err != nil {
				return err
			}
			// Go on where this bucket was read to its end.
			reached := first + schema.Seq(len(rows))
			full = reached > next && (reached-1)%commitsPerBucket == 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.whole(ctx, p, rows)
}

// Kept implements schema.Log. The epoch is sealed, so that all of its rows up to last have their frames.
func (s *Store) Kept(ctx context.Context, p schema.PartitionID, e schema.Epoch, first, last schema.Seq) ([]schema.Commit, error) {
	var cs []schema.Commit
	for b := logBucket(max(first, 1)); b <= logBucket(last); b++ {
		before := len(cs)
		err := s.try(ctx, schema.Unavailable, "read commits", func(d *db) error {
			cs = cs[:before]
			return d.scanCommits(ctx, p, e, 256, func(r *commitRow) bool {
				cs = append(cs, r.commit())
				return true
			}, commitColumns+" AND seq >= ? AND seq <= ?", int(p), int64(e), b, int64(first), int64(last))
		})
		if err != nil {
			return nil, err
		}
	}
	return cs, nil
}

// whole cuts rows at the first whose frames are not all on a quorum. Those at or below a committed mark are known to be.
func (s *Store) whole(ctx context.Context, p schema.PartitionID, rows []commitRow) ([]commitRow, error) {
	var committed schema.Seq
	for i := range rows {
		committed = max(committed, rows[i].Committed)
	}
	whole := make([]bool, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range rows {
		if whole[i] = rows[i].Seq <= committed; !whole[i] {
			g.Go(func() (err error) {
				whole[i], err = s.framesThere(ctx, p, rows[i].frames)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range rows {
		if !whole[i] {
			return rows[:i], nil
		}
	}
	return rows, nil
}

func (s *Store) framesThere(ctx context.Context, p schema.PartitionID, fs []frameMeta) (bool, error) {
	for i := range fs {
		var count int
		found, err := s.frameRow(ctx, p, &fs[i], "count", &count)
		if err != nil || !found {
			return false, err
		}
	}
	return true, nil
}

// frame reads one frame by its place.
func (s *Store) frame(ctx context.Context, p schema.PartitionID, m *frameMeta) (f schema.Frame, ok bool, err error) {
	f = m.Frame
	var at time.Time
	var stored []byte
	ok, err = s.frameRow(ctx, p, m, "time, blob", &at, &stored)
	f.Blob = unpack(stored, m.size)
	return f, ok, err
}

func (s *Store) frameRow(ctx context.Context, p schema.PartitionID, m *frameMeta, columns string, into ...any) (found bool, err error) {
	b := m.bucket()
	table, err := b.class.table()
	if err != nil {
		return false, err
	}
	err = s.try(ctx, schema.Unavailable, "read a frame", func(d *db) error {
		iter := d.query(ctx, "SELECT "+columns+" FROM "+table+" WHERE topic = ? AND partition_id = ? AND width = ? AND start = ? AND first = ?",
			int64(m.Topic), int(p), int(b.width), int64(b.start), int64(m.First)).Iter()
		found = iter.Scan(into...)
		return iter.Close()
	})
	return found, err
}
