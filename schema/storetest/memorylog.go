package storetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// memoryLog is one partition's log.
type memoryLog struct {
	commits []schema.Commit // by epoch and seq, blobs left out
	frames  []memoryFrame   // by offset
}

type memoryFrame struct {
	schema.Frame
	epoch schema.Epoch
	seq   schema.Seq
}

func compareCommits(a, b schema.Commit) int {
	if a.Epoch != b.Epoch {
		return int(a.Epoch - b.Epoch)
	}
	return int(a.Seq - b.Seq)
}

func (m *Memory) log(p schema.PartitionID) *memoryLog {
	l := m.logs[p]
	if l == nil {
		l = &memoryLog{}
		m.logs[p] = l
	}
	return l
}

// Append implements schema.Log.
func (m *Memory) Append(ctx context.Context, c *schema.Commit, _ schema.AckLevel) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	l := m.log(c.Partition)
	i, known := slices.BinarySearchFunc(l.commits, *c, compareCommits)
	if known {
		if !l.same(&l.commits[i], c) {
			return schema.Errorf(schema.Conflict, "commit %d of epoch %d of partition %d was written before with other bytes",
				c.Seq, c.Epoch, c.Partition)
		}
		return nil
	}
	l.commits = slices.Insert(l.commits, i, withoutBlobs(*c))
	for _, f := range c.Frames {
		f.Blob = bytes.Clone(f.Blob)
		at, _ := slices.BinarySearchFunc(l.frames, f.First, func(g memoryFrame, o schema.Offset) int { return int(g.First - o) })
		l.frames = slices.Insert(l.frames, at, memoryFrame{f, c.Epoch, c.Seq})
	}
	return nil
}

// same tells whether a commit comes again; frames that were forgotten meanwhile are taken on trust.
func (l *memoryLog) same(kept, c *schema.Commit) bool {
	if !equalCommits(*kept, withoutBlobs(*c)) {
		return false
	}
	for _, f := range c.Frames {
		for _, g := range l.frames {
			if g.First == f.First && !bytes.Equal(g.Blob, f.Blob) {
				return false
			}
		}
	}
	return true
}

func withoutBlobs(c schema.Commit) schema.Commit {
	c.Keys = bytes.Clone(c.Keys)
	c.Frames = slices.Clone(c.Frames)
	for i := range c.Frames {
		c.Frames[i].Blob = nil
	}
	return c
}

// LastCommit implements schema.Log.
func (m *Memory) LastCommit(ctx context.Context, p schema.PartitionID, e schema.Epoch) (c schema.Commit, ok bool, err error) {
	if err := m.enter(ctx); err != nil {
		return c, false, err
	}
	defer m.mu.Unlock()
	for _, o := range m.log(p).commits {
		if o.Epoch == e {
			c, ok = withoutBlobs(o), true
		}
	}
	return c, ok, nil
}

// Commits implements schema.Log.
func (m *Memory) Commits(ctx context.Context, p schema.PartitionID, e schema.Epoch, first schema.Seq, limit int) (cs []schema.Commit, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, c := range m.log(p).commits {
		if c.Epoch == e && c.Seq == first+schema.Seq(len(cs)) && len(cs) < limit {
			cs = append(cs, withoutBlobs(c))
		}
	}
	return cs, nil
}

// Kept implements schema.Log.
func (m *Memory) Kept(ctx context.Context, p schema.PartitionID, e schema.Epoch, first, last schema.Seq) (cs []schema.Commit, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, c := range m.log(p).commits {
		if c.Epoch == e && first <= c.Seq && c.Seq <= last {
			cs = append(cs, withoutBlobs(c))
		}
	}
	return cs, nil
}

// Rewrite implements schema.Log.
func (m *Memory) Rewrite(ctx context.Context, _ schema.PartitionID, _ schema.Epoch, _, _ schema.Seq) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	m.mu.Unlock()
	return nil
}

// Frames implements schema.Log.
func (m *Memory) Frames(ctx context.Context, t schema.TopicID, p schema.PartitionID, from, to schema.Offset, bytesMax int) (fs []schema.Frame, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	size := 0
	for _, f := range m.log(p).frames {
		if f.Topic != t || f.End() <= from || f.First >= to || from >= to {
			continue
		}
		if size += len(f.Blob); size > bytesMax && len(fs) > 0 {
			break
		}
		fs = append(fs, f.Frame)
	}
	return fs, nil
}

// Locate implements schema.Log.
func (m *Memory) Locate(ctx context.Context, p schema.PartitionID, o schema.Offset) (schema.Frame, bool, error) {
	if err := m.enter(ctx); err != nil {
		return schema.Frame{}, false, err
	}
	defer m.mu.Unlock()
	for _, f := range m.log(p).frames {
		if f.First <= o && o < f.End() {
			return f.Frame, true, nil
		}
	}
	return schema.Frame{}, false, nil
}

// SeekTime implements schema.Log.
func (m *Memory) SeekTime(ctx context.Context, t schema.TopicID, p schema.PartitionID, at time.Time) (schema.Offset, bool, error) {
	if err := m.enter(ctx); err != nil {
		return 0, false, err
	}
	defer m.mu.Unlock()
	for _, f := range m.log(p).frames {
		if f.Topic == t && !f.Time.Before(at) {
			return f.First, true, nil
		}
	}
	return 0, false, nil
}

// Earliest implements schema.Log.
func (m *Memory) Earliest(ctx context.Context, t schema.TopicID, p schema.PartitionID) (schema.Offset, bool, error) {
	return m.SeekTime(ctx, t, p, time.Time{})
}

// Retain implements schema.Log.
func (m *Memory) Retain(ctx context.Context, t schema.TopicID, p schema.PartitionID, before time.Time, bytesMax int64, upTo schema.Offset) (gone []schema.OffsetRange, more bool, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, false, err
	}
	defer m.mu.Unlock()
	l := m.log(p)
	var size int64
	for _, f := range l.frames {
		if f.Topic == t {
			size += int64(len(f.Blob))
		}
	}
	kept := false // once a frame stays, all after it stay
	l.frames = slices.DeleteFunc(l.frames, func(f memoryFrame) bool {
		if f.Topic != t || kept {
			return false
		}
		if kept = f.First+schema.Offset(f.Count) > upTo || !f.Time.Before(before) && (bytesMax <= 0 || size <= bytesMax); kept {
			return false
		}
		size -= int64(len(f.Blob))
		gone = append(gone, schema.OffsetRange{First: f.First, Count: f.Count})
		return true
	})
	l.forgetCommits()
	return joinRanges(gone), false, nil
}

// forgetCommits drops the commits that have no frame left.
func (l *memoryLog) forgetCommits() {
	lives := map[[2]int64]bool{}
	for _, f := range l.frames {
		lives[[2]int64{int64(f.epoch), int64(f.seq)}] = true
	}
	l.commits = slices.DeleteFunc(l.commits, func(c schema.Commit) bool {
		return !lives[[2]int64{int64(c.Epoch), int64(c.Seq)}]
	})
}

// joinRanges makes one range of those that adjoin.
func joinRanges(rs []schema.OffsetRange) (out []schema.OffsetRange) {
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].First+schema.Offset(out[n-1].Count) == r.First {
			out[n-1].Count += r.Count
			continue
		}
		out = append(out, r)
	}
	return out
}
