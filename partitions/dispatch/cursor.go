package dispatch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/handfast-mq/handfast/schema"
)

// cursor is what is kept of a subscription's progress in one partition: everything of its topic below floor is settled,
// acked holds the settled offsets above it. Acknowledgements only grow, so the rows of several owners unite.
type cursor struct {
	seeks    int64         // which replay it belongs to; only rows of the newest count
	start    schema.Offset // the first offset that the subscription is entitled to
	floor    schema.Offset
	lost     int64                   // messages that retention took before they were delivered
	failing  int64                   // unix milliseconds of the first failure since the last success; 0 = none
	acked    *roaring64.Bitmap       // settled above floor
	dead     *roaring64.Bitmap       // of all settled ones, those that went to the dead letters
	redriven *roaring64.Bitmap       // of the dead ones, those that were put back
	attempts map[schema.Offset]tries // of messages that were tried and are not settled
}

// tries says how often a message was tried and when it is due again.
type tries struct {
	count int
	due   time.Time
}

func newCursor(start schema.Offset, seeks int64) *cursor {
	return &cursor{seeks: seeks, start: start, floor: start, acked: roaring64.New(), dead: roaring64.New(), redriven: roaring64.New(), attempts: map[schema.Offset]tries{}}
}

const cursorVersion = 1

// encode writes the cursor for the store.
func (c *cursor) encode() []byte {
	buf := []byte{cursorVersion}
	for _, v := range []int64{c.seeks, int64(c.start), int64(c.floor), c.lost, c.failing} {
		buf = binary.AppendUvarint(buf, uint64(v))
	}
	for _, m := range []*roaring64.Bitmap{c.acked, c.dead, c.redriven} {
		if m.IsEmpty() {
			buf = binary.AppendUvarint(buf, 0)
			continue
		}
		m.RunOptimize()
		b, _ := m.ToBytes() // writes to memory, cannot fail
		buf = append(binary.AppendUvarint(buf, uint64(len(b))), b...)
	}
	buf = binary.AppendUvarint(buf, uint64(len(c.attempts)))
	for o, t := range c.attempts {
		buf = binary.AppendUvarint(buf, uint64(o))
		buf = binary.AppendUvarint(buf, uint64(t.count))
		buf = binary.AppendUvarint(buf, uint64(max(t.due.UnixMilli(), 0)))
	}
	return buf
}

// decodeCursor is the inverse of encode.
func decodeCursor(buf []byte) (*cursor, error) {
	if len(buf) == 0 || buf[0] != cursorVersion {
		return nil, fmt.Errorf("cursor is not of version %d", cursorVersion)
	}
	d := cursorReader{rest: buf[1:]}
	c := newCursor(0, 0)
	c.seeks, c.start, c.floor, c.lost, c.failing = d.int(), schema.Offset(d.int()), schema.Offset(d.int()), d.int(), d.int()
	d.bitmap(c.acked)
	d.bitmap(c.dead)
	d.bitmap(c.redriven)
	for n := d.int(); n > 0 && d.err == nil; n-- {
		o := schema.Offset(d.int())
		c.attempts[o] = tries{count: int(d.int()), due: time.UnixMilli(d.int())}
	}
	return c, d.err
}

type cursorReader struct {
	rest []byte
	err  error
}

func (d *cursorReader) int() int64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > 1<<62 {
		d.rest, d.err = nil, fmt.Errorf("cursor is cut short")
		return 0
	}
	d.rest = d.rest[n:]
	return int64(v)
}

func (d *cursorReader) bitmap(m *roaring64.Bitmap) {
	n := d.int()
	if n == 0 {
		return
	}
	if n > int64(len(d.rest)) {
		d.rest, d.err = nil, fmt.Errorf("cursor is cut short")
		return
	}
	if _, err := m.ReadFrom(bytes.NewReader(d.rest[:n])); err != nil {
		d.rest, d.err = nil, fmt.Errorf("cursor: %w", err)
		return
	}
	d.rest = d.rest[n:]
}

// unite joins what two owners knew. The order does not matter.
func unite(a, b *cursor) *cursor {
	if a.seeks != b.seeks {
		if a.seeks > b.seeks {
			return a
		}
		return b
	}
	c := newCursor(max(a.start, b.start), a.seeks)
	c.floor, c.lost = max(a.floor, b.floor), max(a.lost, b.lost)
	c.failing = max(a.failing, b.failing)
	c.acked = roaring64.Or(a.acked, b.acked)
	c.acked.RemoveRange(0, uint64(c.floor))
	c.dead = roaring64.Or(a.dead, b.dead)
	c.redriven = roaring64.Or(a.redriven, b.redriven)
	for _, from := range []*cursor{a, b} {
		for o, t := range from.attempts {
			if o >= c.floor && !c.acked.Contains(uint64(o)) && t.count >= c.attempts[o].count {
				c.attempts[o] = t
			}
		}
	}
	return c
}
