package session

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

// register is a session register whose reads a test can hold, fail and count.
type register struct {
	schema.Ownership
	hold  chan struct{} // nil = reads go through
	fails atomic.Bool
	reads atomic.Int64
}

func (r *register) SessionLive(ctx context.Context, id schema.SessionID) (bool, error) {
	r.reads.Add(1)
	live, err := r.Ownership.SessionLive(ctx, id) // what the register says at this moment …
	if r.hold != nil {
		<-r.hold // … though the answer comes later
	}
	if r.fails.Load() {
		return false, errors.New("no answer")
	}
	return live, err
}

func open(t *testing.T, r *register) *Session {
	t.Helper()
	s, err := Open(context.Background(), r, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOnlyACheckThatBeganAfterwardsCounts asks while a check is under way whose answer is older than the question.
func TestOnlyACheckThatBeganAfterwardsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{Ownership: storetest.NewMemory(), hold: make(chan struct{})}
		s := open(t, r)
		defer s.Close()
		first, second := make(chan bool, 1), make(chan bool, 1)
		s.Verify(func(live bool) { first <- live })
		synctest.Wait() // the register was read, and found live
		if err := r.Fence(context.Background(), s.ID); err != nil {
			t.Fatal(err)
		}
		s.Verify(func(live bool) { second <- live })
		r.hold <- struct{}{}
		if !<-first {
			t.Fatal("the first check began before the fence")
		}
		r.hold <- struct{}{}
		if <-second {
			t.Fatal("a check that began before the question answered it")
		}
		<-s.Done()
		if s.Live(context.Background()) || s.Fresh(context.Background()) {
			t.Fatal("alive after its end")
		}
	})
}

func TestOneReadAnswersEverybodyWhoAskedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{Ownership: storetest.NewMemory(), hold: make(chan struct{})}
		s := open(t, r)
		defer s.Close()
		var alive atomic.Int64
		ask := func(n int) {
			for range n {
				s.Verify(func(live bool) {
					if live {
						alive.Add(1)
					}
				})
			}
		}
		ask(1)
		synctest.Wait()
		ask(100)
		close(r.hold)
		synctest.Wait()
		if alive.Load() != 101 || r.reads.Load() > 3 {
			t.Fatalf("%d answers by %d reads", alive.Load(), r.reads.Load())
		}
	})
}

func TestNoAnswerIsNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{Ownership: storetest.NewMemory()}
		s := open(t, r)
		defer s.Close()
		if !s.Live(context.Background()) || !s.Fresh(context.Background()) {
			t.Fatal("not alive")
		}
		reads := r.reads.Load()
		if !s.Fresh(context.Background()) || r.reads.Load() != reads {
			t.Fatal("a check of a moment ago is read again")
		}
		time.Sleep(2 * freshFor)
		r.fails.Store(true)
		if s.Fresh(context.Background()) {
			t.Fatal("alive without an answer")
		}
		<-s.Done()
	})
}

func TestCloseAnswersThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{Ownership: storetest.NewMemory()}
		s := open(t, r)
		s.Close()
		answer := make(chan bool, 1)
		s.Verify(func(live bool) { answer <- live })
		if <-answer {
			t.Fatal("alive after Close")
		}
	})
}
