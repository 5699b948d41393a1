package scylla

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// SaveNode implements schema.Ownership.
func (s *Store) SaveNode(ctx context.Context, n schema.Node) error {
	if n.ID == "" {
		return schema.Errorf(schema.Invalid, "a node needs an id")
	}
	at := s.clock.next()
	return s.try(ctx, schema.Unknown, "save a node", func(d *db) error {
		q := d.query(ctx, "INSERT INTO nodes (bucket, id, session, address, peer, beat, applied, draining) VALUES (0, ?, ?, ?, ?, ?, ?, ?)",
			string(n.ID), string(n.Session), n.Address, n.Peer, n.Beat, int64(n.Applied), n.Draining)
		q.WithTimestamp(at)
		return q.Exec()
	})
}

// RemoveNode implements schema.Ownership.
func (s *Store) RemoveNode(ctx context.Context, id schema.NodeID) error {
	at := s.clock.next()
	return s.try(ctx, schema.Unknown, "remove a node", func(d *db) error {
		q := d.query(ctx, "DELETE FROM nodes WHERE bucket = 0 AND id = ?", string(id))
		q.WithTimestamp(at)
		return q.Exec()
	})
}

// Nodes implements schema.Ownership.
func (s *Store) Nodes(ctx context.Context) (ns []schema.Node, err error) {
	err = s.try(ctx, schema.Unavailable, "read the nodes", func(d *db) error {
		ns = nil
		iter := d.query(ctx, "SELECT id, session, address, peer, beat, applied, draining FROM nodes WHERE bucket = 0").Iter()
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
