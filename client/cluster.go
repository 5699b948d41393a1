package client

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// Cluster is the cluster as the node that answered sees it.
type Cluster struct {
	Revision   schema.Revision `json:"metadata_revision"`
	Nodes      []Node          `json:"nodes"`
	Partitions []Partition     `json:"partitions"`
}

// Node is a member.
type Node struct {
	ID       schema.NodeID    `json:"node"`
	Session  schema.SessionID `json:"session"`
	Address  string           `json:"address,omitempty"`
	Peer     string           `json:"peer,omitempty"`
	Alive    bool             `json:"alive"`
	Draining bool             `json:"draining"`
	Owns     int              `json:"partitions"`
	Lag      int64            `json:"metadata_lag"` // changes of the metadata that it has not applied
}

// Partition is a slot. Owner and Session are empty while nobody owns it.
type Partition struct {
	ID      schema.PartitionID `json:"partition"`
	Epoch   schema.Epoch       `json:"epoch"`
	Session schema.SessionID   `json:"session,omitempty"`
	Owner   schema.NodeID      `json:"owner,omitempty"`
	Should  schema.NodeID      `json:"should_own,omitempty"` // the node that the ring wants
}

// Cluster shows the members and who owns what. It is for administrators.
func (c *Client) Cluster(ctx context.Context) (v Cluster, err error) {
	err = c.do(ctx, get("/cluster", nil), &v)
	return v, err
}
