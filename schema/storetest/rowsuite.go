package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/handfast-mq/handfast/schema"
)

func (h *harness) wantCursors(want ...schema.CursorRow) {
	h.Helper()
	got, err := h.LoadCursors(h.ctx, h.p)
	h.ok(err)
	slices.SortFunc(got, func(a, b schema.CursorRow) int {
		return cmp.Or(cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Epoch, b.Epoch))
	})
	h.check(slices.EqualFunc(got, want, equalCursors), "cursors %v, want %v", got, want)
}

// testCursors keeps one row per epoch: uniting them is the caller's.
func testCursors(h *harness) {
	r := func(s schema.SubscriptionID, e schema.Epoch, state string) schema.CursorRow {
		return schema.CursorRow{Subscription: s, Partition: h.p, Epoch: e, State: []byte(state)}
	}
	other := r(1, 1, "other partition")
	other.Partition++
	h.wantCursors()
	h.ok(h.SaveCursors(h.ctx, []schema.CursorRow{r(1, 1, "a"), r(1, 2, "b"), r(2, 1, "c"), other}, false))
	h.ok(h.SaveCursors(h.ctx, []schema.CursorRow{r(1, 2, "bb"), r(2, 3, "d"), r(3, 2, "")}, true))
	h.reopened(func() { h.wantCursors(r(1, 1, "a"), r(1, 2, "bb"), r(2, 1, "c"), r(2, 3, "d"), r(3, 2, "")) })
	h.ok(h.DropCursors(h.ctx, h.p, 2, 2))
	h.wantCursors(r(1, 1, "a"), r(1, 2, "bb"), r(2, 3, "d"), r(3, 2, ""))
	h.ok(h.DropCursors(h.ctx, h.p, 0, 2))
	h.wantCursors(r(1, 2, "bb"), r(2, 3, "d"), r(3, 2, ""))
	h.ok(h.DropCursors(h.ctx, h.p, 2, 0))
	h.reopened(func() { h.wantCursors(r(1, 2, "bb"), r(3, 2, "")) })
	h.ok(h.DropCursors(h.ctx, h.p, 0, 0))
	h.wantCursors()
	rows, err := h.LoadCursors(h.ctx, other.Partition)
	h.ok(err)
	h.check(len(rows) == 1 && equalCursors(rows[0], other), "the other partition's cursors: %v", rows)
}

// settlesMax bounds how often a compare-and-set is sent again.
const settlesMax = 5

// settle does a compare-and-set until its outcome is known, which a busy database may leave open: the same attempt, sent again, tells.
func settle(do func() error) (err error) {
	for range settlesMax {
		if err = do(); schema.KindOf(err) != schema.Unknown {
			break
		}
	}
	return err
}

func swap(ctx context.Context, st schema.Store, next schema.Partition) (swapped bool, current schema.Partition, err error) {
	err = settle(func() (err error) {
		swapped, current, err = st.SwapPartition(ctx, next)
		return err
	})
	return swapped, current, err
}

func testSwap(h *harness) {
	p, err := h.Partition(h.ctx, h.p)
	h.ok(err)
	h.check(p.Version == 0 && p.ID == h.p && len(p.Epochs) == 0, "a row that was never written: %+v", p)
	first := schema.Partition{ID: h.p, Version: 1, Attempt: "one", Reserved: 1 << 20,
		Epochs: []schema.EpochRow{{Epoch: 1, Session: "s"}}}
	for version := int64(0); version <= 3; version++ {
		next := first
		next.Version = version
		if version == 1 {
			continue
		}
		swapped, current, err := swap(h.ctx, h, next)
		h.check(!swapped && (err != nil || current.Version == 0), "version %d on a new row: %v %+v", version, swapped, current)
	}
	swapped, current, err := swap(h.ctx, h, first)
	h.ok(err)
	h.check(swapped && equalPartitions(current, first), "first swap: %v %+v", swapped, current)
	second := schema.Partition{ID: h.p, Version: 2, Attempt: "two", Reserved: 2 << 20, Epochs: []schema.EpochRow{
		{Epoch: 1, Session: "s", Sealed: true, End: 77, LastSeq: 5}, {Epoch: 2, Session: "t", Start: 1 << 20}}}
	swapped, _, err = swap(h.ctx, h, second)
	h.ok(err)
	h.check(swapped, "second swap")
	h.reopened(func() {
		swapped, current, err := swap(h.ctx, h, first)
		h.ok(err)
		h.check(!swapped && equalPartitions(current, second), "an old swap again: %v %+v", swapped, current)
		p, err := h.Partition(h.ctx, h.p)
		h.ok(err)
		h.check(equalPartitions(p, second), "row %+v", p)
		ps, err := h.Partitions(h.ctx)
		h.ok(err)
		h.check(slices.ContainsFunc(ps, func(p schema.Partition) bool { return equalPartitions(p, second) }), "rows %+v", ps)
	})
}

func testSwapRace(h *harness) {
	const racers, rounds = 6, 10
	for version := int64(1); version <= rounds; version++ {
		var wins atomic.Int64
		var winner atomic.Value
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				attempt := fmt.Sprintf("%d by %d", version, i)
				swapped, current, err := swap(h.ctx, h, schema.Partition{ID: h.p, Version: version, Attempt: attempt})
				if err != nil {
					h.Error(err)
				}
				if swapped {
					wins.Add(1)
					winner.Store(attempt)
				} else if current.Version < version {
					h.Errorf("refused and shown version %d", current.Version)
				}
			})
		}
		wg.Wait()
		p, err := h.Partition(h.ctx, h.p)
		h.ok(err)
		h.check(wins.Load() == 1 && p.Attempt == winner.Load() && p.Version == version, "version %d: %d winners, row %+v", version, wins.Load(), p)
	}
}

func (h *harness) wantLive(s schema.SessionID, want bool) {
	h.Helper()
	live, err := h.SessionLive(h.ctx, s)
	h.ok(err)
	h.check(live == want, "session %s is live: %v, want %v", s, live, want)
}

func testSessions(h *harness) {
	id := func(n string) schema.SessionID { return schema.SessionID(fmt.Sprintf("%s-%d-%s", h.Name(), h.p, n)) }
	open, fenced, never := id("open"), id("fenced"), id("never")
	h.wantLive(open, false)
	h.ok(h.OpenSession(h.ctx, open))
	h.ok(h.OpenSession(h.ctx, fenced))
	h.wantLive(open, true)
	h.wantLive(fenced, true)
	h.ok(h.Fence(h.ctx, fenced))
	h.ok(h.Fence(h.ctx, fenced))
	h.ok(h.Fence(h.ctx, never)) // its OpenSession is still on the way
	h.wantLive(open, true)
	h.reopened(func() {
		h.wantLive(fenced, false)
		h.wantLive(never, false)
		// The register remembers: opening late or again may fail or not, but never revives.
		_ = h.OpenSession(h.ctx, fenced)
		_ = h.OpenSession(h.ctx, never)
		h.wantLive(fenced, false)
		h.wantLive(never, false)
	})
	fresh := id("fresh")
	h.ok(h.OpenSession(h.ctx, fresh))
	h.wantLive(fresh, true)
}

func testNodes(h *harness) {
	id := func(n string) schema.NodeID { return schema.NodeID(fmt.Sprintf("%d-%s", h.p, n)) }
	find := func(id schema.NodeID) (n schema.Node, ok bool) {
		ns, err := h.Nodes(h.ctx)
		h.ok(err)
		i := slices.IndexFunc(ns, func(n schema.Node) bool { return n.ID == id })
		if i < 0 {
			return n, false
		}
		return ns[i], true
	}
	a := schema.Node{ID: id("a"), Session: "s", Address: "127.0.0.1:80", Peer: "127.0.0.1:81", Beat: 1, Applied: 7}
	h.ok(h.SaveNode(h.ctx, a))
	h.ok(h.SaveNode(h.ctx, schema.Node{ID: id("b")}))
	a.Beat, a.Draining = 2, true
	h.ok(h.SaveNode(h.ctx, a))
	h.ok(h.RemoveNode(h.ctx, id("b")))
	h.ok(h.RemoveNode(h.ctx, id("b")))
	h.reopened(func() {
		got, ok := find(a.ID)
		h.check(ok && got == a, "node %+v, want %+v", got, a)
		_, ok = find(id("b"))
		h.check(!ok, "a removed node is there")
	})
}

func testAttempts(h *harness) {
	attempt := func(o schema.Offset, s schema.SubscriptionID, n, sec int) schema.Attempt {
		return schema.Attempt{Message: schema.NewMessageID(h.p, o), Subscription: s + schema.SubscriptionID(h.p)*1000, Attempt: n,
			At: at(sec).AddDate(10, 0, 0), Duration: 5, Outcome: schema.Failed, Status: 500, Error: "no", Response: []byte{0, 0xff, byte(n)}}
	}
	a, b, c, d := attempt(1, 1, 1, 10), attempt(1, 2, 1, 20), attempt(1, 1, 2, 30), attempt(2, 1, 1, 25)
	h.ok(h.SaveAttempts(h.ctx, []schema.Attempt{c, a}))
	h.ok(h.SaveAttempts(h.ctx, []schema.Attempt{b, d}))
	want := func(m schema.MessageID, s schema.SubscriptionID, limit int, want ...schema.Attempt) {
		h.Helper()
		got, err := h.ListAttempts(h.ctx, m, s, limit)
		h.ok(err)
		h.check(slices.EqualFunc(got, want, equalAttempts), "attempts\n%v\nwant\n%v", got, want)
	}
	h.reopened(func() {
		want(a.Message, 0, 10, c, b, a)
		want(a.Message, 0, 2, c, b)
		want(0, a.Subscription, 10, c, d, a)
		want(0, a.Subscription, 1, c)
		want(0, b.Subscription, 10, b)
		want(schema.NewMessageID(h.p, 9), 0, 10)
		want(0, a.Subscription+500, 10)
	})
}
