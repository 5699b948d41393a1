package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/handfast-mq/handfast/schema"
)

// Blob reads a frame's blob. It fails with ErrDamaged when the bytes there are others, as they are when the segment
// was reused since the caller looked the place up.
func (l *Log) Blob(at Position, length int, crc uint32) ([]byte, error) {
	b := make([]byte, length)
	if err := l.read(at, b); err != nil {
		return nil, err
	}
	if Checksum(b) != crc {
		return nil, fmt.Errorf("blob at byte %d of %s: %w", at.Offset, l.files.path(at.Segment), ErrDamaged)
	}
	return b, nil
}

// Commit reads a commit without its blobs. It fails as Blob does.
func (l *Log) Commit(at Position, metaBytes int) (c schema.Commit, err error) {
	b := make([]byte, headerBytes+metaBytes)
	if err := l.read(at, b); err != nil {
		return c, err
	}
	h, err := parseHeader(b)
	if err == nil && (h.segment != at.Segment || int64(h.offset) != at.Offset || int(h.metaLen) != metaBytes ||
		Checksum(b[headerBytes:]) != h.metaCRC) {
		err = ErrDamaged
	}
	if err == nil {
		c, _, err = parseMeta(b[headerBytes:])
	}
	if err != nil {
		return c, fmt.Errorf("record at byte %d of %s: %w", at.Offset, l.files.path(at.Segment), err)
	}
	return c, nil
}

// read fills b. A segment that is gone, or too short, is damage to who still points into it.
func (l *Log) read(at Position, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	err := l.files.readAt(at.Segment, b, at.Offset)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w: %w", l.files.path(at.Segment), ErrDamaged, err)
	}
	return fmt.Errorf("read log: %w", err)
}

// Scan calls f with the commits of a sealed segment, blobs included, from a byte on, until f returns false. It
// returns where it stopped; end is true at the segment's end. The slices are f's to keep.
func (l *Log) Scan(ctx context.Context, id uint64, from int64, f func(Entry, schema.Commit) bool) (at int64, end bool, err error) {
	h, err := l.files.acquire(id)
	if err != nil {
		return from, false, err
	}
	defer l.files.release(h)
	s := scanner{l: l, segment: id, at: from, file: h.file}
	for ctx.Err() == nil {
		b, err := s.next()
		if err != nil {
			return s.at, false, err
		}
		if b == nil {
			return s.at, false, fmt.Errorf("log file %s at byte %d: %w", l.files.path(id), s.at, ErrDamaged)
		}
		if len(b) == headerBytes {
			return s.at, true, nil
		}
		e, c, err := parseRecord(b)
		if err != nil {
			return s.at, false, err
		}
		e.Position = Position{id, s.at}
		if !f(e, c) {
			return s.at, false, nil
		}
		s.at += int64(len(b))
	}
	return s.at, false, ctx.Err()
}

// Sealed returns the segments that are full, oldest first.
func (l *Log) Sealed() []uint64 {
	ids := l.files.ids()
	l.files.mu.Lock()
	defer l.files.mu.Unlock()
	sealed := ids[:0]
	for _, id := range ids {
		if l.files.segments[id] {
			sealed = append(sealed, id)
		}
	}
	return sealed
}

// Recycle gives a sealed segment up. The caller has made sure that the index does not need it after a power cut:
// no row points into it, and the saved mark lies behind it.
func (l *Log) Recycle(id uint64) error { return l.files.recycle(id) }

// Stats are plain numbers for metrics.
type Stats struct {
	Syncs    int64 // of the log since it was opened
	Commits  int64 // indexed since it was opened
	Segments int
	Spares   int
	Bytes    int64 // of disk that segments and spares take, at their nominal size
}

// Stats returns the current numbers.
func (l *Log) Stats() Stats {
	l.files.mu.Lock()
	defer l.files.mu.Unlock()
	n, s := len(l.files.segments), len(l.files.spares)
	return Stats{Syncs: l.syncs.Load(), Commits: l.commits.Load(), Segments: n, Spares: s, Bytes: int64(n+s) * l.opts.Bytes}
}
