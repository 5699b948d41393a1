package pebble

import (
	"context"
	"errors"
	"time"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

// framesMax bounds one read of frames that have no bytes to speak of.
const framesMax = 4096

// Frames implements schema.Log.
func (s *Store) Frames(_ context.Context, t schema.TopicID, p schema.PartitionID, from, to schema.Offset, bytesMax int) ([]schema.Frame, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	var fs []schema.Frame
	err := s.again(func() error {
		fs = fs[:0]
		places, err := s.places(t, p, from, to, bytesMax)
		for i := 0; i < len(places) && err == nil; i++ {
			var f schema.Frame
			f, err = s.readFrame(t, places[i])
			fs = append(fs, f)
		}
		return err
	})
	if err != nil {
		return nil, internal(err, "read frames")
	}
	return fs, nil
}

// place is a frame's row with its first offset.
type place struct {
	first schema.Offset
	frameRow
}

func (f *place) end() schema.Offset { return f.first + schema.Offset(f.count) }

func (s *Store) readFrame(t schema.TopicID, f place) (schema.Frame, error) {
	b, err := s.log.Blob(f.at, f.length, f.crc)
	return schema.Frame{Topic: t, First: f.first, Count: f.count, Time: f.when(), Blob: b}, err
}

// places returns where the frames lie that hold offsets of [from, to).
func (s *Store) places(t schema.TopicID, p schema.PartitionID, from, to schema.Offset, bytesMax int) (ps []place, err error) {
	if from = max(from, 0); from >= to {
		return nil, nil
	}
	c, err := s.topicFrames(t, p)
	if err != nil {
		return nil, err
	}
	f, ok := c.holding(from)
	if !ok {
		f, ok = c.from(from)
	}
	bytes := 0
	for ; ok && f.first < to && len(ps) < framesMax; f, ok = c.next() {
		if bytes += f.length; bytes > bytesMax && len(ps) > 0 {
			break
		}
		ps = append(ps, f)
	}
	return ps, c.close()
}

// frameCursor walks the rows of one topic in one partition.
type frameCursor struct {
	it     *cockroach.Iterator
	prefix key
	err    error
}

func (s *Store) topicFrames(t schema.TopicID, p schema.PartitionID) (*frameCursor, error) {
	k := topicKey(p, t)
	it, err := s.db.NewIter(&cockroach.IterOptions{LowerBound: k, UpperBound: k.end()})
	return &frameCursor{it: it, prefix: k}, err
}

func (c *frameCursor) at(ok bool) (place, bool) {
	if !ok || c.err != nil {
		return place{}, false
	}
	r, err := parseFrameRow(c.it.Value())
	c.err = err
	return place{schema.Offset(numberAt(c.it.Key(), len(c.prefix))), r}, err == nil
}

func (c *frameCursor) key(o schema.Offset) key {
	return append(key(nil), c.prefix...).number(int64(o))
}

// holding goes to the frame that holds o; from goes to the first that begins at o or later.
func (c *frameCursor) holding(o schema.Offset) (place, bool) {
	f, ok := c.at(c.it.SeekLT(c.key(o + 1)))
	return f, ok && f.end() > o
}

func (c *frameCursor) from(o schema.Offset) (place, bool) { return c.at(c.it.SeekGE(c.key(o))) }
func (c *frameCursor) first() (place, bool)               { return c.at(c.it.First()) }
func (c *frameCursor) next() (place, bool)                { return c.at(c.it.Next()) }
func (c *frameCursor) close() error                       { return errors.Join(c.err, c.it.Close()) }

// Locate implements schema.Log.
func (s *Store) Locate(_ context.Context, p schema.PartitionID, o schema.Offset) (f schema.Frame, ok bool, err error) {
	if err := s.enter(); err != nil {
		return f, false, err
	}
	defer s.leave()
	if o < 0 || o > schema.OffsetMax {
		return f, false, nil
	}
	err = s.again(func() error {
		t, at, found, err := s.holder(p, o)
		if ok = found; err != nil || !found {
			return err
		}
		f, err = s.readFrame(t, at)
		return err
	})
	if err != nil || !ok {
		return schema.Frame{}, false, internal(err, "read a frame")
	}
	return f, true, nil
}

// holder finds the frame that holds an offset, of whatever topic.
func (s *Store) holder(p schema.PartitionID, o schema.Offset) (t schema.TopicID, f place, ok bool, err error) {
	prefix := row(rowOffset).partition(p)
	it, err := s.db.NewIter(&cockroach.IterOptions{LowerBound: prefix, UpperBound: prefix.end()})
	if err != nil {
		return 0, f, false, err
	}
	if !it.SeekLT(offsetKey(p, o+1)) {
		return 0, f, false, errors.Join(it.Error(), it.Close())
	}
	f.first = schema.Offset(numberAt(it.Key(), len(prefix)))
	t = schema.TopicID(parseNumber(it.Value()))
	if err := it.Close(); err != nil {
		return 0, f, false, err
	}
	f.frameRow, ok, err = s.index.frame(frameKey(p, t, f.first))
	return t, f, ok && f.end() > o, err
}

// SeekTime implements schema.Log. Times never go back along the offsets, so it halves the offsets.
func (s *Store) SeekTime(_ context.Context, t schema.TopicID, p schema.PartitionID, at time.Time) (o schema.Offset, ok bool, err error) {
	if err := s.enter(); err != nil {
		return 0, false, err
	}
	defer s.leave()
	c, err := s.topicFrames(t, p)
	if err != nil {
		return 0, false, internal(err, "read the index")
	}
	f, ok := c.first()
	low, high := f.first, schema.OffsetMax+1
	for ok && low < high {
		mid := low + (high-low)/2
		f, found := c.from(mid)
		if !found || !f.when().Before(at) {
			high = mid
		} else {
			low = f.first + 1
		}
	}
	if ok {
		f, ok = c.from(low)
	}
	if err := c.close(); err != nil {
		return 0, false, internal(err, "read the index")
	}
	return f.first, ok, nil
}

// Earliest implements schema.Log.
func (s *Store) Earliest(_ context.Context, t schema.TopicID, p schema.PartitionID) (o schema.Offset, ok bool, err error) {
	if err := s.enter(); err != nil {
		return 0, false, err
	}
	defer s.leave()
	c, err := s.topicFrames(t, p)
	if err != nil {
		return 0, false, internal(err, "read the index")
	}
	f, ok := c.first()
	if err := c.close(); err != nil {
		return 0, false, internal(err, "read the index")
	}
	return f.first, ok, nil
}
