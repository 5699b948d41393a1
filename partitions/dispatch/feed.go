package dispatch

import (
	"container/heap"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/schema"
)

const (
	heldBytesMax  = 4 << 20 // content that one feed holds ready; enough for 16 full frames' worth of small messages
	parkedFactor  = 10      // how many times max_outstanding may wait for a retry, a delay or their key
	ackedAheadMax = 4 << 20 // settled messages above an unsettled one, before reading on stops
	readBytes     = 512 << 10
	deadMarksMax  = 10_000
)

// feed brings the messages of one partition to one subscription. Every message of the topic from start on is, at any time,
// exactly one of: below the floor or acked (settled), outstanding (an entry), or at or past read (not looked at yet).
type feed struct {
	sub   *subscription
	owner *owner.Owner

	mu      sync.Mutex
	cursor  *cursor
	read    schema.Offset
	reading bool
	behind  bool           // there may be more to read
	woken   bool           // something was committed since the last read began
	frames  []schema.Frame // read and not yet looked through
	first   *entry         // outstanding, in order of offset
	last    *entry
	entries map[schema.Offset]*entry
	ready   []*entry
	active  int                 // entries that are ready or leased
	held    int                 // bytes of content in entries
	keys    map[string][]*entry // ordered: what waits behind the outstanding message of a key
	timed   timedEntries
	timer   *time.Timer
	leases  int64
	graves  []*entry
	burying bool
	stopped bool
}

type entryState uint8

const (
	ready   entryState = iota
	blocked            // another message of its key is outstanding
	waiting            // for its time
	leased             // handed out
	dying              // on its way to the dead letters
)

// entry is one outstanding message.
type entry struct {
	offset     schema.Offset
	state      entryState
	key        string
	message    schema.Message
	loaded     bool // message is there; once handed out it is read again when it is needed again
	attempts   int
	lease      int64     // names the hand-out; 0 = none yet
	at         time.Time // waiting: when it is due; leased by a puller: when the lease ends
	index      int       // in timed, -1 = not there
	prev, next *entry
	reason     string // dying: why
}

func newFeed(s *subscription, o *owner.Owner, c *cursor) *feed {
	return &feed{sub: s, owner: o, cursor: c, read: c.floor, behind: true, entries: map[schema.Offset]*entry{}, keys: map[string][]*entry{}}
}

// add takes a message that was read into the feed. f.mu is held.
func (f *feed) add(m *schema.Message, now time.Time) {
	e := &entry{offset: m.ID.Offset(), index: -1}
	if f.sub.spec().Ordered {
		e.key = m.Key
	}
	if t, ok := f.cursor.attempts[e.offset]; ok {
		e.attempts, e.at = t.count, t.due
	}
	if m.DeliverAt.After(e.at) {
		e.at = m.DeliverAt
	}
	e.message, e.loaded = *m, true
	f.held += len(m.Content)
	f.link(e)
	if e.key != "" {
		if queue, locked := f.keys[e.key]; locked {
			e.state = blocked
			f.keys[e.key] = append(queue, e)
			f.drop(e)
			return
		}
		f.keys[e.key] = nil
	}
	f.offer(e, now)
}

// offer makes an entry ready, or lets it wait for its time. f.mu is held.
func (f *feed) offer(e *entry, now time.Time) {
	if e.at.After(now) {
		e.state = waiting
		f.drop(e)
		f.setTimer(e)
		return
	}
	e.state = ready
	f.active++
	f.ready = append(f.ready, e)
}

// drop lets go of a message's content.
func (f *feed) drop(e *entry) {
	if e.loaded {
		f.held -= len(e.message.Content)
		e.message, e.loaded = schema.Message{}, false
	}
}

func (f *feed) link(e *entry) {
	f.entries[e.offset] = e
	e.prev = f.last
	if f.last != nil {
		f.last.next = e
	} else {
		f.first = e
	}
	f.last = e
}

func (f *feed) unlink(e *entry) {
	delete(f.entries, e.offset)
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		f.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		f.last = e.prev
	}
	if e.index >= 0 {
		heap.Remove(&f.timed, e.index)
	}
	f.drop(e)
}

// settle ends an entry: it is acknowledged, dead or lost, and the next of its key may go. f.mu is held.
func (f *feed) settle(e *entry, now time.Time) {
	if e.state == ready || e.state == leased {
		f.active--
	}
	wasFirst := f.first == e
	f.unlink(e)
	delete(f.cursor.attempts, e.offset)
	if wasFirst {
		f.raiseFloor()
	} else {
		f.cursor.acked.Add(uint64(e.offset))
	}
	if e.key != "" {
		f.unlock(e.key, now)
	}
	f.sub.d.saver.mark(f)
}

func (f *feed) raiseFloor() {
	floor := f.read
	if f.first != nil {
		floor = f.first.offset
	}
	if floor > f.cursor.floor {
		f.cursor.acked.RemoveRange(0, uint64(floor))
		f.cursor.floor = floor
	}
}

// unlock lets the next message of a key go.
func (f *feed) unlock(key string, now time.Time) {
	queue := f.keys[key]
	if len(queue) == 0 {
		delete(f.keys, key)
		return
	}
	f.keys[key] = queue[1:]
	f.offer(queue[0], now)
}

// retry puts a leased entry back, due after a while. f.mu is held.
func (f *feed) retry(e *entry, due, now time.Time) {
	f.active--
	e.at = due
	f.cursor.attempts[e.offset] = tries{count: e.attempts, due: due}
	f.sub.d.saver.mark(f)
	f.offer(e, now)
}

// popReady takes the next entry that may be handed out. f.mu is held.
func (f *feed) popReady() *entry {
	for len(f.ready) > 0 {
		e := f.ready[0]
		f.ready[0] = nil
		f.ready = f.ready[1:]
		if e.state == ready && f.entries[e.offset] == e {
			return e
		}
	}
	f.ready = nil
	return nil
}

// reset moves the feed to another position: nothing that was outstanding is known any more.
func (f *feed) reset(start schema.Offset, seeks int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.cursor.lost
	f.cursor = newCursor(start, seeks)
	f.cursor.lost = lost
	f.read, f.behind = start, true
	f.first, f.last, f.ready, f.graves, f.timed, f.frames = nil, nil, nil, nil, nil, nil
	f.entries, f.keys = map[schema.Offset]*entry{}, map[string][]*entry{}
	f.active, f.held = 0, 0
	f.sub.d.saver.mark(f)
}

// stop ends the feed. Leases that are out are not accepted any more.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.timer != nil {
		f.timer.Stop()
	}
}

// forget notes that retention took runs of messages, and counts those that were not settled.
func (f *feed) forget(gone []schema.OffsetRange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := int64(0)
	end := schema.Offset(0)
	for _, r := range gone {
		end = r.First + schema.Offset(r.Count)
		if from := max(r.First, f.read, f.cursor.start); from < end {
			settled := f.cursor.acked.Rank(uint64(end-1)) - rankBelow(f, from)
			lost += int64(end-from) - int64(settled)
		}
	}
	now := time.Now()
	for f.first != nil && f.first.offset < end {
		f.settle(f.first, now)
		lost++
	}
	if f.read < end {
		f.read, f.frames = end, nil
		f.raiseFloor()
	}
	if lost > 0 {
		f.cursor.lost += lost
		f.sub.d.metrics.lost.Add(float64(lost))
	}
	f.sub.d.saver.mark(f)
}

func rankBelow(f *feed, o schema.Offset) uint64 {
	if o == 0 {
		return 0
	}
	return f.cursor.acked.Rank(uint64(o - 1))
}

// timedEntries is a heap of the entries that wait for a time.
type timedEntries []*entry

func (t timedEntries) Len() int { return len(t) }
func (t timedEntries) Less(i, j int) bool {
	if t[i].at.Equal(t[j].at) {
		return t[i].offset < t[j].offset
	}
	return t[i].at.Before(t[j].at)
}
func (t timedEntries) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}
func (t *timedEntries) Push(x any) {
	e := x.(*entry)
	e.index = len(*t)
	*t = append(*t, e)
}
func (t *timedEntries) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	e.index = -1
	return e
}

// setTimer puts an entry among those that wait for e.at. f.mu is held.
func (f *feed) setTimer(e *entry) {
	if e.index >= 0 {
		heap.Fix(&f.timed, e.index)
	} else {
		heap.Push(&f.timed, e)
	}
	f.arm()
}

func (f *feed) arm() {
	if len(f.timed) == 0 || f.stopped {
		return
	}
	d := max(time.Until(f.timed[0].at), 0)
	if f.timer == nil {
		f.timer = time.AfterFunc(d, f.tick)
		return
	}
	f.timer.Reset(d)
}

// tick makes the entries ready whose time has come, and takes back the leases that ended.
func (f *feed) tick() {
	f.mu.Lock()
	if f.stopped {
		f.mu.Unlock()
		return
	}
	now := time.Now()
	for len(f.timed) > 0 && !f.timed[0].at.After(now) {
		e := heap.Pop(&f.timed).(*entry)
		switch e.state {
		case waiting:
			f.offer(e, now)
		case leased:
			f.leaseEnded(e, now)
		case dying:
			f.graves = append(f.graves, e)
		}
	}
	f.arm()
	f.mu.Unlock()
	f.sub.wake()
	f.bury()
}

// leaseEnded takes back a message that a puller did not acknowledge in time. f.mu is held.
func (f *feed) leaseEnded(e *entry, now time.Time) {
	f.sub.d.record(f, e, schema.LeaseEnded, schema.Result{Error: "the ack deadline passed"}, 0)
	f.failed(e, now, 0, "the ack deadline passed", now)
}

// failed decides what follows on a failed attempt: another one at due (or after the schedule's delay), or the dead letters. f.mu is held.
func (f *feed) failed(e *entry, now time.Time, wish time.Duration, reason string, due time.Time) {
	spec := f.sub.spec()
	if limit := spec.Attempts(); limit > 0 && e.attempts >= limit {
		f.kill(e, reason)
		return
	}
	if due.IsZero() {
		due = now.Add(spec.RetryDelay(e.attempts, wish))
	}
	f.retry(e, due, now)
}

// kill sends an entry on its way to the dead letters. f.mu is held.
func (f *feed) kill(e *entry, reason string) {
	if e.state == ready || e.state == leased {
		f.active--
	}
	if e.index >= 0 {
		heap.Remove(&f.timed, e.index)
	}
	e.state, e.reason = dying, reason
	f.cursor.attempts[e.offset] = tries{count: e.attempts}
	f.graves = append(f.graves, e)
}
