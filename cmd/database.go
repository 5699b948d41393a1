package cmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handfast-mq/handfast/internal/node"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/scylla"
)

// databaseFlags are the flags of those commands that talk to a cluster's database.
func databaseFlags(f *pflag.FlagSet, d *scylla.Config) (finish func()) {
	var tls scylla.TLS
	var scope string
	f.StringSliceVar(&d.Hosts, "cql-hosts", nil, "hosts of the ScyllaDB or Cassandra cluster, some are enough")
	f.IntVar(&d.Port, "cql-port", 9042, "port of the database")
	f.StringVar(&d.Keyspace, "keyspace", "handfast", "keyspace")
	f.StringToStringVar(&d.Reached, "cql-reached", nil, "where nodes of the database are reached that are elsewhere than they say, as ip:port=ip:port")
	f.StringVar(&d.Username, "cql-username", "", "user of the database; the password comes from HANDFAST_CQL_PASSWORD")
	f.StringVar(&d.Datacenter, "cql-datacenter", "", "datacenter whose database nodes are preferred")
	f.StringVar(&scope, "cql-scope", string(scylla.Local), "how far quorums reach: local (one datacenter) or global; the same on every node, for ever")
	f.StringVar(&tls.CA, "cql-ca", "", "CA of the database's certificates, PEM; turns TLS on")
	f.StringVar(&tls.ServerName, "cql-server-name", "", "name in the database's certificates, where it is not each host's address")
	f.StringVar(&tls.Cert, "cql-cert", "", "client certificate for the database, PEM")
	f.StringVar(&tls.Key, "cql-key", "", "its key, PEM")
	return func() {
		d.Scope, d.Password = scylla.Scope(scope), os.Getenv("HANDFAST_CQL_PASSWORD")
		if tls != (scylla.TLS{}) {
			d.TLS = &tls
		}
	}
}

func newMigrate() *cobra.Command {
	cfg := node.Default()
	var logLevel, logFormat string
	var finish func()
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Make or upgrade the tables of a cluster's database",
		Long: `Make or upgrade the tables of a cluster's database, and the cluster with its administrator when there is none. The token is
taken from HANDFAST_ADMIN_TOKEN, or made and written to admin.token in --dir. Run it once before the first node starts and
before each upgrade; it can run again, and several at once wait for each other.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnvironment(c.Flags()); err != nil {
				return err
			}
			finish()
			logger, err := newLogger(c.ErrOrStderr(), logLevel, logFormat)
			if err != nil {
				return err
			}
			cfg.Logger, cfg.AdminToken = logger, os.Getenv("HANDFAST_ADMIN_TOKEN")
			if len(cfg.Database.Hosts) == 0 {
				return usagef("--cql-hosts is needed")
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			created, err := node.Migrate(ctx, cfg)
			if schema.KindOf(err) == schema.Invalid && err != nil {
				return usageError{err}
			}
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
	finish = databaseFlags(f, &cfg.Database)
	f.StringVar(&cfg.Dir, "dir", cfg.Dir, "directory for the administrator's token of a new cluster")
	f.IntVar(&cfg.Partitions, "partitions", cfg.Partitions, "partitions of a new cluster; they can never be changed")
	f.IntVar(&cfg.Database.ReplicationFactor, "replication-factor", 3, "replicas of a new keyspace")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	return c
}
