// Package node puts a node together. It is the only place that names the concrete stores, invokers and policies, so that the command
// line and tests start the same thing.
package node

import (
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/partitions"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/scylla"
)

// Config is everything that can be set on a node. Default gives complete values; Validate checks them together.
type Config struct {
	Dir    string // holds the store and the administrator's token
	Listen string // address of the API, host:port; port 0 takes a free one

	Store    string        // StorePebble or StoreCQL
	Database scylla.Config // of StoreCQL
	Peers    Peers         // of StoreCQL

	Partitions int    // slots of a new cluster; ignored once it exists
	AdminToken string // of a new cluster; "" makes one

	PolicyDir           string   // own policies; "" = the built-in ones
	PublicURL           string   // how endpoints reach this cluster, for consent callbacks; "" = they cannot
	Origin              string   // the DNS name shown to webhook endpoints; "" = the host's name
	AllowPrivateTargets bool     // webhooks may go to private addresses, by plain http too: for development
	AllowTargets        []string // hosts and CIDRs that webhooks may go to although they are private
	UserRate            int      // requests a second and user; 0 = no bound
	IdempotencyKeys     int      // that the node remembers at most, at some 110 bytes each
	Lambda              bool     // subscriptions may have AWS Lambda functions as targets, invoked with this node's AWS credentials
	LambdaEndpoint      string   // instead of AWS's own; "" = AWS
	DebugListen         string   // address of the profiler, "" = none; keep it private
	FunctionPath        string   // PATH of the handlers that the node hosts; "" = the system's usual one
	FunctionCgroup      string   // directory of cgroup v2 beneath which handlers have groups of their own; "" = the one of this process

	ReadTimeout time.Duration // for a whole request; 0 = 20 s
	IdleTimeout time.Duration // for a connection between two requests; 0 = 120 s

	Logger *slog.Logger
}

// The stores.
const (
	StorePebble = "pebble" // embedded: one node, one directory
	StoreCQL    = "cql"    // a cluster on ScyllaDB or Apache Cassandra
)

// Peers says how this node meets the others.
type Peers struct {
	Node          string        // stable name of this node; "" = its peer address
	Listen        string        // where the others reach it
	Advertise     string        // the address that they are told; "" = Listen
	CA, Cert, Key string        // PEM files; "" = the authority that is beside the metadata
	Suspicion     time.Duration // silence after which a node's partitions are taken over; 0 = 3 s
}

// Default is a node for development on this machine.
func Default() Config {
	return Config{
		Dir:    "handfast-data",
		Listen: "127.0.0.1:8080",
		Store:  StorePebble,
		// Why not fewer: a cluster can never have more nodes than partitions. Why not more: each takes a commit loop and a row.
		Partitions: 64,
		// Above what one node takes from one user; it is there so that one user's mistake does not starve the others.
		UserRate: 100_000, IdempotencyKeys: partitions.IdempotencyKeys,
		Logger: slog.Default(),
	}
}

// Validate checks the settings, and their relations to each other.
func (c *Config) Validate() error {
	switch {
	case c.Dir == "":
		return schema.Errorf(schema.Invalid, "a data directory is needed (--dir)")
	case c.Store != StorePebble && c.Store != StoreCQL:
		return schema.Errorf(schema.Invalid, "--store must be %s or %s, not %q", StorePebble, StoreCQL, c.Store)
	case c.Store == StoreCQL && c.Peers.Listen == "":
		return schema.Errorf(schema.Invalid, "--store %s needs --peer-listen, where the other nodes reach this one", StoreCQL)
	case c.Store == StoreCQL && len(c.Database.Hosts) == 0:
		return schema.Errorf(schema.Invalid, "--store %s needs --cql-hosts", StoreCQL)
	case (c.Peers.CA == "") != (c.Peers.Cert == "") || (c.Peers.Cert == "") != (c.Peers.Key == ""):
		return schema.Errorf(schema.Invalid, "--peer-ca, --peer-cert and --peer-key go together")
	case c.Peers.Suspicion < 0 || c.Peers.Suspicion > 0 && c.Peers.Suspicion < 200*time.Millisecond:
		return schema.Errorf(schema.Invalid, "--suspicion must be at least 200ms")
	case c.Partitions < 1 || c.Partitions > schema.PartitionsMax:
		return schema.Errorf(schema.Invalid, "--partitions must be between 1 and %d", schema.PartitionsMax)
	case c.IdempotencyKeys < 1:
		return schema.Errorf(schema.Invalid, "--idempotency-keys must be 1 or more")
	case c.UserRate < 0:
		return schema.Errorf(schema.Invalid, "--user-rate must be 0 or more")
	case c.ReadTimeout < 0 || c.IdleTimeout < 0:
		return schema.Errorf(schema.Invalid, "timeouts must be 0 or more")
	case c.PublicURL != "" && !strings.HasPrefix(c.PublicURL, "https://") && !c.AllowPrivateTargets:
		return schema.Errorf(schema.Invalid, "--public-url must begin with https://, but for development with --allow-private-targets")
	case c.AdminToken != "" && len(c.AdminToken) < 32:
		return schema.Errorf(schema.Invalid, "the administrator's token must have at least 32 characters")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return schema.Errorf(schema.Invalid, "--listen must be host:port, not %q", c.Listen)
	}
	return nil
}
