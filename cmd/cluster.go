package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
)

func newCluster(r *remote) *cobra.Command {
	c := r.verb("cluster", "Show the nodes of the cluster and who owns which partition", noArgs, func(ctx context.Context, s *session) error {
		v, err := s.Cluster(ctx)
		if err != nil || s.json {
			if err == nil {
				err = s.one(v)
			}
			return err
		}
		err = list(s.printer, v.Nodes, "NODE ALIVE DRAINING PARTITIONS METADATA_LAG ADDRESS PEER SESSION", func(n client.Node) []any {
			return []any{n.ID, n.Alive, n.Draining, n.Owns, n.Lag, n.Address, n.Peer, n.Session}
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(s.cmd.OutOrStdout())
		return list(s.printer, v.Partitions, "PARTITION EPOCH OWNER SHOULD_OWN SESSION", func(p client.Partition) []any {
			return []any{p.ID, p.Epoch, p.Owner, p.Should, p.Session}
		})
	})
	return c
}
