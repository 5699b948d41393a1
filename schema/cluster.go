package schema

// ClusterView is the cluster as one node sees it, for people.
type ClusterView struct {
	Revision   Revision // last change of the metadata
	Nodes      []NodeView
	Partitions []PartitionView
}

// NodeView is one member.
type NodeView struct {
	Node
	Alive bool  // its heartbeat changed within the suspicion time
	Owns  int   // partitions whose open epoch is of its session
	Lag   int64 // changes of the metadata that it has not applied
}

// PartitionView is one slot.
type PartitionView struct {
	ID      PartitionID
	Epoch   Epoch
	Session SessionID // of the open epoch; "" = nobody owns it at this moment
	Owner   NodeID    // the node that lives in the session; "" = none that is known
	Should  NodeID    // the node that the ring wants
}
