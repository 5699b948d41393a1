package storetest

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/handfast-mq/handfast/schema"
)

// OpenSession implements schema.Ownership.
func (m *Memory) OpenSession(ctx context.Context, s schema.SessionID) error {
	if s == "" {
		return schema.Errorf(schema.Invalid, "a session needs an id")
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if _, known := m.sessions[s]; known {
		return schema.Errorf(schema.Conflict, "the session was used before")
	}
	m.sessions[s] = true
	return nil
}

// SessionLive implements schema.Ownership.
func (m *Memory) SessionLive(ctx context.Context, s schema.SessionID) (bool, error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	return m.sessions[s], nil
}

// Fence implements schema.Ownership.
func (m *Memory) Fence(ctx context.Context, s schema.SessionID) error {
	if s == "" {
		return schema.Errorf(schema.Invalid, "a session needs an id")
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.sessions[s] = false
	return nil
}

// SaveNode implements schema.Ownership.
func (m *Memory) SaveNode(ctx context.Context, n schema.Node) error {
	if n.ID == "" {
		return schema.Errorf(schema.Invalid, "a node needs an id")
	}
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.nodes[n.ID] = n
	return nil
}

// RemoveNode implements schema.Ownership.
func (m *Memory) RemoveNode(ctx context.Context, id schema.NodeID) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.mu.Unlock()
	delete(m.nodes, id)
	return nil
}

// Nodes implements schema.Ownership.
func (m *Memory) Nodes(ctx context.Context) ([]schema.Node, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.nodes), func(a, b schema.Node) int { return cmp.Compare(a.ID, b.ID) }), nil
}

func checkPartition(p schema.PartitionID) error {
	if p < 0 || p >= schema.PartitionsMax {
		return schema.Errorf(schema.Invalid, "partition %d is outside 0..%d", p, schema.PartitionsMax-1)
	}
	return nil
}

// Partition implements schema.Ownership.
func (m *Memory) Partition(ctx context.Context, p schema.PartitionID) (schema.Partition, error) {
	if err := checkPartition(p); err != nil {
		return schema.Partition{}, err
	}
	if err := m.enter(ctx); err != nil {
		return schema.Partition{}, err
	}
	defer m.mu.Unlock()
	return m.slot(p), nil
}

func (m *Memory) slot(p schema.PartitionID) schema.Partition {
	row := m.slots[p]
	row.ID = p
	row.Epochs = slices.Clone(row.Epochs)
	return row
}

// Partitions implements schema.Ownership.
func (m *Memory) Partitions(ctx context.Context) (ps []schema.Partition, err error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(m.slots)) {
		ps = append(ps, m.slot(p))
	}
	return ps, nil
}

// SwapPartition implements schema.Ownership.
func (m *Memory) SwapPartition(ctx context.Context, next schema.Partition) (bool, schema.Partition, error) {
	if err := checkPartition(next.ID); err != nil {
		return false, schema.Partition{}, err
	}
	if err := m.enter(ctx); err != nil {
		return false, schema.Partition{}, err
	}
	defer m.mu.Unlock()
	if current := m.slot(next.ID); current.Version != next.Version-1 {
		return false, current, nil
	}
	next.Epochs = slices.Clone(next.Epochs)
	m.slots[next.ID] = next
	return true, m.slot(next.ID), nil
}
