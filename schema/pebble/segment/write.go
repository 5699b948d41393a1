package segment

import (
	"errors"
	"syscall"

	"github.com/handfast-mq/handfast/schema"
)

const diskFull = "the disk is full: nothing was written"

// zeroBelow: where a sync takes more bytes than this, zeroing costs more than it gives.
const zeroBelow = 128 << 10

// current is the segment that is being written.
type current struct {
	id    uint64
	file  file
	dirty bool // has bytes that were not synced
	syncs int64
}

// write puts the group's records into the log, starting new segments as they fill. A record that finds no new
// segment fails alone; an error that may have left bytes behind is returned and ends the log.
func (l *Log) write(g *group) error {
	from, to := 0, 0 // of the buffer: placed in the current segment and not yet written
	for i, w := range g.waiters {
		if w.empty {
			continue
		}
		if l.full(int64(to-from), w.entry.Size) {
			if err := l.flush(g.buf[from:to]); err != nil {
				return err
			}
			from, to = w.start, w.start
			refused, err := l.roll()
			if err != nil {
				return err
			}
			if refused != nil {
				refuse(g.waiters[i:], refused)
				break
			}
		}
		l.place(g, w, l.written.Offset+int64(w.start-from))
		to = w.start + w.entry.Size
	}
	return l.flush(g.buf[from:to])
}

func refuse(ws []*waiter, err error) {
	for _, w := range ws {
		if !w.empty {
			w.err = err
		}
	}
}

// full tells whether a record of size bytes behind pending others needs a new segment. An empty segment takes any.
func (l *Log) full(pending int64, size int) bool {
	if l.cur == nil {
		return true
	}
	at := l.written.Offset + pending
	return at > 0 && at+int64(size) > l.opts.Bytes
}

// place gives a record its position and completes its header.
func (l *Log) place(g *group, w *waiter, at int64) {
	e := &w.entry
	e.Position = Position{l.cur.id, at}
	off := at + headerBytes + int64(e.MetaBytes)
	for i := range e.Frames {
		e.Frames[i].Offset = off
		off += int64(e.Frames[i].Length)
	}
	h := header{kind: e.Kind, segment: l.cur.id, run: l.run, offset: uint32(at), metaLen: uint32(e.MetaBytes),
		bodyLen: uint32(e.Size - headerBytes - e.MetaBytes), metaCRC: e.MetaCRC}
	h.put(g.buf[w.start:])
	g.entries = append(g.entries, e)
}

// flush writes bytes at the end of the log.
func (l *Log) flush(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := l.cur.file.WriteAt(b, l.written.Offset); err != nil {
		return schema.WrapError(schema.Internal, err, "the log cannot be written; it is closed until it is opened anew")
	}
	l.cur.dirty = true
	l.written.Offset += int64(len(b))
	if l.written.Offset > l.opts.Bytes/2 {
		l.files.wantSpare(l.nextBlocks())
	}
	return nil
}

// nextBlocks tells what kind of next file serves such writes as come now.
func (l *Log) nextBlocks() blocks {
	return blocks(l.written.Offset < l.cur.syncs*zeroBelow)
}

// sync forces the current segment to disk. A failed sync is never tried again: the kernel may have dropped the
// pages and would then report success for bytes that are nowhere.
func (l *Log) sync() error {
	if l.cur == nil || !l.cur.dirty {
		l.synced = l.written
		return nil
	}
	l.syncs.Add(1)
	l.cur.syncs++
	if err := l.cur.file.SyncData(); err != nil {
		return schema.WrapError(schema.Internal, err, "the log cannot be synced; it is closed until it is opened anew")
	}
	l.cur.dirty = false
	l.synced = l.written
	return nil
}

// roll seals the current segment and starts the next. Refused means that there is no room for a new segment and
// nothing is lost: a later call tries again.
func (l *Log) roll() (refused, err error) {
	if l.cur != nil {
		if err := l.seal(); err != nil {
			return nil, err
		}
	}
	id, f, err := l.files.next()
	if err != nil {
		return newSegmentError(err), nil
	}
	if l.cur != nil {
		_ = l.cur.file.Close()
		l.files.sealed(l.cur.id)
	}
	l.cur = &current{id: id, file: f}
	l.written = Position{Segment: id}
	l.synced = l.written
	return nil, nil
}

// seal marks the current segment as full, for whoever finds another one behind it. The log's end stays before the seal: without
// another segment it is nothing, and is written over.
func (l *Log) seal() error {
	var b [headerBytes]byte
	end := l.written
	h := header{kind: kindSeal, segment: l.cur.id, run: l.run, offset: uint32(end.Offset)}
	h.put(b[:])
	if err := l.flush(b[:]); err != nil {
		return err
	}
	l.written = end
	return l.sync()
}

func newSegmentError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return schema.WrapError(schema.Unavailable, err, diskFull)
	}
	return schema.WrapError(schema.Unavailable, err, "no new log file can be made: nothing was written")
}
