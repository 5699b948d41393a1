package webhook

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func report(t *testing.T, bs *breakers, o schema.Outcome) {
	t.Helper()
	done, wait := bs.allow(1)
	if done == nil {
		t.Fatalf("held for %s", wait)
	}
	done(o)
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bs := newBreakers()
		for range breakerFailures - 1 {
			report(t, bs, schema.Failed)
		}
		report(t, bs, schema.Held) // says nothing
		if bs.state(1) != "closed" {
			t.Fatal(bs.state(1))
		}
		report(t, bs, schema.Failed)
		done, wait := bs.allow(1)
		if done != nil || wait != breakerPause || bs.open() != 1 {
			t.Fatalf("after sustained failure: held for %s, %d open", wait, bs.open())
		}
		if done, _ := bs.allow(2); done == nil {
			t.Fatal("another endpoint is held")
		}
		time.Sleep(breakerPause / 2)
		if _, wait := bs.allow(1); wait != breakerPause/2 {
			t.Errorf("half way: %s", wait)
		}
		time.Sleep(breakerPause/2 + time.Millisecond)
		probe, _ := bs.allow(1)
		if probe == nil {
			t.Fatal("no probe passes")
		}
		if done, wait := bs.allow(1); done != nil || wait != probePause {
			t.Error("two probes at a time")
		}
		probe(schema.Failed)
		if bs.state(1) != "open" {
			t.Error("a failed probe closed it")
		}
		time.Sleep(breakerPause + time.Millisecond)
		report(t, bs, schema.Delivered)
		if bs.state(1) != "closed" || bs.failing.Len() != 0 {
			t.Error("a good probe did not close it")
		}
	})
}

// Failures in between successes never open a breaker, and a working endpoint costs no memory.
func TestBreakerNeedsSustainedFailure(t *testing.T) {
	bs := newBreakers()
	for range 100 {
		for range breakerFailures - 1 {
			report(t, bs, schema.Failed)
		}
		report(t, bs, schema.Delivered)
	}
	if bs.failing.Len() != 0 {
		t.Error("an entry stays")
	}
	for id := range schema.SubscriptionID(breakersMax + 100) {
		done, _ := bs.allow(id)
		done(schema.Failed)
	}
	if n := bs.failing.Len(); n > breakersMax {
		t.Errorf("%d entries", n)
	}
}

// A dead endpoint is left alone, and its deliveries wait without counting.
func TestBreakerHoldsDeliveries(t *testing.T) {
	s := serve(t, nil)
	s.Close()
	w := newLocal(t)
	for i := range breakerFailures + 1 {
		r := invoke(t, w, subscription(s.URL), delivery("{}"))
		if want := map[bool]schema.Outcome{true: schema.Failed, false: schema.Held}[i < breakerFailures]; r.Outcome != want {
			t.Fatalf("delivery %d: %+v", i, r)
		}
		if r.Outcome == schema.Held && (r.RetryAfter <= 0 || r.RetryAfter > breakerPause) {
			t.Errorf("held for %s", r.RetryAfter)
		}
	}
}
