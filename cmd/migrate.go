package cmd

import (
	"context"
	"fmt"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/internal/node"
)

func newMigrate() *cobra.Command {
	cfg := node.Default()
	var settings settings
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make or upgrade the tables of a cluster's database",
		Long: `Make or upgrade the tables of a cluster's database, and the cluster with its administrator when there is none. The token is
taken from HANDFAST_ADMIN_TOKEN, or made and written to admin.token in --dir. Run it once before the first node starts and
before each upgrade; it can run again, and several at once wait for each other.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := settings.complete(c, &cfg); err != nil {
				return err
			}
			if len(cfg.Database.Hosts) == 0 {
				return usagef("--cql-hosts is needed")
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			created, err := node.Migrate(ctx, cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "keyspace %s is ready\n", cfg.Database.Keyspace)
			if created {
				fmt.Fprintf(c.OutOrStdout(), "a new cluster was made; the administrator's token is in %s\n", filepath.Join(cfg.Dir, node.TokenFile))
			}
			return nil
		},
	}
	f := c.Flags()
	settings.register(f, &cfg)
	f.StringVar(&cfg.Dir, "dir", cfg.Dir, "directory for the administrator's token of a new cluster")
	f.IntVar(&cfg.Database.ReplicationFactor, "replication-factor", 3, "replicas of a new keyspace")
	return c
}
