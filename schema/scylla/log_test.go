package scylla

import (
	"bytes"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// TestCommitWithoutItsFrameIsAHole: the row of a commit may be written when its frame is not, and such a commit must not be sealed.
func TestCommitWithoutItsFrameIsAHole(t *testing.T) {
	s, p, ctx := openStore(t, config(t)), freshPartition(), t.Context()
	appendAll(t, s, p, 1, 2)
	c := commitOf(p, 3, 100)
	if err := s.noteCommit(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := insertCommit(ctx, s.db, c, s.levels.quorum); err != nil {
		t.Fatal(err)
	}
	cs, err := s.Commits(ctx, p, 1, 1, 10)
	if err != nil || len(cs) != 2 {
		t.Fatalf("%d commits, %v, want 2 before the one without its frame", len(cs), err)
	}
	if err := s.Rewrite(ctx, p, 1, 3, 3); schema.KindOf(err) != schema.Unavailable {
		t.Errorf("rewrite of half a commit: %v", err)
	}
	if last, ok, err := s.LastCommit(ctx, p, 1); err != nil || !ok || last.Seq != 3 || last.Committed != 2 {
		t.Errorf("last commit %+v %v %v", last, ok, err)
	}
	if err := s.Append(ctx, c, schema.AckQuorum); err != nil {
		t.Fatal(err)
	}
	wantAll(t, s, p, 3)
	if err := s.Rewrite(ctx, p, 1, 1, 3); err != nil {
		t.Error(err)
	}
}

// TestNewestLogBucketMayBeEmpty: its index row comes first.
func TestNewestLogBucketMayBeEmpty(t *testing.T) {
	s, p, ctx := openStore(t, config(t)), freshPartition(), t.Context()
	for seq := schema.Seq(commitsPerBucket - 1); seq <= commitsPerBucket+1; seq++ {
		if err := s.Append(ctx, commitOf(p, seq, 10), schema.AckQuorum); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.noteCommit(ctx, commitOf(p, 5*commitsPerBucket, 10)); err != nil {
		t.Fatal(err)
	}
	last, ok, err := s.LastCommit(ctx, p, 1)
	if err != nil || !ok || last.Seq != commitsPerBucket+1 {
		t.Errorf("last commit %d %v %v, want %d", last.Seq, ok, err, commitsPerBucket+1)
	}
	cs, err := s.Commits(ctx, p, 1, commitsPerBucket-1, 10)
	if err != nil || len(cs) != 3 {
		t.Errorf("%d commits across a border of buckets, want 3: %v", len(cs), err)
	}
}

// mixed makes frames of every width and class, in turn, of one topic.
func mixed(p schema.PartitionID, n int) (cs []*schema.Commit) {
	at, first := time.Now().Add(-time.Hour).Truncate(time.Millisecond), schema.Offset(spanOffsets-40)
	for i := range n {
		size, count := []int{100, 20 << 10, 80 << 10}[i%3], 1+i%2*30
		if size > 100 {
			count = 1 + i%2
		}
		at = at.Add(time.Second)
		f := schema.Frame{Topic: 7, First: first, Count: count, Time: at, Blob: bytes.Repeat([]byte{byte(i)}, size*count),
			Retention: []time.Duration{0, time.Hour, 24 * time.Hour, 100 * time.Hour}[i/5%4]}
		cs = append(cs, &schema.Commit{Partition: p, Epoch: 1, Seq: schema.Seq(i + 1), Committed: schema.Seq(i), Time: at, Frames: []schema.Frame{f}})
		first += schema.Offset(count + i%7*9) // others' offsets lie between
	}
	return cs
}

// TestBucketsOfAllKindsAreOneTopic: frames in different tables and widths come in one order, from any offset and by any time.
func TestBucketsOfAllKindsAreOneTopic(t *testing.T) {
	s, p, ctx := openStore(t, config(t)), freshPartition(), t.Context()
	cs := mixed(p, 60)
	for _, c := range cs {
		if err := s.Append(ctx, c, schema.AckQuorum); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(cs); i += 7 {
		f := &cs[i].Frames[0]
		for _, from := range []schema.Offset{f.First, f.End() - 1} {
			got, err := s.Frames(ctx, 7, p, from, schema.OffsetMax, 200<<10)
			if err != nil || len(got) == 0 || got[0].First != f.First || !bytes.Equal(got[0].Blob, f.Blob) {
				t.Fatalf("from %d: %d frames, %v; want the one at %d first", from, len(got), err, f.First)
			}
			for k := range got {
				if got[k].First != cs[i+k].First() {
					t.Fatalf("from %d: frame %d at %d, want %d", from, k, got[k].First, cs[i+k].First())
				}
			}
			located, ok, err := s.Locate(ctx, p, from)
			if err != nil || !ok || located.First != f.First || !bytes.Equal(located.Blob, f.Blob) {
				t.Fatalf("locate %d: %v %v %v", from, located.First, ok, err)
			}
		}
		if o, ok, err := s.SeekTime(ctx, 7, p, f.Time); err != nil || !ok || o != f.First {
			t.Fatalf("seek to the time of the frame at %d: %d %v %v", f.First, o, ok, err)
		}
	}
	wantRetained(t, s, p, cs)
}

// wantRetained forgets half by time and all but the last few by size.
func wantRetained(t *testing.T, s *Store, p schema.PartitionID, cs []*schema.Commit) {
	t.Helper()
	if _, _, err := s.Retain(t.Context(), 7, p, cs[30].Time, 0, schema.OffsetMax); err != nil {
		t.Fatal(err)
	}
	if o, _, err := s.Earliest(t.Context(), 7, p); err != nil || o != cs[30].First() {
		t.Fatalf("earliest %d after retention, want %d: %v", o, cs[30].First(), err)
	}
	var keep int64
	for _, c := range cs[50:] {
		keep += int64(len(c.Frames[0].Blob))
	}
	if _, _, err := s.Retain(t.Context(), 7, p, time.Time{}, keep, schema.OffsetMax); err != nil {
		t.Fatal(err)
	}
	if o, _, err := s.Earliest(t.Context(), 7, p); err != nil || o != cs[50].First() {
		t.Fatalf("earliest %d after retention by size, want %d: %v", o, cs[50].First(), err)
	}
}
