package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/internal/node"
)

func newServe() *cobra.Command {
	cfg := node.Default()
	var settings settings
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node on a data directory. The first start makes the cluster and its administrator, whose token is written to
admin.token in the directory.

Every flag can be given in the environment as HANDFAST_ and its name, in capitals and with _ for -:
HANDFAST_LISTEN=0.0.0.0:8080. A flag goes before the environment.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := settings.complete(c, &cfg); err != nil {
				return err
			}
			return serve(c.Context(), cfg, c.OutOrStdout())
		},
	}
	f := c.Flags()
	settings.register(f, &cfg)
	f.StringVar(&cfg.Store, "store", cfg.Store, "pebble (embedded, one node) or cql (a cluster on ScyllaDB or Cassandra)")
	f.StringVar(&cfg.Peers.Listen, "peer-listen", "", "address for the other nodes of a cluster")
	f.StringVar(&cfg.Peers.Advertise, "peer-advertise", "", "the address that the other nodes are told (default: --peer-listen)")
	f.StringVar(&cfg.Peers.Node, "node", "", "stable name of this node (default: its peer address)")
	f.StringVar(&cfg.Peers.CA, "peer-ca", "", "CA of the connections between nodes, PEM (default: the cluster's own)")
	f.StringVar(&cfg.Peers.Cert, "peer-cert", "", "this node's certificate, PEM")
	f.StringVar(&cfg.Peers.Key, "peer-key", "", "its key, PEM")
	f.DurationVar(&cfg.Peers.Suspicion, "suspicion", 3*time.Second, "silence after which a node's partitions are taken over")
	f.StringVar(&cfg.Dir, "dir", cfg.Dir, "data directory")
	f.StringVar(&cfg.Listen, "listen", cfg.Listen, "address of the API")
	f.StringVar(&cfg.PolicyDir, "policy-dir", cfg.PolicyDir, "directory or bundle of Rego policies that replaces the built-in ones; reloaded when it changes")
	f.StringVar(&cfg.PublicURL, "public-url", cfg.PublicURL, "how webhook endpoints reach this cluster, for consent given later")
	f.StringVar(&cfg.Origin, "origin", cfg.Origin, "DNS name that webhook endpoints are shown (default: the host of --public-url, or of this machine)")
	f.BoolVar(&cfg.AllowPrivateTargets, "allow-private-targets", cfg.AllowPrivateTargets, "let webhooks go to private addresses and by plain http: for development only")
	f.StringSliceVar(&cfg.AllowTargets, "allow-target", cfg.AllowTargets, "host or CIDR that webhooks may go to although it is private")
	f.IntVar(&cfg.IdempotencyKeys, "idempotency-keys", cfg.IdempotencyKeys, "idempotency keys that this node remembers at most, for 10 minutes, at some 110 bytes of memory each")
	f.IntVar(&cfg.UserRate, "user-rate", cfg.UserRate, "requests a second that one user may make at this node; 0 = no bound")
	f.StringVar(&cfg.FunctionCgroup, "function-cgroup", cfg.FunctionCgroup, "directory of cgroup v2 beneath which handlers get control groups (default the node's own group)")
	f.StringVar(&cfg.FunctionPath, "function-path", cfg.FunctionPath, "PATH of the handlers that the node hosts (default /usr/local/bin:/usr/bin:/bin)")
	f.BoolVar(&cfg.Lambda, "lambda", cfg.Lambda, "let subscriptions have AWS Lambda functions as targets, which this node invokes with its own AWS credentials")
	f.StringVar(&cfg.LambdaEndpoint, "lambda-endpoint", cfg.LambdaEndpoint, "where to invoke them instead of at AWS")
	f.StringVar(&cfg.DebugListen, "debug-listen", cfg.DebugListen, "address of the Go profiler (net/http/pprof); keep it private")
	return c
}

// serve runs a node until SIGTERM or SIGINT, or until it fails.
func serve(ctx context.Context, cfg node.Config, out io.Writer) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	greet(out, n, cfg)
	select {
	case <-ctx.Done():
	case err = <-n.Failed():
	}
	stop() // a second signal ends the process at once
	if closed := n.Close(context.Background()); err == nil {
		err = closed
	}
	return err
}

// greet says what to do next.
func greet(out io.Writer, n *node.Node, cfg node.Config) {
	token := filepath.Join(cfg.Dir, node.TokenFile)
	fmt.Fprintf(out, "handfast serves at %s\n", n.URL())
	if n.Created {
		fmt.Fprintf(out, "a new cluster was made; the administrator's token is in %s\n", token)
	}
	if _, err := os.Stat(token); err != nil { // of a cluster, the token is where migrate was told to put it
		return
	}
	fmt.Fprintf(out, "\nnext, in another terminal:\n\n  export HANDFAST_SERVER=%s HANDFAST_TOKEN=$(cat %s)\n  curl -s -H \"Authorization: Bearer $HANDFAST_TOKEN\" $HANDFAST_SERVER/user\n\n", n.URL(), token)
}
