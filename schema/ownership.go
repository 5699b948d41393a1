package schema

import "context"

// Node is one member's row: plain writes, for liveness and addresses only. No safety rests on it.
type Node struct {
	ID       NodeID
	Session  SessionID
	Address  string   // of the public HTTP listener
	Peer     string   // of the peer listener, "" = none
	Beat     int64    // grows with every heartbeat
	Applied  Revision // metadata that this node has applied
	Draining bool     // wants no partitions
}

// EpochRow is one ownership of a partition. A sealed epoch never changes again. While it is open, End and LastSeq are a place that
// is committed for certain, noted from time to time: the log before it may have been forgotten.
type EpochRow struct {
	Epoch   Epoch
	Session SessionID
	Start   Offset // its first offset
	Sealed  bool
	End     Offset // the offset after its last message
	LastSeq Seq    // its last commit; 0 = none
}

// Partition is the row that says who owns a slot. It changes by compare-and-set on Version alone.
type Partition struct {
	ID       PartitionID
	Version  int64
	Attempt  string // random id of the write that made this version
	Epochs   []EpochRow
	Reserved Offset // offsets below it may have been given by the open epoch
}

// Open returns the epoch that is not sealed; ok is false when the partition is free.
func (p *Partition) Open() (e EpochRow, ok bool) {
	if n := len(p.Epochs); n > 0 && !p.Epochs[n-1].Sealed {
		return p.Epochs[n-1], true
	}
	return EpochRow{}, false
}

// Ownership keeps sessions, members and partition rows.
type Ownership interface {
	// OpenSession registers a session as live. Its id must be new.
	OpenSession(ctx context.Context, s SessionID) error
	// SessionLive reads the session register at quorum. An absent session is not live. With an error nothing is known.
	SessionLive(ctx context.Context, s SessionID) (bool, error)
	// Fence marks a session as ended for ever and returns when a quorum has it. Fencing twice is harmless.
	Fence(ctx context.Context, s SessionID) error

	// SaveNode replaces a node's row; RemoveNode takes it away.
	SaveNode(ctx context.Context, n Node) error
	RemoveNode(ctx context.Context, id NodeID) error
	// Nodes returns all rows.
	Nodes(ctx context.Context) ([]Node, error)

	// Partition reads one row, linearizably. A row that was never written has version 0.
	Partition(ctx context.Context, p PartitionID) (Partition, error)
	// Partitions returns all rows that were written. They may be stale: they are for routing and for people.
	Partitions(ctx context.Context) ([]Partition, error)
	// SwapPartition writes next when the row's version is next.Version-1. It returns false and the row as it is
	// otherwise. With an error the outcome is unknown: read the row and compare Attempt.
	SwapPartition(ctx context.Context, next Partition) (swapped bool, current Partition, err error)
}
