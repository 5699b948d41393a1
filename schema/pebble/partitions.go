package pebble

import (
	"context"
	"encoding/json"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

func nodeKey(id schema.NodeID) key { return append(row(rowNode), id...) }

func partitionKey(p schema.PartitionID) key { return row(rowPartitionRow).partition(p) }

// SaveNode implements schema.Ownership. It is not synced: no safety rests on it.
func (s *Store) SaveNode(_ context.Context, n schema.Node) error {
	if l := len(n.ID); l == 0 || l > schema.NameBytesMax {
		return schema.Errorf(schema.Invalid, "a node id has 1 to %d bytes, not %d", schema.NameBytesMax, l)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	v, err := json.Marshal(&n)
	if err == nil {
		err = s.db.Set(nodeKey(n.ID), v, cockroach.NoSync)
	}
	return internal(err, "save a node")
}

// RemoveNode implements schema.Ownership.
func (s *Store) RemoveNode(_ context.Context, id schema.NodeID) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return internal(s.db.Delete(nodeKey(id), cockroach.NoSync), "remove a node")
}

// Nodes implements schema.Ownership.
func (s *Store) Nodes(context.Context) ([]schema.Node, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	ns, err := decodeAll[schema.Node](s.db, row(rowNode))
	return ns, internal(err, "read the nodes")
}

// Partitions implements schema.Ownership.
func (s *Store) Partitions(context.Context) ([]schema.Partition, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	ps, err := decodeAll[schema.Partition](s.db, row(rowPartitionRow))
	return ps, internal(err, "read the partitions")
}

func decodeAll[T any](db *cockroach.DB, prefix key) (ts []T, err error) {
	err = scan(db, prefix, func(_, v []byte) (bool, error) {
		var t T
		err := json.Unmarshal(v, &t)
		ts = append(ts, t)
		return true, err
	})
	return ts, err
}

// Partition implements schema.Ownership.
func (s *Store) Partition(_ context.Context, p schema.PartitionID) (schema.Partition, error) {
	if err := checkPartition(p); err != nil {
		return schema.Partition{}, err
	}
	if err := s.enter(); err != nil {
		return schema.Partition{}, err
	}
	defer s.leave()
	return s.partition(p)
}

func checkPartition(p schema.PartitionID) error {
	if p < 0 || p >= schema.PartitionsMax {
		return schema.Errorf(schema.Invalid, "partition %d is outside 0..%d", p, schema.PartitionsMax-1)
	}
	return nil
}

func (s *Store) partition(p schema.PartitionID) (schema.Partition, error) {
	row := schema.Partition{ID: p}
	v, ok, err := get(s.db, partitionKey(p))
	if err == nil && ok {
		err = json.Unmarshal(v, &row)
	}
	return row, internal(err, "read a partition's row")
}

// SwapPartition implements schema.Ownership. Swaps of different partitions share Pebble's syncs.
func (s *Store) SwapPartition(_ context.Context, next schema.Partition) (swapped bool, current schema.Partition, err error) {
	if err := checkPartition(next.ID); err != nil {
		return false, current, err
	}
	if err := s.enter(); err != nil {
		return false, current, err
	}
	defer s.leave()
	mu := &s.swaps[int(next.ID)%len(s.swaps)]
	mu.Lock()
	defer mu.Unlock()
	current, err = s.partition(next.ID)
	if err != nil || current.Version != next.Version-1 {
		return false, current, err
	}
	v, err := json.Marshal(&next)
	if err == nil {
		err = s.db.Set(partitionKey(next.ID), v, cockroach.Sync)
	}
	if err != nil {
		return false, current, internal(err, "write a partition's row")
	}
	return true, next, nil
}
