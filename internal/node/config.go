// Package node puts a node together. It is the only place that names the concrete stores, invokers and policies, so that the command
// line and tests start the same thing.
package node

import (
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Config is everything that can be set on a node. Default gives complete values; Validate checks them together.
type Config struct {
	Dir    string // holds the store and the administrator's token
	Listen string // address of the API, host:port; port 0 takes a free one

	Partitions int    // slots of a new cluster; ignored once it exists
	AdminToken string // of a new cluster; "" makes one

	PolicyDir           string   // own policies; "" = the built-in ones
	PublicURL           string   // how endpoints reach this cluster, for consent callbacks; "" = they cannot
	Origin              string   // the DNS name shown to webhook endpoints; "" = the host's name
	AllowPrivateTargets bool     // webhooks may go to private addresses, by plain http too: for development
	AllowTargets        []string // hosts and CIDRs that webhooks may go to although they are private
	UserRate            int      // requests a second and user; 0 = no bound
	Lambda              bool     // subscriptions may have AWS Lambda functions as targets, invoked with this node's AWS credentials
	LambdaEndpoint      string   // instead of AWS's own; "" = AWS
	DebugListen         string   // address of the profiler, "" = none; keep it private
	FunctionPath        string   // PATH of the handlers that the node hosts; "" = the system's usual one

	ReadTimeout time.Duration // for a whole request; 0 = 20 s
	IdleTimeout time.Duration // for a connection between two requests; 0 = 120 s

	Logger *slog.Logger
}

// Default is a node for development on this machine.
func Default() Config {
	return Config{
		Dir:    "handfast-data",
		Listen: "127.0.0.1:8080",
		// Why not fewer: a cluster can never have more nodes than partitions. Why not more: each takes a commit loop and a row.
		Partitions: 64,
		// Above what one node takes from one user; it is there so that one user's mistake does not starve the others.
		UserRate: 100_000,
		Logger:   slog.Default(),
	}
}

// Validate checks the settings, and their relations to each other.
func (c *Config) Validate() error {
	switch {
	case c.Dir == "":
		return schema.Errorf(schema.Invalid, "a data directory is needed (--dir)")
	case c.Partitions < 1 || c.Partitions > schema.PartitionsMax:
		return schema.Errorf(schema.Invalid, "--partitions must be between 1 and %d", schema.PartitionsMax)
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
