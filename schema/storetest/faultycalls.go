package storetest

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Every method passes its call through the plan under its own name.

func none() {}

// Close closes the store below, without faults.
func (f *FaultyStore) Close() error { return f.store.Close() }

func (f *FaultyStore) AppendChange(ctx context.Context, c schema.Change) (bool, error) {
	return ask(f, ctx, "AppendChange", func() (bool, error) { return f.store.AppendChange(ctx, c) })
}

func (f *FaultyStore) Head(ctx context.Context) (schema.Revision, error) {
	return ask(f, ctx, "Head", func() (schema.Revision, error) { return f.store.Head(ctx) })
}

func (f *FaultyStore) Changes(ctx context.Context, after schema.Revision, limit int) ([]schema.Change, error) {
	return ask(f, ctx, "Changes", func() ([]schema.Change, error) { return f.store.Changes(ctx, after, limit) })
}

func (f *FaultyStore) SaveCheckpoint(ctx context.Context, at schema.Revision, records []schema.Record) error {
	return f.do(ctx, "SaveCheckpoint", none, func() error { return f.store.SaveCheckpoint(ctx, at, records) })
}

func (f *FaultyStore) Checkpoint(ctx context.Context) (schema.Revision, []schema.Record, error) {
	return ask2(f, ctx, "Checkpoint", func() (schema.Revision, []schema.Record, error) { return f.store.Checkpoint(ctx) })
}

func (f *FaultyStore) Append(ctx context.Context, c *schema.Commit, level schema.AckLevel) error {
	return f.do(ctx, "Append", none, func() error { return f.store.Append(ctx, c, level) })
}

func (f *FaultyStore) LastCommit(ctx context.Context, p schema.PartitionID, e schema.Epoch) (schema.Commit, bool, error) {
	return ask2(f, ctx, "LastCommit", func() (schema.Commit, bool, error) { return f.store.LastCommit(ctx, p, e) })
}

func (f *FaultyStore) Kept(ctx context.Context, p schema.PartitionID, e schema.Epoch, first, last schema.Seq) ([]schema.Commit, error) {
	return ask(f, ctx, "Kept", func() ([]schema.Commit, error) { return f.store.Kept(ctx, p, e, first, last) })
}

func (f *FaultyStore) Commits(ctx context.Context, p schema.PartitionID, e schema.Epoch, first schema.Seq, limit int) ([]schema.Commit, error) {
	return ask(f, ctx, "Commits", func() ([]schema.Commit, error) { return f.store.Commits(ctx, p, e, first, limit) })
}

func (f *FaultyStore) Rewrite(ctx context.Context, p schema.PartitionID, e schema.Epoch, first, last schema.Seq) error {
	return f.do(ctx, "Rewrite", none, func() error { return f.store.Rewrite(ctx, p, e, first, last) })
}

func (f *FaultyStore) Frames(ctx context.Context, t schema.TopicID, p schema.PartitionID, from, to schema.Offset, bytesMax int) ([]schema.Frame, error) {
	return ask(f, ctx, "Frames", func() ([]schema.Frame, error) { return f.store.Frames(ctx, t, p, from, to, bytesMax) })
}

func (f *FaultyStore) Locate(ctx context.Context, p schema.PartitionID, o schema.Offset) (schema.Frame, bool, error) {
	return ask2(f, ctx, "Locate", func() (schema.Frame, bool, error) { return f.store.Locate(ctx, p, o) })
}

func (f *FaultyStore) SeekTime(ctx context.Context, t schema.TopicID, p schema.PartitionID, at time.Time) (schema.Offset, bool, error) {
	return ask2(f, ctx, "SeekTime", func() (schema.Offset, bool, error) { return f.store.SeekTime(ctx, t, p, at) })
}

func (f *FaultyStore) Earliest(ctx context.Context, t schema.TopicID, p schema.PartitionID) (schema.Offset, bool, error) {
	return ask2(f, ctx, "Earliest", func() (schema.Offset, bool, error) { return f.store.Earliest(ctx, t, p) })
}

func (f *FaultyStore) Retain(ctx context.Context, t schema.TopicID, p schema.PartitionID, before time.Time, bytesMax int64, upTo schema.Offset) ([]schema.OffsetRange, bool, error) {
	return ask2(f, ctx, "Retain", func() ([]schema.OffsetRange, bool, error) { return f.store.Retain(ctx, t, p, before, bytesMax, upTo) })
}

func (f *FaultyStore) SaveCursors(ctx context.Context, rows []schema.CursorRow, sync bool) error {
	return f.do(ctx, "SaveCursors", none, func() error { return f.store.SaveCursors(ctx, rows, sync) })
}

func (f *FaultyStore) LoadCursors(ctx context.Context, p schema.PartitionID) ([]schema.CursorRow, error) {
	return ask(f, ctx, "LoadCursors", func() ([]schema.CursorRow, error) { return f.store.LoadCursors(ctx, p) })
}

func (f *FaultyStore) DropCursors(ctx context.Context, p schema.PartitionID, s schema.SubscriptionID, before schema.Epoch) error {
	return f.do(ctx, "DropCursors", none, func() error { return f.store.DropCursors(ctx, p, s, before) })
}

func (f *FaultyStore) SaveAttempts(ctx context.Context, rows []schema.Attempt) error {
	return f.do(ctx, "SaveAttempts", none, func() error { return f.store.SaveAttempts(ctx, rows) })
}

func (f *FaultyStore) ListAttempts(ctx context.Context, m schema.MessageID, s schema.SubscriptionID, limit int) ([]schema.Attempt, error) {
	return ask(f, ctx, "ListAttempts", func() ([]schema.Attempt, error) { return f.store.ListAttempts(ctx, m, s, limit) })
}

func (f *FaultyStore) OpenSession(ctx context.Context, s schema.SessionID) error {
	return f.do(ctx, "OpenSession", none, func() error { return f.store.OpenSession(ctx, s) })
}

func (f *FaultyStore) SessionLive(ctx context.Context, s schema.SessionID) (bool, error) {
	return ask(f, ctx, "SessionLive", func() (bool, error) { return f.store.SessionLive(ctx, s) })
}

func (f *FaultyStore) Fence(ctx context.Context, s schema.SessionID) error {
	return f.do(ctx, "Fence", none, func() error { return f.store.Fence(ctx, s) })
}

func (f *FaultyStore) SaveNode(ctx context.Context, n schema.Node) error {
	return f.do(ctx, "SaveNode", none, func() error { return f.store.SaveNode(ctx, n) })
}

func (f *FaultyStore) RemoveNode(ctx context.Context, id schema.NodeID) error {
	return f.do(ctx, "RemoveNode", none, func() error { return f.store.RemoveNode(ctx, id) })
}

func (f *FaultyStore) Nodes(ctx context.Context) ([]schema.Node, error) {
	return ask(f, ctx, "Nodes", func() ([]schema.Node, error) { return f.store.Nodes(ctx) })
}

func (f *FaultyStore) Partition(ctx context.Context, p schema.PartitionID) (schema.Partition, error) {
	return ask(f, ctx, "Partition", func() (schema.Partition, error) { return f.store.Partition(ctx, p) })
}

func (f *FaultyStore) Partitions(ctx context.Context) ([]schema.Partition, error) {
	return ask(f, ctx, "Partitions", func() ([]schema.Partition, error) { return f.store.Partitions(ctx) })
}

func (f *FaultyStore) SwapPartition(ctx context.Context, next schema.Partition) (bool, schema.Partition, error) {
	return ask2(f, ctx, "SwapPartition", func() (bool, schema.Partition, error) { return f.store.SwapPartition(ctx, next) })
}
