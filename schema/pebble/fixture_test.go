package pebble

import (
	"bytes"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// commitN is the n-th commit of partition 1: one message of topic 1 and one of topic 2, about 1 KiB.
func commitN(n int) *schema.Commit {
	at := start.Add(time.Duration(n) * time.Second)
	blob := func(t byte) []byte { return bytes.Repeat([]byte{t, byte(n), byte(n >> 8)}, 170) }
	first := schema.Offset(2 * n)
	return &schema.Commit{Partition: 1, Epoch: 1, Seq: schema.Seq(n), Committed: schema.Seq(n - 1), Time: at, Frames: []schema.Frame{
		{Topic: 1, First: first, Count: 1, Time: at, Blob: blob(1)}, {Topic: 2, First: first + 1, Count: 1, Time: at, Blob: blob(2)}}}
}

func appendN(t testing.TB, s *Store, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := s.Append(t.Context(), commitN(n), schema.AckQuorum); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
}

// wantN fails unless the commit is there, whole.
func wantN(t testing.TB, s *Store, n int) {
	t.Helper()
	want := commitN(n)
	cs, err := s.Commits(t.Context(), 1, 1, want.Seq, 1)
	if err != nil || len(cs) != 1 || cs[0].Seq != want.Seq || len(cs[0].Frames) != 2 {
		t.Fatalf("commit %d: %v %v", n, cs, err)
	}
	for _, f := range want.Frames {
		wantFrame(t, s, f)
	}
}

func wantFrame(t testing.TB, s *Store, f schema.Frame) {
	t.Helper()
	got, ok, err := s.Locate(t.Context(), 1, f.First)
	if err != nil || !ok || got.Topic != f.Topic || !bytes.Equal(got.Blob, f.Blob) {
		t.Fatalf("frame at %d: %v %v", f.First, ok, err)
	}
}
