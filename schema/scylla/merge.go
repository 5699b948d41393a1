package scylla

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/handfast-mq/handfast/schema"
)

// bucketRow is a row of topic_buckets.
type bucketRow struct {
	bucket
	time time.Time // of one of its frames
}

const bucketColumns = "SELECT start, width, class, time FROM topic_buckets WHERE topic = ? AND partition_id = ?"

// bucketIter reads index rows.
type bucketIter struct {
	iter *gocql.Iter
	row  bucketRow
}

func (b *bucketIter) next() bool {
	var width int
	var c int8
	if !b.iter.Scan((*int64)(&b.row.start), &width, &c, &b.row.time) {
		return false
	}
	b.row.width, b.row.class = schema.Offset(width), class(c)
	return true
}

// buckets reads the topic's index rows that begin in [from, to).
func (r *reader) buckets(from, to schema.Offset) *bucketIter {
	q := r.db.query(r.ctx, bucketColumns+" AND start >= ? AND start < ?", int64(r.topic), int(r.partition), int64(from), int64(to))
	q.PageSize(256)
	return &bucketIter{iter: q.Iter().Iter}
}

// reader reads the frames of one topic in one partition.
type reader struct {
	ctx       context.Context
	db        *db
	topic     schema.TopicID
	partition schema.PartitionID
	pageSize  int
}

// source is the frames of one bucket, in order, without their blobs.
type source struct {
	iter  *gocql.Iter
	topic schema.TopicID
	head  frameMeta
}

// next reads the next frame into head.
func (s *source) next() bool {
	f := frameMeta{Frame: schema.Frame{Topic: s.topic}, class: s.head.class}
	ok := s.iter.Scan((*int64)(&f.First), &f.Count, &f.size, &f.Time)
	s.head = f
	return ok
}

const frameWhere = " WHERE topic = ? AND partition_id = ? AND width = ? AND start = ?"

// frames asks a bucket for its frames' metadata; where says which.
func (r *reader) frames(b bucket, where string, args ...any) (*source, error) {
	table, err := b.class.table()
	if err != nil {
		return nil, err
	}
	q := r.db.query(r.ctx, "SELECT first, count, size, time FROM "+table+frameWhere+where,
		append([]any{int64(r.topic), int(r.partition), int(b.width), int64(b.start)}, args...)...)
	q.PageSize(r.pageSize)
	return &source{iter: q.Iter().Iter, topic: r.topic, head: frameMeta{class: b.class}}, nil
}

// one returns the first frame that fits.
func (r *reader) one(b bucket, where string, args ...any) (f frameMeta, ok bool, err error) {
	meta := *r
	meta.pageSize = 1
	s, err := meta.frames(b, where+" LIMIT 1", args...)
	if err != nil {
		return f, false, err
	}
	ok = s.next()
	return s.head, ok, s.iter.Close()
}

// merge brings the frames of many buckets into one order. Buckets of different widths and classes overlap; usually there is one.
type merge struct {
	index   *bucketIter
	pending bool // index.row is not opened yet
	ended   bool
	open    func(bucket) (*source, error)
	sources []*source // each has a head
	err     error
}

// add takes in a source that was just opened.
func (m *merge) add(s *source, err error) {
	if err != nil {
		m.fail(err)
		return
	}
	if s == nil {
		return
	}
	if s.next() {
		m.sources = append(m.sources, s)
		return
	}
	m.fail(s.iter.Close())
}

func (m *merge) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// least returns the place of the source with the lowest head, -1 when there is none.
func (m *merge) least() int {
	at := -1
	for i, s := range m.sources {
		if at < 0 || s.head.First < m.sources[at].head.First {
			at = i
		}
	}
	return at
}

// next returns the frame with the lowest offset, after every bucket was opened that begins at or before it.
func (m *merge) next() (f frameMeta, ok bool) {
	for m.err == nil {
		if !m.pending && !m.ended {
			m.pending = m.index.next()
			m.ended = !m.pending
		}
		at := m.least()
		if m.pending && (at < 0 || m.index.row.start <= m.sources[at].head.First) {
			m.pending = false
			m.add(m.open(m.index.row.bucket))
			continue
		}
		if at < 0 {
			return f, false
		}
		s := m.sources[at]
		f = s.head
		if !s.next() {
			m.sources = append(m.sources[:at], m.sources[at+1:]...)
			m.fail(s.iter.Close())
		}
		return f, true
	}
	return f, false
}

// close ends all reading and returns the first error.
func (m *merge) close() error {
	for _, s := range m.sources {
		m.fail(s.iter.Close())
	}
	m.fail(m.index.iter.Close())
	return m.err
}
