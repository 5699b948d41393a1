// Package storetest says what every store promises: a suite that each must pass, a plain store in memory to compare
// with, and a wrapper that makes any store fail.
package storetest

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/handfast-mq/handfast/schema"
)

// Memory is a store in plain maps and slices: slow where it grows, and easy to believe. It starts no goroutine, so
// that it can be used in a synctest bubble. Close and Reopen keep what it holds.
type Memory struct {
	mu       sync.Mutex
	closed   bool
	logs     map[schema.PartitionID]*memoryLog
	changes  []schema.Change
	forgot   schema.Revision // changes up to it
	records  []schema.Record // of the checkpoint at forgot
	cursors  []schema.CursorRow
	attempts []schema.Attempt
	sessions map[schema.SessionID]bool // true = live
	nodes    map[schema.NodeID]schema.Node
	slots    map[schema.PartitionID]schema.Partition
}

var _ schema.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{logs: map[schema.PartitionID]*memoryLog{}, sessions: map[schema.SessionID]bool{},
		nodes: map[schema.NodeID]schema.Node{}, slots: map[schema.PartitionID]schema.Partition{}}
}

// Close makes every later call fail until Reopen.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Reopen is the next start of the process: what was kept is there.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
	return m
}

// enter locks the store.
func (m *Memory) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return schema.WrapError(schema.Unavailable, err, "the call was given up before it began")
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return schema.Errorf(schema.Unavailable, "the store is closed")
	}
	return nil
}

// AppendChange implements schema.Metadata.
func (m *Memory) AppendChange(ctx context.Context, c schema.Change) (bool, error) {
	if c.Revision < 1 {
		return false, schema.Errorf(schema.Invalid, "the first revision is 1, not %d", c.Revision)
	}
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if c.Revision != m.head()+1 {
		return false, nil
	}
	c.Records = cloneRecords(c.Records)
	m.changes = append(m.changes, c)
	return true, nil
}

func cloneRecords(rs []schema.Record) []schema.Record {
	out := slices.Clone(rs)
	for i := range out {
		out[i].Value = bytes.Clone(out[i].Value)
	}
	return out
}

func (m *Memory) head() schema.Revision { return m.forgot + schema.Revision(len(m.changes)) }

// Head implements schema.Metadata.
func (m *Memory) Head(ctx context.Context) (schema.Revision, error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	return m.head(), nil
}

// Changes implements schema.Metadata.
func (m *Memory) Changes(ctx context.Context, after schema.Revision, limit int) (cs []schema.Change, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if after < m.forgot {
		return nil, schema.Errorf(schema.Gone, "changes up to %d are forgotten: begin from the checkpoint", m.forgot)
	}
	for _, c := range m.changes {
		if c.Revision > after && len(cs) < limit {
			c.Records = cloneRecords(c.Records)
			cs = append(cs, c)
		}
	}
	return cs, nil
}

// SaveCheckpoint implements schema.Metadata.
func (m *Memory) SaveCheckpoint(ctx context.Context, at schema.Revision, records []schema.Record) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if at > m.head() {
		return schema.Errorf(schema.Invalid, "a checkpoint at %d is ahead of the head %d", at, m.head())
	}
	if at > m.forgot {
		m.changes = slices.Clone(m.changes[at-m.forgot:])
		m.forgot, m.records = at, cloneRecords(records)
	}
	return nil
}

// Checkpoint implements schema.Metadata.
func (m *Memory) Checkpoint(ctx context.Context) (schema.Revision, []schema.Record, error) {
	if err := m.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer m.mu.Unlock()
	return m.forgot, cloneRecords(m.records), nil
}

// SaveCursors implements schema.Cursors.
func (m *Memory) SaveCursors(ctx context.Context, rows []schema.CursorRow, _ bool) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, r := range rows {
		r.State = bytes.Clone(r.State)
		i := slices.IndexFunc(m.cursors, func(o schema.CursorRow) bool {
			return o.Partition == r.Partition && o.Subscription == r.Subscription && o.Epoch == r.Epoch
		})
		if i < 0 {
			m.cursors = append(m.cursors, r)
		} else {
			m.cursors[i] = r
		}
	}
	return nil
}

// LoadCursors implements schema.Cursors.
func (m *Memory) LoadCursors(ctx context.Context, p schema.PartitionID) (rows []schema.CursorRow, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, r := range m.cursors {
		if r.Partition == p {
			r.State = bytes.Clone(r.State)
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// DropCursors implements schema.Cursors.
func (m *Memory) DropCursors(ctx context.Context, p schema.PartitionID, s schema.SubscriptionID, before schema.Epoch) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.cursors = slices.DeleteFunc(m.cursors, func(r schema.CursorRow) bool {
		return r.Partition == p && (s == 0 || r.Subscription == s) && (before == 0 || r.Epoch < before)
	})
	return nil
}

// attemptsMax bounds what the memory store keeps of all subscriptions together.
const attemptsMax = 10000

// SaveAttempts implements schema.Attempts.
func (m *Memory) SaveAttempts(ctx context.Context, rows []schema.Attempt) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	for _, a := range rows {
		a.Response = bytes.Clone(a.Response)
		m.attempts = append(m.attempts, a)
	}
	slices.SortStableFunc(m.attempts, func(a, b schema.Attempt) int { return b.At.Compare(a.At) })
	m.attempts = m.attempts[:min(len(m.attempts), attemptsMax)]
	return nil
}

// ListAttempts implements schema.Attempts.
func (m *Memory) ListAttempts(ctx context.Context, id schema.MessageID, s schema.SubscriptionID, limit int) (as []schema.Attempt, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, a := range m.attempts {
		if len(as) < limit && (id != 0 && a.Message == id || id == 0 && a.Subscription == s) {
			a.Response = bytes.Clone(a.Response)
			as = append(as, a)
		}
	}
	return as, nil
}
