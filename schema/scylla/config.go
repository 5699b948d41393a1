package scylla

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"time"

	"github.com/gocql/gocql"

	"github.com/handfast-mq/handfast/schema"
)

// Scope says how far a quorum reaches.
type Scope string

const (
	// Local quorums are of the own datacenter: LOCAL_QUORUM and LOCAL_SERIAL. All nodes must be in one datacenter.
	Local Scope = "local"
	// Global quorums are of all replicas in all datacenters: QUORUM and SERIAL.
	Global Scope = "global"
)

// TLS of the connections to the database. Files are PEM.
type TLS struct {
	CA         string // of the servers; "" = the system's
	Cert, Key  string // of this client; "" = none
	ServerName string // in the servers' certificates; "" = the host's address
	Insecure   bool   // do not verify the servers
}

// Config says where the database is and how to use it. Hosts and Keyspace are required; every other zero value is a default.
type Config struct {
	Hosts []string // some of the cluster's; the others are found through them
	Port  int      // 0 = 9042
	// Reached tells where nodes are reached that are not at the addresses by which the database knows them, both as ip:port: through
	// a tunnel, a proxy, another network.
	Reached    map[string]string
	Keyspace   string
	Username   string // "" = no authentication
	Password   string
	TLS        *TLS   // nil = none
	Datacenter string // nodes of it are preferred, and Local counts it; "" = there is one
	Scope      Scope  // "" = Local. It must be the same on every node, for ever: the two kinds of SERIAL do not see each other

	// ReplicationFactor is for Migrate, when it makes the keyspace; 0 = 3.
	ReplicationFactor int

	// Timeout of one request: above the server's own (5 s for reads, 2 s for writes), whose errors say more; 0 = 6 s.
	Timeout time.Duration
	// SpeculateAfter is when a request that may be sent twice is sent to another node as well, which is how a node that
	// hangs is passed by; 0 = 300 ms.
	SpeculateAfter time.Duration
	// RetryTime bounds how long what may be sent again is tried within one call; 0 = 10 s.
	RetryTime time.Duration
	// ReconnectInterval is how often nodes that are down are looked at; 0 = 2 s.
	ReconnectInterval time.Duration

	Logger *slog.Logger // nil = slog.Default
}

var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// complete checks a configuration and fills in defaults.
func (c Config) complete() (Config, error) {
	switch {
	case len(c.Hosts) == 0:
		return c, schema.Errorf(schema.Invalid, "the database needs at least one host")
	case !keyspaceName.MatchString(c.Keyspace):
		return c, schema.Errorf(schema.Invalid, "keyspace %q: want a small letter, then up to 47 small letters, digits and _", c.Keyspace)
	case c.Scope != "" && c.Scope != Local && c.Scope != Global:
		return c, schema.Errorf(schema.Invalid, "scope %q: want %s or %s", c.Scope, Local, Global)
	case !addresses(c.Reached):
		return c, schema.Errorf(schema.Invalid, "%v does not tell where the database is reached: want ip:port=ip:port", c.Reached)
	case c.ReplicationFactor < 0 || c.Timeout < 0 || c.RetryTime < 0:
		return c, schema.Errorf(schema.Invalid, "replication factor, timeout and retry time must not be negative")
	}
	c.Port, c.Scope, c.ReplicationFactor = or(c.Port, 9042), or(c.Scope, Local), or(c.ReplicationFactor, 3)
	c.Timeout, c.SpeculateAfter = or(c.Timeout, 6*time.Second), or(c.SpeculateAfter, 300*time.Millisecond)
	c.RetryTime, c.ReconnectInterval = or(c.RetryTime, 10*time.Second), or(c.ReconnectInterval, 2*time.Second)
	c.Logger = or(c.Logger, slog.Default())
	return c, nil
}

func addresses(reached map[string]string) bool {
	for known, at := range reached {
		for _, a := range []string{known, at} {
			if _, err := netip.ParseAddrPort(a); err != nil {
				return false
			}
		}
	}
	return true
}

// translate returns where a node is reached.
func (c *Config) translate(ip net.IP, port int) (net.IP, int) {
	known, _ := netip.AddrFromSlice(ip)
	at, err := netip.ParseAddrPort(c.Reached[netip.AddrPortFrom(known.Unmap(), uint16(port)).String()])
	if err != nil {
		return ip, port
	}
	return at.Addr().AsSlice(), int(at.Port())
}

func or[T comparable](v, otherwise T) T {
	if v == *new(T) {
		return otherwise
	}
	return v
}

// levels are the consistency levels of a scope.
type levels struct{ one, quorum, serial gocql.Consistency }

func (s Scope) levels() levels {
	if s == Global {
		return levels{gocql.One, gocql.Quorum, gocql.Serial}
	}
	return levels{gocql.LocalOne, gocql.LocalQuorum, gocql.LocalSerial}
}

func (l levels) of(a schema.AckLevel) gocql.Consistency {
	switch a {
	case schema.AckOne:
		return l.one
	case schema.AckAll:
		return gocql.All
	}
	return l.quorum
}

// cluster is the driver's configuration. It is made anew for each session: a host policy cannot be shared.
func (c *Config) cluster(keyspace string) *gocql.ClusterConfig {
	g := gocql.NewCluster(c.Hosts...)
	g.Port, g.Keyspace, g.ProtoVersion = c.Port, keyspace, 4
	g.Timeout, g.WriteTimeout, g.ConnectTimeout = c.Timeout, c.Timeout, c.Timeout
	g.Consistency, g.SerialConsistency = c.Scope.levels().quorum, c.Scope.levels().serial
	g.RetryPolicy = neverRetry{}
	g.AddressTranslator = gocql.AddressTranslatorFunc(c.translate)
	g.ReconnectInterval, g.ReconnectionPolicy = c.ReconnectInterval, &gocql.ConstantReconnectionPolicy{MaxRetries: 2, Interval: c.ReconnectInterval / 2}
	g.PageSize, g.MaxWaitSchemaAgreement = 256, time.Minute
	g.Logger = logger{c.Logger}
	hosts := gocql.RoundRobinHostPolicy()
	if c.Datacenter != "" {
		// Without failover: a local quorum of another datacenter meets none of this one.
		hosts = gocql.DCAwareRoundRobinPolicy(c.Datacenter, gocql.HostPolicyOptionDisableDCFailover)
	}
	g.PoolConfig.HostSelectionPolicy = lastingPolicy{gocql.TokenAwareHostPolicy(hosts, gocql.ShuffleReplicas())}
	if c.Username != "" {
		g.Authenticator = gocql.PasswordAuthenticator{Username: c.Username, Password: c.Password}
	}
	if t := c.TLS; t != nil {
		g.SslOpts = &gocql.SslOptions{Config: &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Insecure, MinVersion: tls.VersionTLS12},
			CaPath: t.CA, CertPath: t.Cert, KeyPath: t.Key, EnableHostVerification: !t.Insecure}
	}
	return g
}
