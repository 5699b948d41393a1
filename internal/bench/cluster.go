package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	clusterNodes      = 3
	clusterPartitions = 12
	plainInFlight     = 64 // of 1 KiB
	plainBlobBytes    = 256 << 10
	plainBlobInFlight = 16
	settleMax         = time.Minute
)

// ClusterOptions say how to measure a cluster.
type ClusterOptions struct {
	Binary    string   // the handfast binary that is run as nodes
	Hosts     []string // of the database, each may carry its port
	Port      int      // of the others
	Rounds    int      // of which the median counts
	Warm      time.Duration
	Measure   time.Duration
	Suspicion time.Duration
	Only      string // measure what has this in its name: throughput, latency, crash, handover; "" = all
	Out       io.Writer
	JSON      string // file for the rows, "" = none
}

// cluster is three nodes on one fresh keyspace, and the same database without them.
type cluster struct {
	ClusterOptions
	keyspace, dir, token string
	plain                *ceiling
	nodes                []*server
	rows                 []Row
}

// RunCluster starts three nodes on a fresh keyspace and measures them beside plain statements to the same database in the same
// minutes. It prints a table, writes the rows and drops the keyspace.
func RunCluster(o ClusterOptions) (err error) {
	c := &cluster{ClusterOptions: o, keyspace: fmt.Sprintf("handfast_bench_%d", time.Now().Unix())}
	if c.dir, err = os.MkdirTemp("", "handfast-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.dir)
	fmt.Fprintf(o.Out, "making keyspace %s; a run of the defaults takes some four minutes\n", c.keyspace)
	if err := c.migrate(); err != nil {
		return err
	}
	if c.plain, err = newCeiling(o.Hosts, o.Port, c.keyspace); err != nil {
		return err
	}
	defer func() {
		for _, n := range c.nodes {
			n.stop()
		}
		if dropped := c.plain.drop(c.keyspace); err == nil {
			err = dropped
		}
	}()
	for i := range clusterNodes {
		n, err := c.start(i)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.settle(); err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		run  func() error
	}{{"throughput", c.throughput}, {"latency", c.latency}, {"crash", c.failover}, {"handover", c.handover}} {
		if !strings.Contains(m.name, o.Only) {
			continue
		}
		if err := m.run(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if err := writeRows(o.JSON, c.rows); err != nil {
		return err
	}
	return c.table()
}

func (c *cluster) database() []string {
	return []string{"--cql-hosts", strings.Join(c.Hosts, ","), "--cql-port", strconv.Itoa(c.Port), "--keyspace", c.keyspace}
}

func (c *cluster) migrate() error {
	args := append([]string{"migrate", "--dir", c.dir, "--partitions", strconv.Itoa(clusterPartitions), "--log-level", "warn"}, c.database()...)
	if out, err := exec.Command(c.Binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	token, err := os.ReadFile(filepath.Join(c.dir, "admin.token"))
	c.token = strings.TrimSpace(string(token))
	return err
}

// start runs the node of a number, the first time or again.
func (c *cluster) start(i int) (*server, error) {
	peer, err := freeAddress() // the others are told a port, so it must be known
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("n%d", i+1)
	args := append([]string{"serve", "--store", "cql", "--dir", filepath.Join(c.dir, name), "--listen", "127.0.0.1:0", "--node", name,
		"--peer-listen", peer, "--suspicion", c.Suspicion.String(), "--log-level", "error"}, c.database()...)
	s, err := start(c.dir, c.Binary, args...)
	if err == nil {
		s.token = c.token
	}
	return s, err
}

// owners returns who owns each partition as a node sees it, and whether all are where the ring wants them.
func owners(t *target) (owner map[int64]string, settled bool, err error) {
	var view struct {
		Partitions []struct {
			ID     int64  `json:"partition"`
			Owner  string `json:"owner"`
			Should string `json:"should_own"`
		} `json:"partitions"`
	}
	if err := t.call("GET", "/cluster", nil, &view); err != nil {
		return nil, false, err
	}
	owner, settled = map[int64]string{}, len(view.Partitions) == clusterPartitions
	for _, p := range view.Partitions {
		owner[p.ID] = p.Owner
		settled = settled && p.Owner != "" && p.Owner == p.Should
	}
	return owner, settled, nil
}

// settle waits until every node sees every partition in its place, with every node as an owner.
func (c *cluster) settle() error {
	for deadline := time.Now().Add(settleMax); ; time.Sleep(50 * time.Millisecond) {
		ready := 0
		for _, n := range c.nodes {
			owner, settled, err := owners(n.target)
			names := map[string]bool{}
			for _, name := range owner {
				names[name] = true
			}
			if err == nil && settled && len(names) == len(c.nodes) {
				ready++
			}
		}
		if ready == len(c.nodes) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the cluster did not settle within %v", settleMax)
		}
	}
}

func (c *cluster) topic(name string, partitions int) (int64, error) {
	var t struct {
		ID int64 `json:"topic_id"`
	}
	err := c.nodes[0].call("POST", "/create_topic", map[string]any{"topic_name": name, "rule_id": 1, "partitions": partitions}, &t)
	return t.ID, err
}

// spread gives each worker one of the nodes.
func (c *cluster) spread(path string, body func(worker int) []byte, messages int) func(int) func() (int, error) {
	return func(worker int) func() (int, error) {
		return c.nodes[worker%len(c.nodes)].repeat(path, body, messages)(worker)
	}
}

func (c *cluster) row(r Row) {
	c.rows = append(c.rows, r)
	fmt.Fprintf(c.Out, "%s: %s, %s %s\n", r.Work, number(r.Handfast), number(r.Reference), r.Unit)
}

// compare adds a row of ours beside a ceiling, with the median of the rounds' ratios.
func (c *cluster) compare(work, unit, goal string, ours, theirs []float64) {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / theirs[i]
	}
	c.row(Row{Work: work, Unit: unit, Goal: goal, Handfast: median(slices.Clone(ours)), Reference: median(slices.Clone(theirs)), Ratio: median(ratios)})
}

// throughput measures publishes and batches, in each round beside the plain inserts that they are held against.
func (c *cluster) throughput() error {
	topic, err := c.topic("bench", 0)
	if err != nil {
		return err
	}
	single := c.spread("/publish_message", publishBody(topic), 1)
	batch := c.spread("/publish_messages", batchBody(topic, 100), 100)
	var rows, singles, blobs, batches, batchBytes, shared, writes []float64
	work := []rated{
		{&rows, plainInFlight, 1, c.plain.inserts(messageBytes), nil},
		{&singles, 64, 1, single, &shared},
		{&blobs, plainBlobInFlight, plainBlobBytes / 1e6, c.plain.inserts(plainBlobBytes), nil},
		{&batches, 8, 1, batch, &writes},
	}
	for range c.Rounds {
		if err := c.each(work); err != nil {
			return err
		}
		// The database still writes out what one left when the next begins: each goes first in turn.
		slices.Reverse(work)
		batchBytes = append(batchBytes, batches[len(batches)-1]*messageBytes/1e6)
	}
	c.compare("single publishes, 64 connections, to plain inserts of 1 KiB, 64 in flight", "msg/s", "3 times", singles, rows)
	c.compare("batches of 100, 8 connections, to plain inserts of 256 KiB, 16 in flight", "MB/s", "0.8 times", batchBytes, blobs)
	c.compare("batches of 100, 8 connections, to plain inserts of 1 KiB", "msg/s", "10 times", batches, rows)
	c.row(Row{Work: "database writes per message in single publishes", Unit: "rows", Handfast: median(shared)})
	c.row(Row{Work: "database writes per message in batches", Unit: "rows", Goal: "0.05", Handfast: median(writes)})
	return nil
}

// rated is a rate to measure; scale turns operations into the unit.
type rated struct {
	into    *[]float64
	workers int
	scale   float64
	work    func(int) func() (int, error)
	writes  *[]float64 // rows that the nodes wrote per message meanwhile; nil = not ours
}

// each measures one after the other. A commit is two rows, its own and its one frame; a topic without subscribers has no cursors.
func (c *cluster) each(list []rated) error {
	for _, r := range list {
		before, err := c.commits()
		if err != nil {
			return err
		}
		v, err := rate(r.workers, c.Warm, c.Measure, func() {}, r.work)
		if err != nil {
			return err
		}
		*r.into = append(*r.into, v*r.scale)
		after, err := c.commits()
		if err != nil {
			return err
		}
		if r.writes != nil {
			*r.writes = append(*r.writes, 2*(after.commits-before.commits)/(after.messages-before.messages))
		}
	}
	return nil
}

// commits are counters of all nodes.
type commits struct{ commits, messages float64 }

// commits adds up what the nodes count.
func (c *cluster) commits() (sum commits, err error) {
	for _, n := range c.nodes {
		req, resp := n.request("GET", "/metrics", nil), fasthttp.AcquireResponse()
		if err := n.do(req, resp); err != nil {
			return sum, err
		}
		for line := range strings.Lines(string(resp.Body())) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			v, _ := strconv.ParseFloat(value, 64) // other lines are not numbers
			switch name {
			case "handfast_commits_total":
				sum.commits += v
			case "handfast_committed_messages_total":
				sum.messages += v
			}
		}
	}
	return sum, nil
}

// latency measures one publish after the other, beside the write and the read that it cannot do without.
func (c *cluster) latency() error {
	topic, err := c.topic("bench-latency", clusterPartitions)
	if err != nil {
		return err
	}
	once := c.nodes[0].repeat("/publish_message", publishBody(topic), 1)(0)
	insert := c.plain.inserts(messageBytes)(0)
	var publishes, floors, swaps, reads []float64
	for range c.Rounds {
		var took [4]float64
		for i, do := range []func() error{
			func() error { _, err := once(); return err },
			func() error { _, err := insert(); return err },
			c.plain.read,
			c.plain.swap,
		} {
			if took[i], err = typical(c.Measure/2, do); err != nil {
				return err
			}
		}
		publishes, floors = append(publishes, took[0]), append(floors, took[1]+took[2])
		reads, swaps = append(reads, took[2]), append(swaps, took[3])
	}
	c.compare("publish, 1 connection, p50, to a plain insert and a quorum read, p50 each", "ms", "1 ms more", publishes, floors)
	c.row(Row{Work: "plain quorum read, p50", Unit: "ms", Reference: median(reads)})
	c.row(Row{Work: "plain lightweight transaction on one row, p50", Unit: "ms", Reference: median(swaps)})
	return nil
}

func (c *cluster) table() error {
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nwork\thandfast\tdatabase\tratio\tgoal\tunit")
	for _, r := range c.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Work, number(r.Handfast), number(r.Reference), number(r.Ratio), r.Goal, r.Unit)
	}
	return w.Flush()
}
