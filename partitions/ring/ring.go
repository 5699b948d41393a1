// Package ring says which node should own which partition: consistent hashing with bounded load over the live nodes.
// It is a wish; the partition's row in the store says who does own it.
package ring

import (
	"slices"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// virtualNodes spread each node over the ring: with 200, the shares of a few nodes differ by some percent.
	virtualNodes = 200
	// loadFactor bounds a node's partitions to 1.25 times the average. Tighter would move more partitions at a join.
	loadFactor = 1.25
)

// Ring is the assignment for one set of nodes. It is immutable.
type Ring struct {
	nodes  []schema.NodeID
	owners []schema.NodeID
}

type member schema.NodeID

func (m member) String() string { return string(m) }

type hasher struct{}

func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

// New assigns partitions to nodes. The same nodes give the same ring everywhere, in whatever order they are named.
func New(nodes []schema.NodeID, partitions int) *Ring {
	r := &Ring{nodes: slices.Clone(nodes), owners: make([]schema.NodeID, partitions)}
	slices.Sort(r.nodes)
	if len(r.nodes) == 0 {
		return r
	}
	active := r.nodes[:min(len(r.nodes), partitions)] // the library wants a partition for each; the others stand by
	members := make([]consistent.Member, len(active))
	for i, n := range active {
		members[i] = member(n)
	}
	c := consistent.New(members, consistent.Config{Hasher: hasher{}, PartitionCount: partitions, ReplicationFactor: virtualNodes, Load: loadFactor})
	for p := range r.owners {
		r.owners[p] = schema.NodeID(c.GetPartitionOwner(p).String())
	}
	return r
}

// Owner returns the node that should own a partition; "" when there is no node.
func (r *Ring) Owner(p schema.PartitionID) schema.NodeID { return r.owners[p] }

// Nodes returns the nodes of the ring, sorted.
func (r *Ring) Nodes() []schema.NodeID { return r.nodes }
