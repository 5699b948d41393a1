package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/handfast-mq/handfast/schema"
)

// Open reads what the index has not seen, indexes it and makes the log ready for writing. Damage in a place that
// was on stable storage is an error with words; a torn end is where the log ends.
func Open(o Options) (*Log, error) {
	fl, err := openFiles(o)
	if err != nil {
		return nil, err
	}
	l := &Log{opts: o, files: fl, run: o.Mark.Run + 1, room: semaphore.NewWeighted(QueueBytesMax),
		group: new(group), dirty: make(chan struct{}, 1)}
	if err := l.replay(); err != nil {
		fl.close()
		return nil, err
	}
	if err := o.Index.Save(l.mark()); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("save the log's mark: %w", err)
	}
	l.done, l.stop = context.WithCancel(context.Background())
	if l.cur == nil {
		l.files.wantSpare(zeroed)
	}
	l.wg.Add(2)
	go l.syncLate()
	go l.keepSpare()
	return l, nil
}

// replay scans from the mark to the end of the log.
func (l *Log) replay() error {
	m := l.opts.Mark
	ids := l.files.ids()
	for len(ids) > 0 && ids[0] < m.Synced.Segment {
		ids = ids[1:]
	}
	if m.Synced.Segment != 0 && (len(ids) == 0 || ids[0] != m.Synced.Segment) {
		return fmt.Errorf("log file %s is missing", l.files.path(m.Synced.Segment))
	}
	l.written = m.Synced
	for i, id := range ids {
		s := scanner{l: l, segment: id, run: m.Run, last: i == len(ids)-1}
		if id == m.Synced.Segment {
			s.at = m.Synced.Offset
		} else {
			s.run = 0
		}
		if err := s.scan(); err != nil {
			return err
		}
	}
	l.synced = l.written
	if l.written.Less(m.Indexed) {
		if err := l.opts.Index.Truncate(l.written); err != nil {
			return fmt.Errorf("cut the index to the log's end: %w", err)
		}
	}
	return nil
}

// scanner replays one segment.
type scanner struct {
	l       *Log
	segment uint64
	at      int64
	run     uint64 // of the record before: runs never go back
	last    bool
	file    file
	pending []*Entry
	bytes   int
}

const replayBytes = 4 << 20 // per batch of the index

func (s *scanner) scan() (err error) {
	s.file, err = s.l.opts.FS.OpenReadWrite(s.l.files.path(s.segment), category)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	sealed, err := s.records()
	if err == nil && !sealed && !s.last {
		err = fmt.Errorf("log file %s is damaged at byte %d: a record that was on stable storage cannot be read",
			s.l.files.path(s.segment), s.at)
	}
	if err == nil {
		err = s.file.SyncData()
	}
	s.l.written = Position{s.segment, s.at}
	s.l.synced = s.l.written
	if err == nil {
		err = s.flush()
	}
	if err != nil || !s.last {
		return errors.Join(err, s.file.Close())
	}
	// The seal of the last segment counts for nothing: it is written again before there is another one.
	s.l.cur = &current{id: s.segment, file: s.file}
	s.l.files.segments[s.segment] = false
	return nil
}

// records reads to the seal or to the first place without a valid record. It stops before the seal: the log's end, and with it the
// mark, is never behind one.
func (s *scanner) records() (sealed bool, err error) {
	for {
		b, err := s.next()
		if err != nil || b == nil {
			return false, err
		}
		// A failed sync can leave a record in the page cache that is not on the disk: only writing it again makes
		// the next sync mean something.
		if _, err := s.file.WriteAt(b, s.at); err != nil {
			return false, fmt.Errorf("write log file: %w", err)
		}
		if len(b) == headerBytes {
			return true, nil
		}
		e, _, err := parseRecord(b)
		if err != nil {
			return false, err
		}
		e.Position = Position{s.segment, s.at}
		for i := range e.Frames {
			e.Frames[i].Offset += s.at
		}
		s.at += int64(len(b))
		if e.Position.Less(s.l.opts.Mark.Indexed) {
			continue
		}
		s.pending = append(s.pending, &e)
		if s.bytes += len(b); s.bytes >= replayBytes {
			s.l.written = Position{s.segment, s.at}
			if err := s.flush(); err != nil {
				return false, err
			}
		}
	}
}

// next returns the bytes of the next valid record, nil when there is none, a bare header for the seal.
func (s *scanner) next() ([]byte, error) {
	var hb [headerBytes]byte
	if n, err := s.file.ReadAt(hb[:], s.at); n < headerBytes {
		return nil, notEOF(err)
	}
	h, err := parseHeader(hb[:])
	if err != nil || h.segment != s.segment || int64(h.offset) != s.at || h.run < s.run {
		return nil, nil
	}
	s.run = h.run
	if h.kind == kindSeal {
		return hb[:], nil
	}
	b := make([]byte, h.size())
	if n, err := s.file.ReadAt(b, s.at); n < len(b) {
		return nil, notEOF(err)
	}
	if _, _, err := parseRecord(b); err != nil {
		return nil, nil
	}
	return b, nil
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read log file: %w", err)
}

// flush indexes what was read. The mark's synced end stays where it was until the log is open.
func (s *scanner) flush() error {
	l := s.l
	if len(s.pending) == 0 {
		return nil
	}
	m := Mark{Synced: l.opts.Mark.Synced, Indexed: l.written, Run: l.opts.Mark.Run}
	if err := l.opts.Index.Apply(s.pending, m); err != nil {
		return fmt.Errorf("index the log: %w", err)
	}
	s.pending, s.bytes = s.pending[:0], 0
	return nil
}

// syncLate syncs what was acknowledged unsynced when nobody else does.
func (l *Log) syncLate() {
	defer l.wg.Done()
	timer := time.NewTimer(syncDelay)
	defer timer.Stop()
	for {
		select {
		case <-l.done.Done():
			return
		case <-l.dirty:
		}
		timer.Reset(syncDelay)
		select {
		case <-l.done.Done():
			return
		case <-timer.C:
		}
		if err := l.Sync(l.done); err != nil && l.done.Err() == nil {
			l.opts.Logger.Error("late sync of the log failed", "error", err)
		}
	}
}

// keepSpare makes the next file before the current one is full.
func (l *Log) keepSpare() {
	defer l.wg.Done()
	for {
		var err error
		select {
		case <-l.done.Done():
			return
		case how := <-l.files.want:
			err = l.files.makeSpare(l.done, how)
		}
		if err != nil && l.done.Err() == nil {
			l.opts.Logger.Warn("no spare log file", "error", err)
		}
	}
}

// Close syncs and closes the log. Calls that run, or come later, fail.
func (l *Log) Close() error {
	l.stop()
	l.wg.Wait()
	err := l.Sync(context.Background())
	l.active.Lock() // waits for those who still write or index
	defer l.active.Unlock()
	l.mu.Lock()
	closed := errors.Is(l.err, os.ErrClosed)
	l.err = schema.WrapError(schema.Unavailable, os.ErrClosed, "the log is closed")
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.closeFiles()
	return err
}

func (l *Log) closeFiles() {
	if l.cur != nil {
		_ = l.cur.file.Close()
	}
	l.files.close()
}
