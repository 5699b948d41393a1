package scylla

import (
	"context"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

// Append implements schema.Log. The log row and the frames go out side by side, each one INSERT of one row: Commits does not
// count a commit whose frames are not all there. The timestamp is the commit's time, so that sending again changes nothing.
func (s *Store) Append(ctx context.Context, c *schema.Commit, level schema.AckLevel) error {
	if err := validate(c); err != nil {
		return err
	}
	if err := s.noteCommit(ctx, c); err != nil {
		return err
	}
	return s.write(ctx, c, s.levels.of(level))
}

func validate(c *schema.Commit) error {
	if err := c.Validate(); err != nil {
		return err
	}
	for i := range c.Frames {
		switch f := &c.Frames[i]; {
		case f.Count > spanOffsets:
			return schema.Errorf(schema.TooLarge, "frame %d has %d messages, more than %d", i, f.Count, spanOffsets)
		case len(f.Blob) > frameBytesMax:
			return schema.Errorf(schema.TooLarge, "frame %d has %d bytes, more than %d", i, len(f.Blob), frameBytesMax)
		}
	}
	return nil
}

func (s *Store) write(ctx context.Context, c *schema.Commit, level gocql.Consistency) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range c.Frames {
		g.Go(func() error {
			blob := pack(bytesOf(c.Frames[i].Blob))
			return s.try(ctx, schema.Unknown, "write a frame", func(d *db) error { return insertFrame(ctx, d, c, &c.Frames[i], blob, level) })
		})
	}
	g.Go(func() error {
		return s.try(ctx, schema.Unknown, "write a commit", func(d *db) error { return insertCommit(ctx, d, c, level) })
	})
	return g.Wait()
}

// insertFrame writes a frame with its blob as it is stored.
func insertFrame(ctx context.Context, d *db, c *schema.Commit, f *schema.Frame, blob []byte, level gocql.Consistency) error {
	b := bucketOf(f)
	table, err := b.class.table()
	if err != nil {
		return err
	}
	q := d.query(ctx, "INSERT INTO "+table+" (topic, partition_id, width, start, first, count, size, time, blob) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		int64(f.Topic), int(c.Partition), int(b.width), int64(b.start), int64(f.First), f.Count, int64(len(f.Blob)), f.Time, blob)
	q.Consistency(level).WithTimestamp(timestamp(c.Time))
	return q.Exec()
}

func insertCommit(ctx context.Context, d *db, c *schema.Commit, level gocql.Consistency) error {
	var keys any = gocql.UnsetValue
	if len(c.Keys) > 0 {
		keys = c.Keys
	}
	q := d.query(ctx, "INSERT INTO log (partition_id, epoch, bucket, seq, committed, first, count, time, frames, keys) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		int(c.Partition), int64(c.Epoch), logBucket(c.Seq), int64(c.Seq), int64(c.Committed), int64(c.First()), int(c.End()-c.First()), c.Time,
		appendFrames(nil, c), keys)
	q.Consistency(level).WithTimestamp(timestamp(c.Time))
	return q.Exec()
}

func timestamp(t time.Time) int64 { return t.UnixMicro() }

// bytesOf keeps an empty value from being written as a null, which would be a tombstone.
func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// rewriteMax bounds the commits that Rewrite holds at once.
const rewriteMax = 16

// Rewrite implements schema.Log. Times to live begin again.
func (s *Store) Rewrite(ctx context.Context, p schema.PartitionID, e schema.Epoch, first, last schema.Seq) error {
	for first <= last {
		cs, err := s.commits(ctx, p, e, first, int(min(last-first+1, rewriteMax)))
		if err != nil {
			return err
		}
		if len(cs) == 0 {
			return schema.Errorf(schema.Unavailable, "commit %d of epoch %d of partition %d is not there to be written again", first, e, p)
		}
		g, ctx := errgroup.WithContext(ctx)
		for i := range cs {
			g.Go(func() error { return s.rewrite(ctx, &cs[i]) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		first = cs[len(cs)-1].Seq + 1
	}
	return nil
}

func (s *Store) rewrite(ctx context.Context, r *commitRow) error {
	c := r.commit()
	for i := range r.frames {
		f, ok, err := s.frame(ctx, c.Partition, &r.frames[i])
		if err != nil {
			return err
		}
		if !ok {
			return schema.Errorf(schema.Unavailable, "a frame of commit %d of epoch %d of partition %d is not there to be written again", c.Seq, c.Epoch, c.Partition)
		}
		f.Retention = r.frames[i].class.retention()
		c.Frames[i] = f
	}
	if err := s.noteCommit(ctx, &c); err != nil {
		return err
	}
	return s.write(ctx, &c, s.levels.quorum)
}
