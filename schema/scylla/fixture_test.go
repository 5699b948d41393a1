package scylla

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

var lastPartition atomic.Int64

// freshPartition is one that no other test uses. The conformance suite has those below 1000, the random ones a few above.
func freshPartition() schema.PartitionID { return schema.PartitionID(2000 + lastPartition.Add(1)) }

func commitOf(p schema.PartitionID, seq schema.Seq, size int) *schema.Commit {
	now := time.Now().Truncate(time.Millisecond)
	blob := make([]byte, size)
	copy(blob, fmt.Sprintf("frame %d", seq))
	return &schema.Commit{Partition: p, Epoch: 1, Seq: seq, Committed: max(0, seq-1), Time: now,
		Frames: []schema.Frame{{Topic: 1, First: schema.Offset(seq-1) * 10, Count: 10, Time: now, Blob: blob}}}
}

func appendAll(t testing.TB, s *Store, p schema.PartitionID, first, last schema.Seq) {
	t.Helper()
	for seq := first; seq <= last; seq++ {
		if err := s.Append(t.Context(), commitOf(p, seq, 1000), schema.AckQuorum); err != nil {
			t.Fatalf("append %d: %v", seq, err)
		}
	}
}

// wantAll checks that all commits up to last are there, with their frames.
func wantAll(t testing.TB, s *Store, p schema.PartitionID, last schema.Seq) {
	t.Helper()
	cs, err := s.Commits(t.Context(), p, 1, 1, int(last)+10)
	if err != nil || len(cs) != int(last) {
		t.Fatalf("%d commits, want %d: %v", len(cs), last, err)
	}
	fs, err := s.Frames(t.Context(), 1, p, 0, schema.OffsetMax, 1<<30)
	if err != nil || len(fs) != int(last) {
		t.Fatalf("%d frames, want %d: %v", len(fs), last, err)
	}
}
