package schema

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestMessageIDsHoldPartitionAndOffset(t *testing.T) {
	for _, c := range []struct {
		p PartitionID
		o Offset
	}{{0, 1}, {1, 0}, {PartitionsMax - 1, OffsetMax}, {63, 1 << 20}} {
		id := NewMessageID(c.p, c.o)
		if id.Partition() != c.p || id.Offset() != c.o || int64(id) > IDMax {
			t.Errorf("%v: %d is %d/%d", c, id, id.Partition(), id.Offset())
		}
	}
}

func TestParseID(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "1": 1, "9007199254740991": IDMax} {
		if got, err := ParseID(s); err != nil || got != want {
			t.Errorf("%s: %d %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-1", "1.0", "1e3", "9007199254740992", "0x1", " 1", "99999999999999999999"} {
		if _, err := ParseID(s); KindOf(err) != Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestKindsAndTheirWords(t *testing.T) {
	for k := Internal; k <= Gone; k++ {
		if ParseKind(k.String()) != k {
			t.Errorf("%d is %q, which reads as %d", k, k, ParseKind(k.String()))
		}
	}
	wrapped := fmt.Errorf("above: %w", Errorf(Busy, "wait").Retry(time.Second))
	var e *Error
	if KindOf(wrapped) != Busy || !errors.As(wrapped, &e) || e.RetryAfter != time.Second {
		t.Error(wrapped)
	}
	if KindOf(context.DeadlineExceeded) != Unavailable || KindOf(errors.New("x")) != Internal {
		t.Error("errors of others")
	}
}

func TestStateOfConsents(t *testing.T) {
	p, g, r := ConsentPending, ConsentGiven, ConsentRefused
	for _, c := range []struct {
		publisher, consumer Consent
		want                State
	}{{p, p, PendingPublisher}, {p, g, PendingPublisher}, {g, p, PendingConsumer}, {g, g, Active}, {r, g, Rejected}, {g, r, Rejected}, {r, p, Rejected}, {p, r, Rejected}} {
		if got := StateOf(c.publisher, c.consumer); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

func TestRetryDelays(t *testing.T) {
	s := &Subscription{Target: Target{Type: TargetWebhook}}
	if s.Attempts() != len(DefaultRetrySchedule) {
		t.Error(s.Attempts())
	}
	between := func(n int, wish, low time.Duration) {
		t.Helper()
		for range 100 {
			if d := s.RetryDelay(n, wish); d < low || d > low+low/10 {
				t.Fatalf("after attempt %d, wish %v: %v, want %v to 10%% more", n, wish, d, low)
			}
		}
	}
	between(1, 0, 5*time.Second)
	between(1, time.Second, 5*time.Second)   // a wish never shortens
	between(1, time.Minute, time.Minute)     // and can lengthen
	between(1, 100*time.Hour, RetryDelayMax) // up to a bound
	between(2, 0, 5*time.Minute)             //
	between(9, 0, 24*time.Hour)              //
	between(50, 0, 24*time.Hour)             // past its end the schedule repeats its last entry
	s.RetrySchedule = []time.Duration{0, 0}
	if d := s.RetryDelay(1, 0); d != 0 || s.Attempts() != 2 {
		t.Error(d, s.Attempts())
	}
	s.MaxAttempts = 7
	if s.Attempts() != 7 {
		t.Error(s.Attempts())
	}
	s.Guarantee = AtMostOnce
	if s.Attempts() != 1 {
		t.Error("at most once is one attempt")
	}
	if puller := (&Subscription{Target: Target{Type: TargetPull}}); puller.Attempts() != 0 {
		t.Error("a puller has no bound by default")
	}
}

func TestTopicPartitionsDifferAndAreSpread(t *testing.T) {
	const total = 64
	used := map[PartitionID]int{}
	for id := TopicID(1000); id < 2000; id++ {
		topic := &Topic{ID: id, Partitions: 4}
		seen := map[PartitionID]bool{}
		for i := range topic.Partitions {
			p := TopicPartition(id, i, total)
			seen[p] = true
			used[p]++
			if !topic.Uses(p, total) {
				t.Fatalf("topic %d does not say that it uses %d", id, p)
			}
		}
		n := 0
		for p := range PartitionID(total) {
			if topic.Uses(p, total) {
				n++
			}
		}
		if len(seen) != 4 || n != 4 {
			t.Fatalf("topic %d has %d partitions, and says %d", id, len(seen), n)
		}
	}
	for p := range PartitionID(total) {
		if used[p] < 20 || used[p] > 140 { // 62.5 on average
			t.Errorf("partition %d is used by %d of 1000 topics", p, used[p])
		}
	}
	keys := map[int]int{}
	for i := range 4000 {
		keys[KeyPartition(fmt.Sprint("customer-", i), 4)]++
	}
	for p, n := range keys {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 4000 keys go to %d of 4", n, p)
		}
	}
}
