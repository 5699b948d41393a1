package storetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func TestFaulty(t *testing.T) {
	ctx := t.Context()
	f := Faulty(NewMemory(), Fault{Method: "OpenSession", Nth: 1}, Fault{Method: "OpenSession", Nth: 3, Harm: LoseAnswer})
	live := func(s schema.SessionID) bool {
		l, err := f.SessionLive(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for i, c := range []struct {
		kind schema.Kind
		fail bool
		done bool
	}{{schema.Unavailable, true, false}, {0, false, true}, {schema.Unknown, true, true}, {0, false, true}} {
		id := schema.SessionID(rune('a' + i))
		err := f.OpenSession(ctx, id)
		if (err != nil) != c.fail || c.fail && schema.KindOf(err) != c.kind || live(id) != c.done {
			t.Errorf("call %d: error %v, done %v, want %+v", i+1, err, live(id), c)
		}
	}
	if n := f.Calls("OpenSession"); n != 4 {
		t.Errorf("%d calls counted, want 4", n)
	}
	f.Plan(Fault{Method: "SwapPartition", Harm: LoseAnswer, Times: -1})
	swapped, _, err := f.SwapPartition(ctx, schema.Partition{ID: 1, Version: 1, Attempt: "x"})
	if swapped || schema.KindOf(err) != schema.Unknown {
		t.Errorf("a lost answer told %v %v", swapped, err)
	}
	if p, err := f.Partition(ctx, 1); err != nil || p.Attempt != "x" {
		t.Errorf("row after a lost answer: %+v %v", p, err)
	}
}

func TestFaultyDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := Faulty(NewMemory(), Fault{Method: "Fence", Harm: Delay, Wait: time.Minute, Times: -1},
			Fault{Method: "Head", Harm: DelayAnswer, Wait: time.Hour})
		begin := time.Now()
		if err := f.Fence(t.Context(), "s"); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("fence after %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Fence(ctx, "t"); schema.KindOf(err) != schema.Unknown {
			t.Errorf("a call that was given up: %v", err)
		}
		begin = time.Now()
		if _, err := f.Head(t.Context()); err != nil || time.Since(begin) != time.Hour {
			t.Errorf("head after %v: %v", time.Since(begin), err)
		}
	})
}

// TestFaultyIsAStore runs the suite through a wrapper without a plan.
func TestFaultyIsAStore(t *testing.T) {
	Run(t, func(testing.TB) schema.Store { return Faulty(NewMemory()) }, Options{})
}
