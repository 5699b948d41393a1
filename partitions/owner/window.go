package owner

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Digest identifies an idempotency key together with its topic and publisher.
type Digest [16]byte

// Key is the idempotency key of some records of a batch that follow each other.
type Key struct {
	Index, Count int // of the records
	Digest       Digest
	Fingerprint  uint64 // of the records, to tell a retry from other messages under the same key

	run bool // more records may join
}

// Budget bounds the idempotency keys that all partitions of a node remember together. Over it, publishes with new keys are refused:
// forgetting a key early would break the promise to those who retry.
type Budget struct {
	Max  int64
	used atomic.Int64
}

// window is the idempotency window of a partition. Only the commit loop uses it.
type window struct {
	budget *Budget
	seen   map[Digest]seen
	order  []expiry // oldest first
	head   int
}

type seen struct {
	offset      schema.Offset
	seq         schema.Seq // 0 = of an earlier epoch, committed for certain
	fingerprint uint64
}

type expiry struct {
	digest Digest
	at     int64 // unix milliseconds
}

func newWindow(b *Budget) *window { return &window{budget: b, seen: map[Digest]seen{}} }

// close gives its share of the budget back.
func (w *window) close() { w.budget.used.Add(-int64(len(w.seen))) }

func (w *window) find(d Digest) (seen, bool) {
	s, ok := w.seen[d]
	return s, ok
}

func (w *window) full() bool { return w.budget.used.Load() >= w.budget.Max }

// add notes a key. One that was seen in an earlier epoch, within the window but forgotten by then, counts once.
func (w *window) add(d Digest, s seen, at time.Time) {
	if _, found := w.seen[d]; !found {
		w.budget.used.Add(1)
	}
	w.seen[d] = s
	w.order = append(w.order, expiry{d, at.UnixMilli()})
}

// expire forgets the keys that are older than the window.
func (w *window) expire(now time.Time) {
	limit := now.Add(-schema.IdempotencyWindow).UnixMilli()
	for w.head < len(w.order) && w.order[w.head].at < limit {
		if d := w.order[w.head].digest; w.seen[d] != (seen{}) {
			delete(w.seen, d)
			w.budget.used.Add(-1)
		}
		w.head++
	}
	if w.head > 1024 && w.head > len(w.order)/2 {
		w.order = append([]expiry(nil), w.order[w.head:]...)
		w.head = 0
	}
}

// appendDigest encodes one key for Commit.Keys: the offset relative to the commit's first, digest, fingerprint.
func appendDigest(buf []byte, rel schema.Offset, k Key) []byte {
	buf = binary.AppendUvarint(buf, uint64(rel))
	buf = append(buf, k.Digest[:]...)
	return binary.LittleEndian.AppendUint64(buf, k.Fingerprint)
}

// load adds the keys of a committed commit of an earlier epoch.
func (w *window) load(c *schema.Commit) error {
	for rest := c.Keys; len(rest) > 0; {
		rel, n := binary.Uvarint(rest)
		if n <= 0 || len(rest) < n+len(Digest{})+8 {
			return fmt.Errorf("keys of commit %d/%d/%d are cut short", c.Partition, c.Epoch, c.Seq)
		}
		var d Digest
		copy(d[:], rest[n:])
		rest = rest[n+len(d):]
		w.add(d, seen{offset: c.First() + schema.Offset(rel), fingerprint: binary.LittleEndian.Uint64(rest)}, c.Time)
		rest = rest[8:]
	}
	return nil
}
