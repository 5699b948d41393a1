package scylla

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// notedMax bounds the index rows that are remembered as written. What falls out is written again, which is harmless.
	notedMax = 1 << 16
	// noteAgain is how old an index row may be when something is written under it. Rows of the index live for 30 days and what
	// they point at for 15 at most, so that none of it is ever without its index.
	noteAgain = 7 * 24 * time.Hour
)

type noteKind int8

const (
	noteLogBucket noteKind = iota
	noteLogOffset
	noteTopicBucket
	noteAttemptHour
)

// note names an index row.
type note struct {
	kind       noteKind
	a, b, c, d int64
	class      class
}

// noter writes index rows that this process has not written lately, side by side.
type noter struct {
	s     *Store
	group *errgroup.Group
	ctx   context.Context
}

func (s *Store) noter(ctx context.Context) *noter {
	n := &noter{s: s}
	n.group, n.ctx = errgroup.WithContext(ctx)
	return n
}

// add begins to write one row. Rows of the index are at quorum whatever the level of what they point at: another commit
// under the same row may have a higher one.
func (n *noter) add(k note, stmt string, args ...any) {
	if at, ok := n.s.noted.Get(k); ok && time.Since(at) < noteAgain {
		return
	}
	n.group.Go(func() error {
		begun := time.Now()
		err := n.s.try(n.ctx, schema.Unknown, "write an index row", func(d *db) error {
			return d.query(n.ctx, stmt, args...).Exec()
		})
		if err == nil {
			n.s.noted.Add(k, begun)
		}
		return err
	})
}

func (n *noter) wait() error { return n.group.Wait() }

// noteCommit writes the index rows that must be there before a commit is: whoever looks for the commit begins with them.
func (s *Store) noteCommit(ctx context.Context, c *schema.Commit) error {
	n := s.noter(ctx)
	p, e, b := int64(c.Partition), int64(c.Epoch), logBucket(c.Seq)
	n.add(note{kind: noteLogBucket, a: p, b: e, c: b},
		"INSERT INTO log_buckets (partition_id, epoch, bucket) VALUES (?, ?, ?)", p, e, b)
	for span := spanOf(c.First()); span < c.End(); span += spanOffsets {
		n.add(note{kind: noteLogOffset, a: p, b: int64(span), c: e, d: b},
			"INSERT INTO log_offsets (partition_id, span, epoch, bucket, first) VALUES (?, ?, ?, ?, ?)", p, int64(span), e, b, int64(c.First()))
	}
	for i := range c.Frames {
		f := &c.Frames[i]
		k := bucketOf(f)
		n.add(note{kind: noteTopicBucket, a: int64(f.Topic), b: p, c: int64(k.start), d: int64(k.width), class: k.class},
			"INSERT INTO topic_buckets (topic, partition_id, start, width, class, time) VALUES (?, ?, ?, ?, ?, ?)",
			int64(f.Topic), p, int64(k.start), int(k.width), int8(k.class), f.Time)
	}
	return n.wait()
}
