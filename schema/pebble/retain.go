package pebble

import (
	"context"
	"errors"
	"time"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

// retainFramesMax keeps one call short: commits wait while it holds the index.
const retainFramesMax = 256

// rangeFramesMin is from how many frames on a range is cheaper than rows.
const rangeFramesMin = 64

// Retain implements schema.Log.
func (s *Store) Retain(_ context.Context, t schema.TopicID, p schema.PartitionID, before time.Time, bytesMax int64, upTo schema.Offset) (gone []schema.OffsetRange, more bool, err error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.leave()
	ix := s.index
	ix.mu.Lock()
	defer ix.mu.Unlock()
	dead, more, err := s.expired(t, p, before, bytesMax, upTo)
	if err != nil || len(dead) == 0 {
		return nil, false, internal(err, "read the index")
	}
	b := ix.newBatch()
	err = b.forgetCommits(p, dead)
	for i := 0; i < len(dead) && err == nil; i++ {
		err = b.forget(p, t, &dead[i].frameRow)
	}
	if err != nil {
		_ = b.Close()
		return nil, false, internal(err, "read the index")
	}
	gone = runs(dead)
	b.forgetRows(t, p, dead, gone)
	if err := b.finish(cockroach.NoSync); err != nil {
		return nil, false, internal(err, "write the index")
	}
	ix.low[topic{p, t}] = dead[len(dead)-1].end()
	s.wake()
	return gone, more, nil
}

// expired returns the oldest frames that retention ends.
func (s *Store) expired(t schema.TopicID, p schema.PartitionID, before time.Time, bytesMax int64, upTo schema.Offset) (dead []place, more bool, err error) {
	size, err := s.index.size(topic{p, t})
	if err != nil {
		return nil, false, err
	}
	c, err := s.topicFrames(t, p)
	if err != nil {
		return nil, false, err
	}
	for f, ok := c.from(s.index.low[topic{p, t}]); ok; f, ok = c.next() {
		if f.end() > upTo || !f.when().Before(before) && (bytesMax <= 0 || size <= bytesMax) {
			break
		}
		if len(dead) == retainFramesMax {
			more = true
			break
		}
		size -= int64(f.length)
		dead = append(dead, f)
	}
	return dead, more, c.close()
}

// forgetRows deletes the frames' rows. Many go as ranges, since who reads from the oldest frame would step over each
// deleted row; few go one by one, since each range in a memtable makes the next iterator dearer.
func (b *batch) forgetRows(t schema.TopicID, p schema.PartitionID, dead []place, gone []schema.OffsetRange) {
	if len(dead) < rangeFramesMin {
		for i := range dead {
			_ = b.Delete(frameKey(p, t, dead[i].first), nil)
			_ = b.Delete(offsetKey(p, dead[i].first), nil)
		}
		return
	}
	_ = b.DeleteRange(frameKey(p, t, dead[0].first), frameKey(p, t, dead[len(dead)-1].end()), nil)
	for _, r := range gone {
		_ = b.DeleteRange(offsetKey(p, r.First), offsetKey(p, r.First+schema.Offset(r.Count)), nil)
	}
}

// forgetCommits takes the frames out of their commits, and the commits that have none left out of the index.
func (b *batch) forgetCommits(p schema.PartitionID, dead []place) error {
	commits := map[epochAndSeq]commitRow{}
	for i := range dead {
		id := epochAndSeq{dead[i].epoch, dead[i].seq}
		c, ok := commits[id]
		if !ok {
			var err error
			c, ok, err = b.ix.commit(commitKey(p, id.epoch, id.seq))
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
		}
		c.frames--
		commits[id] = c
	}
	var errs error
	for id, c := range commits {
		k := commitKey(p, id.epoch, id.seq)
		if c.frames <= 0 {
			errs = errors.Join(errs, b.Delete(k, nil))
		} else {
			errs = errors.Join(errs, b.Set(k, c.append(nil), nil))
		}
	}
	return errs
}

// runs joins adjoining frames.
func runs(fs []place) (rs []schema.OffsetRange) {
	for i := range fs {
		if n := len(rs); n > 0 && rs[n-1].First+schema.Offset(rs[n-1].Count) == fs[i].first {
			rs[n-1].Count += fs[i].count
			continue
		}
		rs = append(rs, schema.OffsetRange{First: fs[i].first, Count: fs[i].count})
	}
	return rs
}
