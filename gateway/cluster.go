package gateway

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

type wireNode struct {
	ID       schema.NodeID    `json:"node"`
	Session  schema.SessionID `json:"session"`
	Address  string           `json:"address,omitempty"`
	Peer     string           `json:"peer,omitempty"`
	Alive    bool             `json:"alive"`
	Draining bool             `json:"draining"`
	Owns     int              `json:"partitions"`
	Lag      int64            `json:"metadata_lag"`
}

type wirePartition struct {
	ID      schema.PartitionID `json:"partition"`
	Epoch   schema.Epoch       `json:"epoch"`
	Session schema.SessionID   `json:"session,omitempty"`
	Owner   schema.NodeID      `json:"owner,omitempty"`
	Should  schema.NodeID      `json:"should_own,omitempty"`
}

type wireCluster struct {
	Revision   schema.Revision `json:"metadata_revision"`
	Nodes      []wireNode      `json:"nodes"`
	Partitions []wirePartition `json:"partitions"`
}

// showCluster is GET /cluster: the members and who owns what.
func (g *Gateway) showCluster(ctx context.Context, by caller, _ *params) (out wireCluster, err error) {
	if err := g.allow(ctx, by, &schema.AuthRequest{Action: schema.ActionReadCluster}); err != nil {
		return out, err
	}
	v, err := g.cfg.Broker.View(ctx)
	if err != nil {
		return out, err
	}
	out = wireCluster{v.Revision, make([]wireNode, len(v.Nodes)), make([]wirePartition, len(v.Partitions))}
	for i, n := range v.Nodes {
		out.Nodes[i] = wireNode{n.ID, n.Session, n.Address, n.Peer, n.Alive, n.Draining, n.Owns, n.Lag}
	}
	for i, p := range v.Partitions {
		out.Partitions[i] = wirePartition{p.ID, p.Epoch, p.Session, p.Owner, p.Should}
	}
	return out, nil
}
