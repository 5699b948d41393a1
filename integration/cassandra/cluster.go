// Package cassandra gives tests a real cluster of three nodes: Apache Cassandra from Maven's jars, one process per node on
// loopback addresses; or ScyllaDB in Docker; or a cluster that runs already.
package cassandra

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gocql/gocql"
)

// HostsVariable names the environment variable with the hosts of a cluster that runs already, "host,host,host" or
// "host:port,…" with one port. Tests that stop nodes are not run on such a cluster.
const HostsVariable = "HANDFAST_TEST_CQL_HOSTS"

// Options of a cluster. The zero value is complete.
type Options struct {
	Addresses []string // of one to three nodes; nil = 127.0.61.1, .2 and .3. Test binaries that run side by side need different ones
	Port      int      // 0 = 9042
	Paxos     string   // v1 or v2; "" = v2
	Sync      string   // of the commit log, periodic or group: with group an acknowledged write is on disk; "" = periodic
	NoHints   bool     // writes that a node missed come to it by repair alone
	Secure    bool     // clients need a password and a certificate; Cassandra alone
	Dir       string   // of the data; "" = a temporary one, removed by Stop
}

// Hints is for the configuration's template.
func (o Options) Hints() bool { return !o.NoHints }

// Cluster is three running nodes. A node's number is 0, 1 or 2. Its methods are for one goroutine.
type Cluster struct {
	hosts      []string
	port       int
	processes  []*process // nil = not ours to stop
	containers []string
	dir        string   // removed by Stop
	secrets    *Secrets // nil = everybody is let in
}

// Hosts returns the nodes' addresses and Port their CQL port.
func (c *Cluster) Hosts() []string { return slices.Clone(c.hosts) }

// Port returns the port where every node speaks CQL.
func (c *Cluster) Port() int { return c.port }

// Secrets returns what a client needs where Secure was asked for, otherwise nil.
func (c *Cluster) Secrets() *Secrets { return c.secrets }

// Controlled tells whether nodes can be killed, paused and restarted.
func (c *Cluster) Controlled() bool { return c.processes != nil }

// Start gives a cluster and returns when it takes writes at LOCAL_QUORUM. It takes what it can get, in this order: the
// hosts of HostsVariable, ScyllaDB in Docker where an engine runs, Cassandra with Java 17 and Maven. A secure one is always the latter.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if v := os.Getenv(HostsVariable); v != "" && !o.Secure {
		return join(ctx, v)
	}
	if !o.Secure && dockerRuns(ctx) {
		return startScylla(ctx)
	}
	if o.Addresses == nil {
		o.Addresses = []string{"127.0.61.1", "127.0.61.2", "127.0.61.3"}
	}
	if len(o.Addresses) > len(tokens) {
		return nil, fmt.Errorf("a test cluster has up to %d nodes, not %d", len(tokens), len(o.Addresses))
	}
	o.Port, o.Paxos, o.Sync = or(o.Port, 9042), or(o.Paxos, "v2"), or(o.Sync, "periodic")
	return startCassandra(ctx, o)
}

func or[T comparable](v, otherwise T) T {
	if v == *new(T) {
		return otherwise
	}
	return v
}

func join(ctx context.Context, hosts string) (*Cluster, error) {
	c := &Cluster{port: 9042}
	for _, h := range strings.Split(hosts, ",") {
		host, port, found := strings.Cut(strings.TrimSpace(h), ":")
		if found {
			n, err := strconv.Atoi(port)
			if err != nil {
				return nil, fmt.Errorf("%s: %q has no port", HostsVariable, h)
			}
			c.port = n
		}
		c.hosts = append(c.hosts, host)
	}
	return c, c.waitReady(ctx, len(c.hosts))
}

func startCassandra(ctx context.Context, o Options) (*Cluster, error) {
	java, err := java()
	if err != nil {
		return nil, err
	}
	lib, err := jars(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{hosts: o.Addresses, port: o.Port}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "handfast-cassandra-"); err != nil {
			return nil, err
		}
		c.dir = o.Dir
	}
	if o.Secure {
		if c.secrets, err = newSecrets(o.Dir); err != nil {
			return nil, err
		}
	}
	for i, a := range o.Addresses {
		p := &process{Options: o, Secrets: c.secrets, Address: a, Seed: o.Addresses[0], Token: tokens[i], Dir: filepath.Join(o.Dir, fmt.Sprint("n", i)), java: java, jars: lib}
		if err := p.prepare(); err != nil {
			return nil, err
		}
		c.processes = append(c.processes, p)
	}
	if err := c.StartAll(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start Cassandra: %w", err)
	}
	return c, nil
}

// Kill ends a node at once, as a crash does.
func (c *Cluster) Kill(n int) error { return c.processes[n].signal(syscall.SIGKILL) }

// Pause stops a node without ending it; Resume lets it go on.
func (c *Cluster) Pause(n int) error { return c.processes[n].signal(syscall.SIGSTOP) }

// Resume lets a paused node go on.
func (c *Cluster) Resume(n int) error { return c.processes[n].signal(syscall.SIGCONT) }

// Restart starts a node that was killed and returns when the cluster is whole again.
func (c *Cluster) Restart(ctx context.Context, n int) error {
	if err := c.processes[n].start(); err != nil {
		return err
	}
	return c.waitReady(ctx, len(c.hosts))
}

// StartAll starts all nodes, that are new or were killed. The first is the seed: the others do not start without it.
func (c *Cluster) StartAll(ctx context.Context) error {
	for n, p := range c.processes {
		if err := p.start(); err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if err := c.wait(ctx, func() error { return c.listens(0) }); err != nil {
			return err
		}
	}
	return c.waitReady(ctx, len(c.hosts))
}

// Stop ends every node and removes what they wrote.
func (c *Cluster) Stop() {
	for _, p := range c.processes {
		if p.running() {
			_ = p.signal(syscall.SIGKILL)
		}
	}
	c.stopContainers()
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// waitReady returns when each node knows all others as alive and a quorum takes writes. The port listens well before.
func (c *Cluster) waitReady(ctx context.Context, nodes int) error {
	for n := range nodes {
		if err := c.wait(ctx, func() error { return c.ready(ctx, n, nodes) }); err != nil {
			return err
		}
	}
	return nil
}

// startMax bounds how long a node may take on a busy machine.
const startMax = 3 * time.Minute

// wait asks until there is no error.
func (c *Cluster) wait(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for _, p := range c.processes {
			if p.done != nil && !p.running() && !p.killed {
				return fmt.Errorf("Cassandra on %s ended:\n%s", p.Address, p.tail())
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster at %v is not ready: %w", c.hosts, err)
		case <-tick.C:
		}
	}
}

// listens tells whether a node takes connections.
func (c *Cluster) listens(n int) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(c.hosts[n], strconv.Itoa(c.port)), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ready asks one node, and it alone.
func (c *Cluster) ready(ctx context.Context, n, nodes int) error {
	cfg := gocql.NewCluster(c.hosts[n])
	cfg.Port, cfg.ProtoVersion, cfg.DisableInitialHostLookup, cfg.Logger = c.port, 4, true, silent{}
	c.secrets.open(cfg)
	s, err := cfg.CreateSession()
	if err != nil {
		return err
	}
	defer s.Close()
	peers := 0
	if err := s.Query("SELECT count(*) FROM system.peers").WithContext(ctx).Scan(&peers); err != nil {
		return err
	}
	if peers != nodes-1 {
		return fmt.Errorf("%s knows %d other nodes, want %d", c.hosts[n], peers, nodes-1)
	}
	for _, q := range []string{
		fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS handfast_ready WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %d}", min(3, nodes)),
		"CREATE TABLE IF NOT EXISTS handfast_ready.ready (id int PRIMARY KEY)",
		"INSERT INTO handfast_ready.ready (id) VALUES (1)",
	} {
		if n > 0 && !strings.HasPrefix(q, "INSERT") {
			continue // the first node made them
		}
		if err := s.Query(q).WithContext(ctx).Consistency(gocql.LocalQuorum).Exec(); err != nil {
			return err
		}
	}
	return nil
}

// silent drops the driver's talk about nodes that do not listen yet.
type silent struct{}

func (silent) Print(...any)          {}
func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}
