package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Harm is what happens to a call.
type Harm uint8

const (
	// Fail returns the error and does nothing.
	Fail Harm = iota
	// LoseAnswer does the call and returns the error: the caller cannot know.
	LoseAnswer
	// Delay waits, or fails when the context ends first, and then does the call.
	Delay
	// DelayAnswer does the call, and waits before it answers.
	DelayAnswer
)

// Fault harms some calls of one method.
type Fault struct {
	Method string // "Append", "SwapPartition" …, "" = every method
	Nth    int    // the first call that it harms, from 1; 0 = 1
	Times  int    // how many it harms; 0 = 1, negative = all from there on
	Harm   Harm
	Err    error         // nil = Unavailable for Fail and Delay, Unknown for LoseAnswer
	Wait   time.Duration // of Delay and DelayAnswer
}

func (f *Fault) hits(n int) bool {
	first, times := max(f.Nth, 1), f.Times
	if times == 0 {
		times = 1
	}
	return n >= first && (times < 0 || n < first+times)
}

// FaultyStore is a store that fails by plan.
type FaultyStore struct {
	store schema.Store

	mu    sync.Mutex
	plan  []Fault
	calls map[string]int // by method; "" = all
}

var _ schema.Store = (*FaultyStore)(nil)

// Faulty wraps a store. The first fault of the plan that fits a call is what happens to it.
func Faulty(s schema.Store, plan ...Fault) *FaultyStore {
	return &FaultyStore{store: s, plan: plan, calls: map[string]int{}}
}

// Plan replaces the plan; the counts begin anew.
func (f *FaultyStore) Plan(plan ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
	clear(f.calls)
}

// Calls returns how often a method was called since the plan was made; "" = any method.
func (f *FaultyStore) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// count notes a call and returns its fault.
func (f *FaultyStore) count(method string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	f.calls[""]++
	for _, p := range f.plan {
		if (p.Method == method || p.Method == "") && p.hits(f.calls[p.Method]) {
			return p, true
		}
	}
	return Fault{}, false
}

// do makes a call, or what the plan makes of it. On an error that the plan made, zero is called to wipe the answer.
func (f *FaultyStore) do(ctx context.Context, method string, zero func(), call func() error) error {
	p, hit := f.count(method)
	if !hit {
		return call()
	}
	switch p.Harm {
	case Fail:
		return p.error(schema.Unavailable, "was not done")
	case LoseAnswer:
		_ = call()
		zero()
		return p.error(schema.Unknown, "was done and its answer lost")
	case Delay:
		if err := wait(ctx, p.Wait); err != nil {
			return err
		}
		return call()
	default:
		err := call()
		if late := wait(ctx, p.Wait); late != nil {
			zero()
			return late
		}
		return err
	}
}

func (p *Fault) error(k schema.Kind, what string) error {
	if p.Err != nil {
		return p.Err
	}
	return schema.Errorf(k, "by plan: the call %s", what)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return schema.WrapError(schema.Unknown, ctx.Err(), "by plan: no answer in time")
	}
}

// ask makes a call with one answer.
func ask[T any](f *FaultyStore, ctx context.Context, method string, call func() (T, error)) (v T, err error) {
	err = f.do(ctx, method, func() { v = *new(T) }, func() (err error) {
		v, err = call()
		return err
	})
	return v, err
}

// ask2 makes a call with two answers.
func ask2[T, U any](f *FaultyStore, ctx context.Context, method string, call func() (T, U, error)) (v T, w U, err error) {
	err = f.do(ctx, method, func() { v, w = *new(T), *new(U) }, func() (err error) {
		v, w, err = call()
		return err
	})
	return v, w, err
}
