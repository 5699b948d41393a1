package storetest

import (
	"bytes"
	"slices"
	"sync"

	"github.com/handfast-mq/handfast/schema"
)

func (h *harness) wantFrames(got []schema.Frame, want ...schema.Frame) {
	h.Helper()
	h.check(slices.EqualFunc(got, want, equalFrames), "frames\n%v\nwant\n%v", got, want)
}

func (h *harness) wantSeqs(e schema.Epoch, first schema.Seq, limit int, want ...schema.Seq) {
	h.Helper()
	cs, err := h.Commits(h.ctx, h.p, e, first, limit)
	h.ok(err)
	var got []schema.Seq
	for _, c := range cs {
		got = append(got, c.Seq)
	}
	h.check(slices.Equal(got, want), "commits of epoch %d from %d: %v, want %v", e, first, got, want)
}

func testAppendAndRead(h *harness) {
	c1 := h.commit(1, 1, frame(10, 0, 3, 1), frame(11, 3, 2, 1))
	c2 := h.commit(1, 2, frame(10, 5, 1, 2))
	other := h.commit(1, 1, frame(10, 0, 9, 1))
	other.Partition++
	h.append(c1, c2, other)
	h.reopened(func() {
		h.wantFrames(h.all(10, 0, 100), c1.Frames[0], c2.Frames[0])
		h.wantFrames(h.all(11, 0, 100), c1.Frames[1])
		h.wantFrames(h.all(12, 0, 100))
		cs, err := h.Commits(h.ctx, h.p, 1, 1, 10)
		h.ok(err)
		h.check(len(cs) == 2 && equalCommits(cs[0], withoutBlobs(*c1)) && equalCommits(cs[1], withoutBlobs(*c2)), "commits %+v", cs)
		last, ok, err := h.LastCommit(h.ctx, h.p, 1)
		h.ok(err)
		h.check(ok && equalCommits(last, withoutBlobs(*c2)), "last commit %+v", last)
		_, ok, err = h.LastCommit(h.ctx, h.p, 2)
		h.ok(err)
		h.check(!ok, "an epoch without commits has a last one")
		o, ok, err := h.Earliest(h.ctx, 11, h.p)
		h.ok(err)
		h.check(ok && o == 3, "earliest %d %v", o, ok)
		h.ok(h.Rewrite(h.ctx, h.p, 1, 1, 2))
	})
}

// testAppendAgain sends commits twice, as an owner does that did not get the answer.
func testAppendAgain(h *harness) {
	c1 := h.commit(1, 1, frame(10, 0, 3, 1))
	c2 := h.commit(1, 2, frame(10, 3, 3, 2))
	h.append(c1, c2, c1, c2, c2)
	h.ok(h.Append(h.ctx, c1, schema.AckOne))
	h.reopened(func() {
		h.wantFrames(h.all(10, 0, 100), c1.Frames[0], c2.Frames[0])
		h.wantSeqs(1, 1, 10, 1, 2)
		h.append(c1)
	})
	// What came twice is forgotten once.
	gone := retain(h.T, h.Store, 10, h.p, at(2), 0)
	h.check(slices.Equal(gone, []schema.OffsetRange{{First: 0, Count: 3}}), "gone %v", gone)
	h.wantFrames(h.all(10, 0, 100), c2.Frames[0])
}

func testAppendRefuses(h *harness) {
	good := func() *schema.Commit { return h.commit(1, 1, frame(10, 0, 3, 1), frame(11, 3, 1, 1)) }
	for name, spoil := range map[string]func(*schema.Commit){
		"no frames":     func(c *schema.Commit) { c.Frames = nil },
		"seq 0":         func(c *schema.Commit) { c.Seq = 0 },
		"epoch 0":       func(c *schema.Commit) { c.Epoch = 0 },
		"gap":           func(c *schema.Commit) { c.Frames[1].First++ },
		"empty frame":   func(c *schema.Commit) { c.Frames[1].Count = 0 },
		"partition -1":  func(c *schema.Commit) { c.Partition = -1 },
		"partition max": func(c *schema.Commit) { c.Partition = schema.PartitionsMax },
		"offset max":    func(c *schema.Commit) { c.Frames = c.Frames[:1]; c.Frames[0].First = schema.OffsetMax },
	} {
		c := good()
		spoil(c)
		err := h.Append(h.ctx, c, schema.AckQuorum)
		h.check(err != nil && schema.KindOf(err) == schema.Invalid, "%s: %v", name, err)
	}
	h.wantFrames(h.all(10, 0, 100))
	h.append(good())
}

func testAppendLevels(h *harness) {
	h.ok(h.Append(h.ctx, h.commit(1, 1, frame(10, 0, 1, 1)), schema.AckOne))
	h.wantSeqs(1, 1, 10, 1)
	h.ok(h.Append(h.ctx, h.commit(1, 2, frame(10, 1, 1, 1)), schema.AckAll))
	h.ok(h.Append(h.ctx, h.commit(1, 3, frame(10, 2, 1, 1)), schema.AckOne))
	h.reopened(func() { h.wantSeqs(1, 1, 10, 1, 2, 3) })
}

// testAppendSideBySide reads each commit right after its Append, among many others.
func testAppendSideBySide(h *harness) {
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			topic := schema.TopicID(100 + w)
			for i := range each {
				c := h.commit(1, schema.Seq(w*each+i+1), frame(topic, schema.Offset((w*each+i)*2), 2, 1))
				if err := h.Append(h.ctx, c, schema.AckLevel(i%3)); err != nil {
					h.Error(err)
					return
				}
				f, ok, err := h.Locate(h.ctx, h.p, c.First()+1)
				if err != nil || !ok || !equalFrames(f, c.Frames[0]) {
					h.Errorf("right after its Append: %v %v %v", f, ok, err)
				}
			}
		})
	}
	wg.Wait()
	h.reopened(func() {
		cs, err := h.Commits(h.ctx, h.p, 1, 1, 1000)
		h.ok(err)
		h.check(len(cs) == writers*each, "%d commits, want %d", len(cs), writers*each)
		for w := range writers {
			h.check(len(h.all(schema.TopicID(100+w), 0, 10000)) == each, "frames of writer %d", w)
		}
	})
}

func testHoles(h *harness) {
	at := func(s schema.Seq) *schema.Commit { return h.commit(3, s, frame(10, schema.Offset(s*10), 10, int(s))) }
	h.append(at(1), at(2), at(5), at(4))
	h.reopened(func() {
		h.wantSeqs(3, 1, 10, 1, 2)
		h.wantSeqs(3, 2, 10, 2)
		for _, c := range []struct {
			first, last schema.Seq
			want        []schema.Seq
		}{{1, 5, []schema.Seq{1, 2, 4, 5}}, {2, 4, []schema.Seq{2, 4}}, {3, 3, nil}, {5, 2000, []schema.Seq{5}}} {
			kept, err := h.Kept(h.ctx, h.p, 3, c.first, c.last)
			h.ok(err)
			h.check(slices.EqualFunc(kept, c.want, func(c schema.Commit, s schema.Seq) bool { return equalCommits(c, withoutBlobs(*at(s))) }),
				"kept %d..%d: %+v, want %v", c.first, c.last, kept, c.want)
		}
		h.wantSeqs(3, 3, 10)
		h.wantSeqs(3, 4, 10, 4, 5)
		h.wantSeqs(3, 1, 1, 1)
		h.wantSeqs(4, 1, 10)
		last, ok, err := h.LastCommit(h.ctx, h.p, 3)
		h.ok(err)
		h.check(ok && last.Seq == 5, "last commit %v %v, want 5 above the hole", last.Seq, ok)
	})
	h.append(at(3))
	h.reopened(func() { h.wantSeqs(3, 1, 10, 1, 2, 3, 4, 5) })
}

func testMiddleOfFrame(h *harness) {
	a, b, c := frame(10, 0, 10, 1), frame(10, 20, 10, 2), frame(10, 30, 1, 3)
	h.append(h.commit(1, 1, a, frame(11, 10, 10, 1)), h.commit(1, 2, b), h.commit(1, 3, c))
	h.reopened(func() {
		h.wantFrames(h.all(10, 5, 100), a, b, c)
		h.wantFrames(h.all(10, 9, 21), a, b)
		h.wantFrames(h.all(10, 10, 100), b, c)
		h.wantFrames(h.all(10, 25, 30), b)
		h.wantFrames(h.all(10, 29, 31), b, c)
		h.wantFrames(h.all(10, 31, 100))
		h.wantFrames(h.all(10, 10, 20))
		h.wantFrames(h.all(10, 7, 7))
		h.wantFrames(h.all(10, 9, 5))
	})
}

func testFramesByBytes(h *harness) {
	var want []schema.Frame
	for i := range 10 {
		f := frame(10, schema.Offset(i), 1, i)
		f.Blob = bytes.Repeat([]byte{byte(i)}, 1000*i)
		want = append(want, f)
		h.append(h.commit(1, schema.Seq(i+1), f))
	}
	h.reopened(func() {
		for _, bytesMax := range []int{0, 1, 3000, 10000, 1 << 20} {
			h.wantFrames(readAll(h.T, h.Store, 10, h.p, 0, 100, bytesMax), want...)
		}
		fs, err := h.Frames(h.ctx, 10, h.p, 9, 100, 1)
		h.ok(err)
		h.check(len(fs) == 1, "%d frames where one is over the bound, want it alone", len(fs))
		fs, err = h.Frames(h.ctx, 10, h.p, 0, 100, 9000)
		h.ok(err)
		h.check(len(fs) >= 1 && len(fs) <= 5, "%d frames within 9000 bytes", len(fs))
	})
}

func testLocate(h *harness) {
	a, b, c := frame(10, 0, 10, 1), frame(11, 10, 5, 1), frame(10, 1000, 2, 2)
	h.append(h.commit(1, 1, a, b), h.commit(2, 1, c))
	h.reopened(func() {
		for o, want := range map[schema.Offset]*schema.Frame{0: &a, 9: &a, 10: &b, 14: &b, 15: nil, 999: nil,
			1000: &c, 1001: &c, 1002: nil, schema.OffsetMax: nil} {
			f, ok, err := h.Locate(h.ctx, h.p, o)
			h.ok(err)
			h.check(ok == (want != nil) && (!ok || equalFrames(f, *want)), "locate %d: %v %v", o, f, ok)
		}
		_, ok, err := h.Locate(h.ctx, h.p+1, 0)
		h.ok(err)
		h.check(!ok, "a partition without commits holds an offset")
	})
}

func testSeekTime(h *harness) {
	for i := range 20 {
		// Two frames share each second, topics take turns.
		h.append(h.commit(1, schema.Seq(i+1), frame(10, schema.Offset(i*4), 2, i/2*10), frame(11, schema.Offset(i*4+2), 2, i/2*10)))
	}
	h.reopened(func() {
		for _, c := range []struct {
			topic schema.TopicID
			sec   int
			want  schema.Offset
			ok    bool
		}{{10, -5, 0, true}, {10, 0, 0, true}, {10, 1, 8, true}, {10, 10, 8, true}, {11, 10, 10, true}, {11, 11, 18, true},
			{10, 90, 72, true}, {10, 91, 0, false}, {12, 0, 0, false}} {
			o, ok, err := h.SeekTime(h.ctx, c.topic, h.p, at(c.sec))
			h.ok(err)
			h.check(ok == c.ok && (!ok || o == c.want), "topic %d second %d: %d %v, want %d %v", c.topic, c.sec, o, ok, c.want, c.ok)
		}
	})
}
