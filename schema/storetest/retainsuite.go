package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func (h *harness) wantGone(t schema.TopicID, before time.Time, bytesMax int64, want ...schema.OffsetRange) {
	h.Helper()
	gone := retain(h.T, h.Store, t, h.p, before, bytesMax)
	h.check(slices.Equal(gone, want), "gone %v, want %v", gone, want)
}

func (h *harness) wantEarliest(t schema.TopicID, want schema.Offset, wantOK bool) {
	h.Helper()
	o, ok, err := h.Earliest(h.ctx, t, h.p)
	h.ok(err)
	h.check(ok == wantOK && (!ok || o == want), "earliest of topic %d: %d %v, want %d %v", t, o, ok, want, wantOK)
}

func testRetainByTime(h *harness) {
	a, b, c, d := frame(10, 0, 10, 1), frame(10, 10, 10, 2), frame(11, 20, 5, 2), frame(10, 25, 5, 3)
	h.append(h.commit(1, 1, a), h.commit(1, 2, b, c), h.commit(1, 3, d))
	h.wantGone(10, at(1), 0)
	gone, _, err := h.Retain(h.ctx, 10, h.p, at(100), 1, 19)
	h.ok(err)
	h.check(slices.Equal(gone, []schema.OffsetRange{{First: 0, Count: 10}}), "up to 19: gone %v", gone)
	h.wantGone(12, at(100), 0)
	h.wantGone(10, at(3), 0, schema.OffsetRange{First: 10, Count: 10})
	h.reopened(func() {
		h.wantGone(10, at(3), 0)
		h.wantFrames(h.all(10, 0, 100), d)
		h.wantFrames(h.all(11, 0, 100), c)
		h.wantEarliest(10, 25, true)
		_, ok, err := h.Locate(h.ctx, h.p, 15)
		h.ok(err)
		h.check(!ok, "a forgotten offset is found")
		f, ok, err := h.Locate(h.ctx, h.p, 22)
		h.ok(err)
		h.check(ok && equalFrames(f, c), "the other topic's frame of the same commit: %v %v", f, ok)
		o, ok, err := h.SeekTime(h.ctx, 10, h.p, at(0))
		h.ok(err)
		h.check(ok && o == 25, "seek to before the oldest: %d %v", o, ok)
	})
	h.wantGone(10, at(100), 0, schema.OffsetRange{First: 25, Count: 5})
	h.wantEarliest(10, 0, false)
	h.wantFrames(h.all(11, 0, 100), c)
}

func testRetainByBytes(h *harness) {
	var want []schema.Frame
	for i := range 10 {
		f := frame(10, schema.Offset(i*5), 2, i)
		f.Blob = bytes.Repeat([]byte{1}, 1000)
		want = append(want, f)
		h.append(h.commit(1, schema.Seq(i+1), f, frame(11, schema.Offset(i*5+2), 3, i)))
	}
	h.wantGone(10, time.Time{}, 0)
	h.wantGone(10, time.Time{}, 10000)
	h.wantGone(10, time.Time{}, 9999, schema.OffsetRange{First: 0, Count: 2})
	h.reopened(func() {
		h.wantGone(10, time.Time{}, 9000)
		h.wantFrames(h.all(10, 0, 100), want[1:]...)
	})
	h.wantGone(10, at(3), 6500, schema.OffsetRange{First: 5, Count: 2}, schema.OffsetRange{First: 10, Count: 2},
		schema.OffsetRange{First: 15, Count: 2})
	h.reopened(func() {
		h.wantFrames(h.all(10, 0, 100), want[4:]...)
		h.check(len(h.all(11, 0, 100)) == 10, "the other topic lost frames")
	})
}

// testRetainMany forgets more than one call may, and writes on.
func testRetainMany(h *harness) {
	const n = 700
	for i := range n {
		h.ok(h.Append(h.ctx, h.commit(1, schema.Seq(i+1), frame(10, schema.Offset(i), 1, i)), schema.AckOne))
	}
	h.wantGone(10, at(n-1), 0, schema.OffsetRange{First: 0, Count: n - 1})
	last := frame(10, n, 1, n)
	h.append(h.commit(1, n+1, last))
	h.reopened(func() { h.wantFrames(h.all(10, 0, 2*n), frame(10, n-1, 1, n-1), last) })
}
