package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Options say what a store can do beside the contract.
type Options struct {
	// Reopen closes a store that keeps what it holds and opens it again; nil = the store is not persistent.
	Reopen func(t testing.TB, s schema.Store) schema.Store
	// SharedStore tells that open returns stores over the same data each time, so that tests must not look at
	// everything there is.
	SharedStore bool
	// FirstPartition is the first of the partitions that the suite may use, for stores that hold others.
	FirstPartition schema.PartitionID
}

// Run proves that the stores that open returns keep the contracts of schema.Store. Each part opens its own; open
// arranges for the store to be closed at the end.
func Run(t *testing.T, open func(t testing.TB) schema.Store, o Options) {
	parts := []struct {
		name string
		run  func(*harness)
	}{
		{"append and read", testAppendAndRead},
		{"append again", testAppendAgain},
		{"append refuses", testAppendRefuses},
		{"append at every level", testAppendLevels},
		{"append side by side", testAppendSideBySide},
		{"holes", testHoles},
		{"middle of a frame", testMiddleOfFrame},
		{"frames by bytes", testFramesByBytes},
		{"locate", testLocate},
		{"seek time", testSeekTime},
		{"retain by time", testRetainByTime},
		{"retain by bytes", testRetainByBytes},
		{"retain many", testRetainMany},
		{"cursors", testCursors},
		{"metadata", testMetadata},
		{"metadata race", testMetadataRace},
		{"checkpoint", testCheckpoint},
		{"partition swap", testSwap},
		{"partition race", testSwapRace},
		{"sessions", testSessions},
		{"nodes", testNodes},
		{"attempts", testAttempts},
	}
	for i, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			// A block of partitions for each part keeps them apart on a shared store.
			h := &harness{T: t, ctx: t.Context(), opts: o, p: o.FirstPartition + schema.PartitionID(i*8)}
			h.Store = open(t)
			p.run(h)
		})
	}
	t.Run("random", func(t *testing.T) {
		h := &harness{T: t, ctx: t.Context(), opts: o, p: o.FirstPartition + 200}
		h.Store = open(t)
		Compare(t, h.Store, NewMemory(), RandomOptions{Seed: 1, Steps: 400, Partition: h.p, Reopen: o.Reopen})
	})
}

// harness is one part's store with words for what the parts say often.
type harness struct {
	*testing.T
	schema.Store
	ctx  context.Context
	opts Options
	p    schema.PartitionID
}

// reopened runs check on the store, and again after it was closed and opened, where it is persistent.
func (h *harness) reopened(check func()) {
	h.Helper()
	check()
	if h.opts.Reopen != nil {
		h.Store = h.opts.Reopen(h.T, h.Store)
		check()
	}
}

func (h *harness) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *harness) kind(err error, want schema.Kind) {
	h.Helper()
	if err == nil || schema.KindOf(err) != want {
		h.Fatalf("error %v, want one of kind %v", err, want)
	}
}

func (h *harness) check(ok bool, format string, args ...any) {
	h.Helper()
	if !ok {
		h.Fatalf(format, args...)
	}
}

var epochStart = time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)

// at is a time n seconds into the test's own day.
func at(n int) time.Time { return epochStart.Add(time.Duration(n) * time.Second) }

// frame makes a frame of count messages that is made at second sec.
func frame(t schema.TopicID, first schema.Offset, count, sec int) schema.Frame {
	return schema.Frame{Topic: t, First: first, Count: count, Time: at(sec), Blob: fmt.Appendf(nil, "blob of topic %d at %d", t, first)}
}

func (h *harness) commit(e schema.Epoch, s schema.Seq, frames ...schema.Frame) *schema.Commit {
	return &schema.Commit{Partition: h.p, Epoch: e, Seq: s, Committed: s - 1, Time: frames[0].Time,
		Keys: fmt.Appendf(nil, "keys %d", s), Frames: frames}
}

func (h *harness) append(cs ...*schema.Commit) {
	h.Helper()
	for _, c := range cs {
		h.ok(h.Append(h.ctx, c, schema.AckQuorum))
	}
}

// all reads the frames of a topic in [from, to), in as many calls as it takes.
func (h *harness) all(t schema.TopicID, from, to schema.Offset) []schema.Frame {
	h.Helper()
	return readAll(h.T, h.Store, t, h.p, from, to, 1<<20)
}

func readAll(t testing.TB, s schema.Store, topic schema.TopicID, p schema.PartitionID, from, to schema.Offset, bytesMax int) (all []schema.Frame) {
	t.Helper()
	for {
		fs, err := s.Frames(t.Context(), topic, p, from, to, bytesMax)
		if err != nil {
			t.Fatal(err)
		}
		if len(fs) == 0 {
			return all
		}
		all = append(all, fs...)
		next := fs[len(fs)-1].End()
		if next <= from {
			t.Fatalf("frames from %d end at %d", from, next)
		}
		from = next
	}
}

// retain calls Retain until it is done and joins the ranges.
func retain(t testing.TB, s schema.Store, topic schema.TopicID, p schema.PartitionID, before time.Time, bytesMax int64) (gone []schema.OffsetRange) {
	t.Helper()
	for {
		g, more, err := s.Retain(t.Context(), topic, p, before, bytesMax, schema.OffsetMax)
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, g...)
		if !more {
			return joinRanges(gone)
		}
		if len(g) == 0 {
			t.Fatal("Retain asks for more and does nothing")
		}
	}
}
