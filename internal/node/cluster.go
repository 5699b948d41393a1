package node

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/handfast-mq/handfast/internal/certs"
	"github.com/handfast-mq/handfast/partitions"
	"github.com/handfast-mq/handfast/partitions/peer"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
	"github.com/handfast-mq/handfast/schema/scylla"
)

// Migrate makes or upgrades the tables of a cluster's database, and the cluster with its administrator when there is none. It tells whether it made it.
func Migrate(ctx context.Context, cfg Config) (created bool, err error) {
	cfg.Database.Logger = cfg.Logger
	if err := scylla.Migrate(ctx, cfg.Database); err != nil {
		return false, err
	}
	store, err := scylla.Open(ctx, cfg.Database)
	if err != nil {
		return false, err
	}
	defer store.Close()
	c, err := catalog.Open(ctx, store)
	if err != nil {
		return false, err
	}
	ca, err := certs.NewCA()
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return false, err
	}
	return initCluster(ctx, c, cfg.Dir, schema.Cluster{Partitions: cfg.Partitions, PeerCA: ca.Cert, PeerCAKey: ca.Key}, cfg.AdminToken)
}

func (n *Node) openDatabase(ctx context.Context) (err error) {
	if n.peerListener, err = net.Listen("tcp", n.cfg.Peers.Listen); err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	n.cfg.Database.Logger = n.cfg.Logger
	store, err := scylla.Open(ctx, n.cfg.Database)
	if err != nil {
		return err
	}
	n.store = store
	if n.catalog, err = catalog.Open(ctx, n.store); err != nil {
		return err
	}
	if n.catalog.Cluster() == nil {
		return schema.Errorf(schema.Invalid, "the database holds no cluster yet: run handfast migrate first")
	}
	return nil
}

// cluster returns how this node takes part; nil on the embedded store.
func (n *Node) cluster() (*partitions.Cluster, error) {
	if n.cfg.Store != StoreCQL {
		return nil, nil
	}
	p := n.cfg.Peers
	c := &partitions.Cluster{Node: schema.NodeID(p.Node), Address: n.listener.Addr().String(), Peer: p.Advertise, Suspicion: p.Suspicion}
	if c.Peer == "" {
		c.Peer = n.peerListener.Addr().String()
	}
	if c.Node == "" {
		c.Node = schema.NodeID(c.Peer)
	}
	ca, pair, err := n.peerCertificates()
	if err != nil {
		return nil, err
	}
	c.TLS, err = certs.Mutual(ca, pair)
	return c, err
}

// peerCertificates reads the files that were named, or has a certificate issued by the cluster's own authority.
func (n *Node) peerCertificates() (ca []byte, pair certs.Pair, err error) {
	p := n.cfg.Peers
	if p.CA == "" {
		own := n.catalog.Cluster()
		pair, err = certs.Pair{Cert: own.PeerCA, Key: own.PeerCAKey}.Issue()
		if err != nil {
			err = fmt.Errorf("issue a certificate for this node: %w", err)
		}
		return own.PeerCA, pair, err
	}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{p.CA, &ca}, {p.Cert, &pair.Cert}, {p.Key, &pair.Key}} {
		if *f.to, err = os.ReadFile(f.name); err != nil {
			return nil, pair, fmt.Errorf("read peer certificates: %w", err)
		}
	}
	return ca, pair, nil
}

func (n *Node) servePeers(c *partitions.Cluster) {
	if c == nil {
		return
	}
	n.peers = peer.NewServer(n.service.Node(), c.TLS)
	n.serving.Go(func() {
		if err := n.peers.Serve(n.peerListener); err != nil {
			n.failed <- fmt.Errorf("serve peers: %w", err)
		}
	})
}
