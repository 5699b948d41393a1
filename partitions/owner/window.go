package owner

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Digest identifies an idempotency key together with its topic and publisher.
type Digest [16]byte

// Key is the idempotency key of one record of a batch.
type Key struct {
	Index       int // of the record
	Digest      Digest
	Fingerprint uint64 // of the record, to tell a retry from another message under the same key
}

// windowKeysMax bounds the keys that one partition remembers: about 100 MB over 64 full partitions would be 25,000 keys
// each, and 100,000 a partition is 10 minutes of 160 keyed messages a second in every one of them. Over it, keyed publishes
// are refused: forgetting a key early would break the promise to those who retry.
const windowKeysMax = 100_000

// window is the idempotency window of a partition. Only the commit loop uses it.
type window struct {
	seen  map[Digest]seen
	order []expiry // oldest first
	head  int
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

func newWindow() *window { return &window{seen: map[Digest]seen{}} }

func (w *window) find(d Digest) (seen, bool) {
	s, ok := w.seen[d]
	return s, ok
}

func (w *window) full() bool { return len(w.seen) >= windowKeysMax }

func (w *window) add(d Digest, s seen, at time.Time) {
	w.seen[d] = s
	w.order = append(w.order, expiry{d, at.UnixMilli()})
}

// expire forgets the keys that are older than the window.
func (w *window) expire(now time.Time) {
	limit := now.Add(-schema.IdempotencyWindow).UnixMilli()
	for w.head < len(w.order) && w.order[w.head].at < limit {
		delete(w.seen, w.order[w.head].digest)
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
		if len(w.seen) < windowKeysMax {
			w.add(d, seen{offset: c.First() + schema.Offset(rel), fingerprint: binary.LittleEndian.Uint64(rest)}, c.Time)
		}
		rest = rest[8:]
	}
	return nil
}
