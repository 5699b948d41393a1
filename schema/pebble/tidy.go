package pebble

import (
	"errors"
	"fmt"
	"time"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

const (
	// tidyEvery is how long dead space may wait when nothing wakes the tidier.
	tidyEvery = time.Minute
	// moveBytesMax bounds what one round moves, so that moving never takes the disk from the commits for long.
	moveBytesMax = 16 << 20
	// moveBelow: a segment with less than a quarter alive costs little to move and gives much.
	moveBelow = 4
	// moveAge: the newest sealed segments are left alone, since their frames are about to go by themselves.
	moveAge = 2
)

func (s *Store) wake() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// tidy gives dead segments back, moves what lives in nearly dead ones, and drops old attempts, until Close.
func (s *Store) tidy() {
	defer s.wg.Done()
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done.Done():
			return
		case <-tick.C:
			s.pruneAttempts(time.Now())
		case <-s.dirty:
		}
		for more := true; more && s.done.Err() == nil; {
			var err error
			if more, err = s.reclaim(); err != nil && s.done.Err() == nil {
				s.logger.Error("log space cannot be reclaimed", "error", err)
			}
		}
	}
}

// reclaim does one bounded step; more tells that there may be another at once.
func (s *Store) reclaim() (more bool, err error) {
	n, err := s.recycleDead()
	if err != nil || n > 0 {
		return err == nil, err
	}
	id, ok := s.sparse()
	if !ok {
		return false, nil
	}
	moved, err := s.move(id)
	if err != nil || moved {
		return err == nil, err
	}
	return false, nil
}

// settled returns the sealed segments that lie wholly before the mark, and the live bytes of each.
func (s *Store) settled() (ids []uint64, live map[uint64]int64) {
	sealed := s.log.Sealed()
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	live = map[uint64]int64{}
	for _, id := range sealed {
		if id < s.index.mark.Synced.Segment {
			ids = append(ids, id)
			live[id] = s.index.live[id]
		}
	}
	return ids, live
}

func (s *Store) recycleDead() (n int, err error) {
	ids, live := s.settled()
	var dead []uint64
	for _, id := range ids {
		if live[id] <= 0 {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		return 0, nil
	}
	// After a power cut the index must not point into a file that holds something else by then.
	if err := s.db.LogData(nil, cockroach.Sync); err != nil {
		return 0, fmt.Errorf("sync the index: %w", err)
	}
	for _, id := range dead {
		if err := s.log.Recycle(id); err != nil {
			return n, fmt.Errorf("recycle a log file: %w", err)
		}
		n++
		if err := s.index.dropSegment(id); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (ix *index) dropSegment(id uint64) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	delete(ix.live, id)
	return ix.db.Delete(row(rowLive).number(int64(id)), cockroach.NoSync)
}

// sparse returns the oldest segment that is worth moving.
func (s *Store) sparse() (uint64, bool) {
	ids, live := s.settled()
	for i := 0; i < len(ids)-moveAge; i++ {
		if live[ids[i]] < s.bytes/moveBelow {
			return ids[i], true
		}
	}
	return 0, false
}

// move writes the frames of a segment that still live at the end of the log. It does up to moveBytesMax at once and
// begins anew the next time, when what was moved is dead. moved is false when there was nothing to move.
func (s *Store) move(id uint64) (moved bool, err error) {
	bytes := 0
	var failed error
	_, _, err = s.log.Scan(s.done, id, 0, func(e segment.Entry, c schema.Commit) bool {
		absent, n, err := s.index.absent(&e)
		if err == nil && n < len(absent) {
			moved = true
			bytes += e.Size
			err = s.log.Move(s.done, &c, absent)
		}
		failed = err
		return err == nil && bytes < moveBytesMax
	})
	return moved, errors.Join(err, failed)
}

// absent tells which frames of a record the index does not look for at this place, and how many they are.
func (ix *index) absent(e *segment.Entry) (absent []bool, n int, err error) {
	absent = make([]bool, len(e.Frames))
	for i := range e.Frames {
		f := &e.Frames[i]
		r, ok, err := ix.frame(frameKey(e.Partition, f.Topic, f.First))
		if err != nil {
			return nil, 0, err
		}
		here := segment.Position{Segment: e.Position.Segment, Offset: e.Position.Offset + f.Offset}
		if f.Absent || !ok || r.at != here {
			absent[i] = true
			n++
		}
	}
	return absent, n, nil
}
