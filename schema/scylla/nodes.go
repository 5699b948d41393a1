package scylla

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// nodesBucket is where all nodes are. It is bound, not written into the statements: the driver finds the replicas of bound keys alone, and
// looks for the others at the database each time.
const nodesBucket = 0

// SaveNode implements schema.Ownership.
func (s *Store) SaveNode(ctx context.Context, n schema.Node) error {
	if n.ID == "" {
		return schema.Errorf(schema.Invalid, "a node needs an id")
	}
	at := s.clock.next()
	return s.try(ctx, schema.Unknown, "save a node", func(d *db) error {
		q := d.query(ctx, "INSERT INTO nodes (bucket, id, session, address, peer, beat, applied, draining) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", nodesBucket,
			string(n.ID), string(n.Session), n.Address, n.Peer, n.Beat, int64(n.Applied), n.Draining)
		q.WithTimestamp(at)
		return q.Exec()
	})
}

// RemoveNode implements schema.Ownership.
func (s *Store) RemoveNode(ctx context.Context, id schema.NodeID) error {
	at := s.clock.next()
	return s.try(ctx, schema.Unknown, "remove a node", func(d *db) error {
		q := d.query(ctx, "DELETE FROM nodes WHERE bucket = ? AND id = ?", nodesBucket, string(id))
		q.WithTimestamp(at)
		return q.Exec()
	})
}

// Nodes implements schema.Ownership.
func (s *Store) Nodes(ctx context.Context) (ns []schema.Node, err error) {
	err = s.try(ctx, schema.Unavailable, "read the nodes", func(d *db) error {
		ns = nil
		iter := d.query(ctx, "SELECT id, session, address, peer, beat, applied, draining FROM nodes WHERE bucket = ?", nodesBucket).Iter()
		for {
			var n schema.Node
			if !iter.Scan((*string)(&n.ID), (*string)(&n.Session), &n.Address, &n.Peer, &n.Beat, (*int64)(&n.Applied), &n.Draining) {
				return iter.Close()
			}
			ns = append(ns, n)
		}
	})
	return ns, err
}
