package pebble

import (
	"context"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// settle runs the tidier's steps until there is nothing to do.
func settle(t *testing.T, s *Store) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.reclaim(); err != nil {
			t.Fatal(err)
		}
	}
}

// idle opens a store whose own tidier has ended, so that the test alone decides when to reclaim.
func idle(t *testing.T, dir string) *Store {
	t.Helper()
	s := openStore(t, dir, Options{SegmentBytes: 16 << 10, Logger: quiet()})
	s.stop()
	s.wg.Wait()
	s.done, s.stop = context.WithCancel(context.Background())
	return s
}

func forgetTo(t *testing.T, s *Store, topic schema.TopicID, n int) {
	t.Helper()
	for more := true; more; {
		var err error
		if _, more, err = s.Retain(t.Context(), topic, 1, start.Add(time.Duration(n)*time.Second), 0, schema.OffsetMax); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeadSegmentsAreReused: a log that forgets does not grow.
func TestDeadSegmentsAreReused(t *testing.T) {
	s := idle(t, t.TempDir())
	most := 0
	for n := 1; n <= 1000; n += 50 {
		appendN(t, s, n, n+49)
		forgetTo(t, s, 1, n)
		forgetTo(t, s, 2, n)
		settle(t, s)
		most = max(most, s.Stats().Segments+s.Stats().Spares)
	}
	if most > 16 {
		t.Errorf("%d log files for 50 commits that live, want at most 16", most)
	}
	for n := 951; n <= 1000; n++ {
		wantN(t, s, n)
	}
}

// TestSparseSegmentsAreMoved: a few frames that are kept long do not keep the space of many.
func TestSparseSegmentsAreMoved(t *testing.T) {
	dir := t.TempDir()
	s := idle(t, dir)
	rare := func(n int) *schema.Commit {
		c := commitN(n)
		c.Partition, c.Frames = 2, c.Frames[:1]
		c.Frames[0].Topic = 7
		return c
	}
	for n := 1; n <= 400; n++ {
		appendN(t, s, n, n)
		if n%40 == 0 {
			if err := s.Append(t.Context(), rare(n), schema.AckQuorum); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := s.Stats().Segments
	forgetTo(t, s, 1, 401)
	forgetTo(t, s, 2, 401)
	settle(t, s)
	if after := s.Stats().Segments; after > before/3 {
		t.Errorf("%d of %d segments are left for 10 frames", after, before)
	}
	check := func() {
		t.Helper()
		for n := 40; n <= 400; n += 40 {
			f, ok, err := s.Locate(t.Context(), 2, schema.Offset(2*n))
			if err != nil || !ok || string(f.Blob) != string(rare(n).Frames[0].Blob) {
				t.Fatalf("frame of commit %d after the move: %v %v", n, ok, err)
			}
			cs, err := s.Commits(t.Context(), 2, 1, schema.Seq(n), 1)
			if err != nil || len(cs) != 1 || cs[0].Frames[0].First != f.First {
				t.Fatalf("commit %d after the move: %v %v", n, cs, err)
			}
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = idle(t, dir)
	check()
	// What was moved still comes but once.
	if err := s.Append(t.Context(), rare(40), schema.AckQuorum); err != nil {
		t.Fatal(err)
	}
	if gone, _, err := s.Retain(t.Context(), 7, 2, time.Time{}, 1, schema.OffsetMax); err != nil || len(gone) != 10 {
		t.Fatalf("gone %v %v, want 10 runs", gone, err)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	s := openStore(t, t.TempDir(), small)
	now := time.Now()
	const n = attemptsMax + 3*attemptsSlack
	for i := 0; i < n; i += 100 {
		var rows []schema.Attempt
		for j := i; j < i+100; j++ {
			rows = append(rows, schema.Attempt{Message: schema.MessageID(j + 1), Subscription: 1, At: now.Add(time.Duration(j-n) * time.Millisecond)})
		}
		if err := s.SaveAttempts(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	as, err := s.ListAttempts(t.Context(), 0, 1, 10*n)
	if err != nil || len(as) > attemptsMax+attemptsSlack || len(as) < attemptsMax {
		t.Fatalf("%d attempts are kept, want %d and a little: %v", len(as), attemptsMax, err)
	}
	if first, err := s.ListAttempts(t.Context(), 1, 0, 1); err != nil || len(first) != 0 {
		t.Fatalf("the oldest attempt is listed by its message: %v %v", first, err)
	}
	s.pruneAttempts(now.Add(attemptAge + time.Hour))
	if as, err := s.ListAttempts(t.Context(), 0, 1, 10); err != nil || len(as) != 0 {
		t.Fatalf("%d attempts past their age: %v", len(as), err)
	}
}
