package cmd

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handfast-mq/handfast/internal/node"
	"github.com/handfast-mq/handfast/schema/scylla"
)

// settings are what all commands that work on a cluster itself read alike, from flags, environment and files: the database, the log and
// what a new cluster is like.
type settings struct {
	logLevel, logFormat string
	scope               string
	tls                 scylla.TLS
}

func (s *settings) register(f *pflag.FlagSet, cfg *node.Config) {
	f.IntVar(&cfg.Partitions, "partitions", cfg.Partitions, "partitions of a new cluster; they can never be changed")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.StringSliceVar(&cfg.Database.Hosts, "cql-hosts", nil, "hosts of the ScyllaDB or Cassandra cluster, some are enough")
	f.IntVar(&cfg.Database.Port, "cql-port", 9042, "port of the database")
	f.StringVar(&cfg.Database.Keyspace, "keyspace", "handfast", "keyspace")
	f.StringToStringVar(&cfg.Database.Reached, "cql-reached", nil, "where nodes of the database are reached that are elsewhere than they say, as ip:port=ip:port")
	f.StringVar(&cfg.Database.Username, "cql-username", "", "user of the database; the password comes from HANDFAST_CQL_PASSWORD")
	f.StringVar(&cfg.Database.Datacenter, "cql-datacenter", "", "datacenter whose database nodes are preferred")
	f.StringVar(&s.scope, "cql-scope", string(scylla.Local), "how far quorums reach: local (one datacenter) or global; the same on every node, for ever")
	f.StringVar(&s.tls.CA, "cql-ca", "", "CA of the database's certificates, PEM; turns TLS on")
	f.StringVar(&s.tls.ServerName, "cql-server-name", "", "name in the database's certificates, where it is not each host's address")
	f.StringVar(&s.tls.Cert, "cql-cert", "", "client certificate for the database, PEM")
	f.StringVar(&s.tls.Key, "cql-key", "", "its key, PEM")
}

// complete reads the environment, which says what no flag said, and the secrets, which have no flags.
func (s *settings) complete(c *cobra.Command, cfg *node.Config) (err error) {
	if err := fromEnvironment(c.Flags()); err != nil {
		return err
	}
	cfg.AdminToken, cfg.Database.Password = os.Getenv("HANDFAST_ADMIN_TOKEN"), os.Getenv("HANDFAST_CQL_PASSWORD")
	cfg.Database.Scope = scylla.Scope(s.scope)
	if s.tls != (scylla.TLS{}) {
		cfg.Database.TLS = &s.tls
	}
	cfg.Logger, err = newLogger(c.ErrOrStderr(), s.logLevel, s.logFormat)
	return err
}

// fromEnvironment sets the flags that were not given from HANDFAST_… variables.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "HANDFAST_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, there := os.LookupEnv(name); there && !f.Changed {
			if failed := flags.Set(f.Name, value); failed != nil {
				err = usagef("%s: %w", name, failed)
			}
		}
	})
	return err
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level must be debug, info, warn or error, not %q", level)
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
	}
	return nil, usagef("--log-format must be text or json, not %q", format)
}
