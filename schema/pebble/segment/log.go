// Package segment keeps commits of all partitions in one log of large files, written in order.
//
// The simple view: a record is written, synced, indexed, acknowledged. One sync per commit would be far too slow, so
// all callers that wait at the same time share one write and one sync. The first of them writes for all (it leads);
// when its sync is done it names one of those who came meanwhile as the next leader, and indexes its own group while
// the next is being written. No other goroutine stands between a caller and the disk.
//
// Invariants: groups are written, synced and indexed in one order; a record is indexed before its caller hears of
// it; nothing is acknowledged as durable whose sync, or an earlier one, failed.
package segment

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/semaphore"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// QueueBytesMax bounds what waits for the disk: one largest record, or many small ones.
	QueueBytesMax = RecordBytesMax
	// syncDelay is how long a record written at AckOne may stay unsynced when nothing else is synced.
	syncDelay = time.Second
	// keepBufferMax bounds the buffers that are kept for reuse: a few groups of full commits fit.
	keepBufferMax = 8 << 20
)

// Position is a place in the log.
type Position struct {
	Segment uint64
	Offset  int64
}

// Less tells whether p lies before q.
func (p Position) Less(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// Mark is what the index keeps about the log, in the same batch as the rows that it speaks of.
type Mark struct {
	Synced  Position // all before it was on stable storage
	Indexed Position // all before it is in the index; never before Synced
	Run     uint64   // which opening of the log wrote last
}

// Index takes note of records. Calls come one at a time and in the order of the log.
type Index interface {
	// Apply notes entries and the mark that holds after them, in one batch. Entries are lent.
	Apply(entries []*Entry, m Mark) error
	// Truncate forgets all rows that point at end or behind it: the index was ahead of what a power cut left.
	Truncate(end Position) error
	// Save makes everything applied so far, and the mark, durable.
	Save(m Mark) error
}

// Options configure a log.
type Options struct {
	FS     vfs.FS
	Dir    string
	Bytes  int64 // of one segment
	Logger *slog.Logger
	Mark   Mark // as the index kept it
	Index  Index
}

// Log is an open log. All methods may be called from many goroutines.
type Log struct {
	opts  Options
	room  *semaphore.Weighted
	files *files
	run   uint64

	active sync.RWMutex // held for writing by Close alone

	mu      sync.Mutex
	group   *group // collects those who come while a leader writes
	leading bool
	err     error // set once: nothing is written after it

	// Of the leader alone.
	cur     *current
	written Position
	synced  Position

	indexMu  sync.Mutex
	indexErr error // a group after one that was not indexed must not be either

	dirty chan struct{} // cap 1: something was acknowledged unsynced
	wg    sync.WaitGroup
	stop  context.CancelFunc
	done  context.Context

	syncs   atomic.Int64
	commits atomic.Int64
}

// group is what one leader writes at once.
type group struct {
	buf     []byte
	waiters []*waiter
	entries []*Entry
	unsaved bool // somebody wants no sync
	moved   bool // has a moved commit, whose old place must not be forgotten before the new one is synced
	save    bool // somebody wants a sync
}

// waiter is one caller of Append. The log's mutex guards all but entry, which is the leader's from the moment it is
// queued until ready is signalled.
type waiter struct {
	entry     Entry
	start     int // of its record in the group's buffer
	sync      bool
	empty     bool // wants a sync only
	lead      bool
	done      bool
	abandoned bool
	err       error
	ready     chan struct{} // cap 1
}

var (
	groups  = sync.Pool{New: func() any { return new(group) }}
	waiters = sync.Pool{New: func() any { return &waiter{ready: make(chan struct{}, 1)} }}
)

// Append writes c and returns after it is indexed and, with sync, on stable storage. When ctx ends first the outcome
// is Unknown, or Unavailable when c was not queued yet. After a failed write or sync every call fails until the log
// is opened anew; a full disk fails the call alone where nothing was written yet. It keeps no reference to c.
func (l *Log) Append(ctx context.Context, c *schema.Commit, sync bool) error {
	return l.append(ctx, KindCommit, c, nil, sync)
}

// Move writes c again, without the absent frames, and returns after it is indexed and on stable storage.
func (l *Log) Move(ctx context.Context, c *schema.Commit, absent []bool) error {
	return l.append(ctx, KindMoved, c, absent, true)
}

// Sync returns when all that was written before the call is on stable storage.
func (l *Log) Sync(ctx context.Context) error {
	w := waiters.Get().(*waiter)
	w.reset(true)
	w.empty = true
	w.entry.Size = 0
	return l.submit(ctx, w, nil)
}

func (l *Log) append(ctx context.Context, k Kind, c *schema.Commit, absent []bool, sync bool) error {
	w := waiters.Get().(*waiter)
	w.reset(sync)
	w.entry.describe(k, c, absent)
	size := w.entry.Size
	if size > RecordBytesMax {
		return schema.Errorf(schema.TooLarge, "a commit of %d bytes is larger than the log takes (%d)", size, RecordBytesMax)
	}
	if err := l.room.Acquire(ctx, int64(size)); err != nil {
		return schema.WrapError(schema.Unavailable, err, "the log is busy: the commit was not written")
	}
	return l.submit(ctx, w, c)
}

func (w *waiter) reset(sync bool) {
	w.sync, w.empty, w.lead, w.done, w.abandoned, w.err = sync, false, false, false, false, nil
}

// submit queues w and waits for its end, leading a group when it is w's turn.
func (l *Log) submit(ctx context.Context, w *waiter, c *schema.Commit) error {
	l.active.RLock()
	defer l.active.RUnlock()
	size := int64(w.entry.Size)
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		l.room.Release(size)
		return l.err
	}
	l.group.add(w, c)
	lead := !l.leading
	l.leading = true
	l.mu.Unlock()
	if lead {
		l.lead()
	}
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			if l.abandon(w) {
				return schema.WrapError(schema.Unknown, ctx.Err(), "the disk did not answer in time")
			}
			<-w.ready
		}
		if !w.done {
			l.lead()
			continue
		}
		err := w.err
		waiters.Put(w)
		return err
	}
}

// add encodes c behind the group's other records. Copying here, in the caller's goroutine, leaves one contiguous
// write to the leader and no reference to c.
func (g *group) add(w *waiter, c *schema.Commit) {
	w.start = len(g.buf)
	if c != nil {
		g.buf = append(g.buf, make([]byte, headerBytes)...)
		g.buf = w.entry.appendMeta(g.buf, c)
		w.entry.MetaCRC = Checksum(g.buf[w.start+headerBytes:])
		for i := range c.Frames {
			if !w.entry.Frames[i].Absent {
				g.buf = append(g.buf, c.Frames[i].Blob...)
			}
		}
	}
	g.waiters = append(g.waiters, w)
	g.save = g.save || w.sync
	g.unsaved = g.unsaved || !w.sync
	g.moved = g.moved || c != nil && w.entry.Kind == KindMoved
}

// abandon gives w up, unless its end or its turn to lead came at the same moment.
func (l *Log) abandon(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.done || w.lead {
		return false
	}
	w.abandoned = true
	return true
}

// lead writes the waiting group and names the next leader.
func (l *Log) lead() {
	l.mu.Lock()
	g := l.group
	l.group = groups.Get().(*group)
	err := l.err
	l.mu.Unlock()
	l.commit(g, err)
	if cap(g.buf) > keepBufferMax {
		g.buf = nil
	}
	clear(g.waiters)
	clear(g.entries)
	*g = group{buf: g.buf[:0], waiters: g.waiters[:0], entries: g.entries[:0]}
	groups.Put(g)
}

func (l *Log) commit(g *group, err error) {
	if err == nil {
		err = l.write(g)
	}
	l.room.Release(int64(len(g.buf)))
	early := g.unsaved && !g.moved && err == nil
	if early {
		// Readers see what was acknowledged, so those who want no sync wait for the index all the same.
		l.indexMu.Lock()
		err = l.index(g, l.mark())
		l.indexMu.Unlock()
		g.entries = g.entries[:0]
		l.finish(g, false, err)
	}
	if err == nil && g.save {
		err = l.sync()
	}
	m := l.mark()
	// Taking the index before giving up the lead keeps the groups in order.
	l.indexMu.Lock()
	l.handOver(err)
	if err == nil && (!early || g.save) {
		if err = l.index(g, m); err != nil {
			l.poison(err)
		}
	}
	l.indexMu.Unlock()
	if g.unsaved && !g.save && err == nil {
		select {
		case l.dirty <- struct{}{}:
		default:
		}
	}
	l.finish(g, true, err)
}

func (l *Log) mark() Mark { return Mark{Synced: l.synced, Indexed: l.written, Run: l.run} }

// index notes the group's records that were written.
func (l *Log) index(g *group, m Mark) error {
	if l.indexErr != nil {
		return l.indexErr
	}
	l.commits.Add(int64(len(g.entries)))
	if err := l.opts.Index.Apply(g.entries, m); err != nil {
		l.indexErr = schema.WrapError(schema.Internal, err, "the log's index cannot be written; the log is closed until it is opened anew")
	}
	return l.indexErr
}

// handOver names the next leader, or none when nobody waits. With an error nothing is written any more.
func (l *Log) handOver(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.err == nil {
		l.err = err
	}
	for _, w := range l.group.waiters {
		if !w.abandoned {
			w.lead = true
			w.ready <- struct{}{}
			return
		}
	}
	l.leading = false
}

// finish ends the wait of those who want no sync, and with saved of all the rest.
func (l *Log) finish(g *group, saved bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := g.waiters[:0] // who is done may reuse its waiter at once: forget it
	defer func() { g.waiters = rest }()
	for _, w := range g.waiters {
		if w.sync && !saved {
			rest = append(rest, w)
			continue
		}
		w.done = true
		if w.err == nil {
			if w.err = w.entry.Err; err != nil {
				w.err = err
			}
		}
		if !w.abandoned {
			w.ready <- struct{}{}
		}
	}
}

func (l *Log) poison(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		l.opts.Logger.Error("log failed", "error", err)
	}
}
