package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/handfast-mq/handfast/schema"
)

func change(r schema.Revision, attempt string) schema.Change {
	return schema.Change{Revision: r, Attempt: attempt, At: at(int(r)), Records: []schema.Record{
		{Kind: schema.KindTopic, Key: fmt.Sprint(r), Value: fmt.Appendf(nil, `{"n":%d}`, r)}, {Kind: schema.KindUser, Key: "gone"}}}
}

func appendChange(ctx context.Context, st schema.Store, c schema.Change) (ok bool, err error) {
	err = settle(func() (err error) {
		ok, err = st.AppendChange(ctx, c)
		return err
	})
	return ok, err
}

func (h *harness) appendChange(r schema.Revision, attempt string, want bool) {
	h.Helper()
	ok, err := appendChange(h.ctx, h, change(r, attempt))
	h.ok(err)
	h.check(ok == want, "append revision %d: %v, want %v", r, ok, want)
}

func (h *harness) head() schema.Revision {
	h.Helper()
	r, err := h.Head(h.ctx)
	h.ok(err)
	return r
}

func testMetadata(h *harness) {
	base := h.head() // a shared store has a past
	h.appendChange(base+1, "a", true)
	h.appendChange(base+1, "b", false)
	h.appendChange(base+2, "c", true)
	_, err := appendChange(h.ctx, h, change(0, "zero"))
	h.kind(err, schema.Invalid)
	ok, _ := appendChange(h.ctx, h, change(base+9, "ahead"))
	h.check(!ok, "a change ahead of the head was taken")
	h.reopened(func() {
		h.check(h.head() == base+2, "head %d, want %d", h.head(), base+2)
		cs, err := h.Changes(h.ctx, base, 10)
		h.ok(err)
		want := []schema.Change{change(base+1, "a"), change(base+2, "c")}
		h.check(slices.EqualFunc(cs, want, equalChanges), "changes %+v, want %+v", cs, want)
		h.check(cs[0].Records[1].Value == nil, "a deletion has a value")
		cs, err = h.Changes(h.ctx, base, 1)
		h.ok(err)
		h.check(len(cs) == 1 && cs[0].Revision == base+1, "one change: %+v", cs)
		cs, err = h.Changes(h.ctx, base+2, 10)
		h.ok(err)
		h.check(len(cs) == 0, "changes after the head: %+v", cs)
	})
}

// testMetadataRace lets appenders fight for each revision: one wins, and the log shows that one.
func testMetadataRace(h *harness) {
	const racers, each = 4, 15
	base := h.head()
	var mu sync.Mutex
	won := map[schema.Revision]string{}
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() {
			for n := 0; n < each; {
				head, err := h.Head(h.ctx)
				if err != nil {
					h.Error(err)
					return
				}
				attempt := fmt.Sprintf("%d of %d", n, i)
				ok, err := appendChange(h.ctx, h, change(head+1, attempt))
				if err != nil {
					h.Error(err)
					return
				}
				if ok {
					n++
					mu.Lock()
					if other, taken := won[head+1]; taken {
						h.Errorf("revision %d was won by %s and %s", head+1, other, attempt)
					}
					won[head+1] = attempt
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	h.reopened(func() {
		cs, err := h.Changes(h.ctx, base, racers*each+1)
		h.ok(err)
		h.check(len(cs) == racers*each, "%d changes, want %d", len(cs), racers*each)
		for i, c := range cs {
			r := base + schema.Revision(i) + 1
			h.check(c.Revision == r && c.Attempt == won[r], "change %d: %+v, want attempt %s", r, c, won[r])
		}
	})
}

func testCheckpoint(h *harness) {
	base := h.head()
	at0, _, err := h.Checkpoint(h.ctx)
	h.ok(err)
	h.check(h.opts.SharedStore || at0 == 0, "a new store has a checkpoint at %d", at0)
	for i := schema.Revision(1); i <= 10; i++ {
		h.appendChange(base+i, "x", true)
	}
	records := []schema.Record{{Kind: schema.KindTopic, Key: "1", Value: []byte(`{}`)}, {Kind: schema.KindUser, Key: "2", Value: []byte(`[]`)}}
	h.ok(h.SaveCheckpoint(h.ctx, base+6, records))
	h.reopened(func() {
		at, rs, err := h.Checkpoint(h.ctx)
		h.ok(err)
		h.check(at == base+6 && slices.EqualFunc(rs, records, equalRecords), "checkpoint %d %v", at, rs)
		cs, err := h.Changes(h.ctx, base+6, 100)
		h.ok(err)
		h.check(len(cs) == 4 && cs[0].Revision == base+7, "changes after the checkpoint: %+v", cs)
		// Before it they may be there or not, but never with a hole.
		cs, err = h.Changes(h.ctx, base, 100)
		if err != nil {
			h.kind(err, schema.Gone)
		} else {
			h.check(len(cs) == 10 && cs[0].Revision == base+1, "changes from before the checkpoint: %+v", cs)
		}
		h.check(h.head() == base+10, "head %d", h.head())
	})
	h.ok(h.SaveCheckpoint(h.ctx, base+10, records[:1]))
	h.reopened(func() {
		h.check(h.head() == base+10, "head %d after a checkpoint at the head", h.head())
		h.appendChange(base+10, "taken", false)
		at, rs, err := h.Checkpoint(h.ctx)
		h.ok(err)
		h.check(at == base+10 && len(rs) == 1, "checkpoint %d %v", at, rs)
	})
	h.appendChange(base+11, "next", true)
	h.ok(h.SaveCheckpoint(h.ctx, base+6, records)) // late, of a slow node
	at, _, err := h.Checkpoint(h.ctx)
	h.ok(err)
	h.check(at == base+10, "an old checkpoint replaced the one at %d by %d", base+10, at)
}
