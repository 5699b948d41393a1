package schema

import (
	"context"
	"time"
)

// AckLevel says how durable a commit is before it counts as written.
// Larger is more durable.
type AckLevel int8

const (
	// AckOne is written once and not yet forced to disk. A power cut may lose it.
	AckOne AckLevel = iota - 1
	// AckQuorum is on stable storage of a majority (embedded: fdatasynced). The default.
	AckQuorum
	// AckAll is on stable storage of every replica.
	AckAll
)

// Frame is the messages of one topic within one commit, as one blob. The log does not look into the blob.
type Frame struct {
	Topic TopicID
	First Offset    // offset of its first message
	Count int       // its messages have the offsets First .. First+Count-1
	Time  time.Time // of its messages, to the millisecond; never goes back along the offsets of a partition
	Blob  []byte    // immutable; who gets a frame must not write into it

	// Retention is how long the topic keeps its messages, for stores that free their space by it; 0 = RetentionMax. It belongs to what
	// never changes of a commit. A store keeps the frame at least that long, or until Retain, and need not give it back with reads.
	Retention time.Duration
}

// End is the offset after the frame's last message.
func (f *Frame) End() Offset { return f.First + Offset(f.Count) }

// Commit is what one partition writes at once. The bytes of an (epoch, seq) never change: a commit that is sent
// again is byte for byte the same.
type Commit struct {
	Partition PartitionID
	Epoch     Epoch
	Seq       Seq // dense from 1 within the epoch
	Committed Seq // the highest seq of this epoch known committed when this one was formed; 0 = none
	Time      time.Time
	Keys      []byte  // idempotency digests of its messages; the log does not look into it
	Frames    []Frame // one per topic, ascending and adjoining offsets
}

// First is the commit's first offset, End the one after its last.
func (c *Commit) First() Offset { return c.Frames[0].First }

// End is the offset after the commit's last message.
func (c *Commit) End() Offset { return c.Frames[len(c.Frames)-1].End() }

// OffsetRange is a run of offsets [First, First+Count).
type OffsetRange struct {
	First Offset
	Count int
}

// Log keeps commits. All reads see every commit that was written at AckQuorum before the read began.
type Log interface {
	// Append makes c durable at level and returns after that. It may be called again with the same commit, and from
	// many goroutines at once for different commits. On an error the outcome is unknown until the same commit was
	// appended with success. It keeps no reference to c.
	Append(ctx context.Context, c *Commit, level AckLevel) error

	// LastCommit returns the commit with the highest seq of an epoch, whether or not there is a hole below it,
	// with its frames' blobs left out. ok is false when the epoch has none.
	LastCommit(ctx context.Context, p PartitionID, e Epoch) (c Commit, ok bool, err error)

	// Commits returns up to limit commits of an epoch in order, seq from first, up to the first missing seq, with the
	// frames' blobs left out.
	Commits(ctx context.Context, p PartitionID, e Epoch, first Seq, limit int) ([]Commit, error)

	// Kept returns, in order, what is left of the commits first..last of a sealed epoch that ends at last or later, without blobs.
	// Retention leaves holes.
	Kept(ctx context.Context, p PartitionID, e Epoch, first, last Seq) ([]Commit, error)

	// Rewrite makes the commits first..last of an epoch durable on a quorum once more, byte for byte. A successor
	// calls it before it seals the epoch. Embedded stores have nothing to do.
	Rewrite(ctx context.Context, p PartitionID, e Epoch, first, last Seq) error

	// Frames returns, in order, the frames of a topic in a partition that hold offsets of [from, to), until they come to bytesMax
	// of blob; at least one when there is one. The first frame may begin before from.
	Frames(ctx context.Context, t TopicID, p PartitionID, from, to Offset, bytesMax int) ([]Frame, error)

	// Locate returns the frame that holds an offset of a partition; ok is false when there is none.
	Locate(ctx context.Context, p PartitionID, o Offset) (f Frame, ok bool, err error)

	// SeekTime returns the first offset of the first frame of the topic whose time is t or later; ok is false when there is none.
	SeekTime(ctx context.Context, t TopicID, p PartitionID, at time.Time) (o Offset, ok bool, err error)

	// Earliest returns the first offset of the topic's oldest frame; ok is false when there is none.
	Earliest(ctx context.Context, t TopicID, p PartitionID) (o Offset, ok bool, err error)

	// Retain forgets the topic's oldest frames: those older than before, and as many as keep the rest within bytesMax
	// (0 = no bound), but none that reaches past upTo. What tells where an epoch ends must outlive its last frames, so
	// upTo is a place that the partition's row says is committed; see EpochRow. It returns the runs of offsets that went, oldest first; more is true when it stopped early to stay short
	// and should be called again. A frame is kept whole or goes whole. The caller is the partition's owner.
	Retain(ctx context.Context, t TopicID, p PartitionID, before time.Time, bytesMax int64, upTo Offset) (gone []OffsetRange, more bool, err error)
}
