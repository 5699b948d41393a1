package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/handfast-mq/handfast/integration/cassandra"
)

// database is three real Cassandra processes, or what the environment offers; see package cassandra.
var database = cassandra.Shared{Options: cassandra.Options{Addresses: []string{"127.0.64.1", "127.0.64.2", "127.0.64.3"}}}

const suspicion = "2s"

// member is one node of a cluster; its peers reach it, and it reaches the database's nodes, through links that a test can cut.
type member struct {
	*process
	name     string
	address  string
	link     *link
	database []*link
	mu       sync.Mutex
}

// testCluster is some nodes on one keyspace.
type testCluster struct {
	t        *testing.T
	db       *cassandra.Cluster
	keyspace string
	dir      string
	token    string
	members  []*member
	turn     atomic.Int64
}

var keyspaces atomic.Int64

// newCluster migrates a keyspace and starts nodes.
func newCluster(t *testing.T, nodes int) *testCluster {
	t.Helper()
	db := database.Use(t)
	c := &testCluster{t: t, db: db, keyspace: fmt.Sprintf("it_%d_%d", time.Now().Unix(), keyspaces.Add(1)), dir: t.TempDir()}
	out, err := exec.Command(binary, append([]string{"migrate", "--dir", c.dir, "--partitions", "12", "--log-level", "warn"}, c.databaseFlags()...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	c.token = adminToken(t, c.dir)
	for i := range nodes {
		c.members = append(c.members, c.newMember(fmt.Sprintf("n%d", i+1)))
	}
	c.settled()
	return c
}

func (c *testCluster) databaseFlags() []string {
	return []string{"--cql-hosts", strings.Join(c.db.Hosts(), ","), "--cql-port", fmt.Sprint(c.db.Port()), "--keyspace", c.keyspace}
}

func (c *testCluster) newMember(name string) *member {
	c.t.Helper()
	m := &member{name: name, address: "127.0.0.1:0", link: newLink(c.t, freeAddress(c.t))}
	for _, host := range c.db.Hosts() {
		m.database = append(m.database, newLink(c.t, net.JoinHostPort(host, fmt.Sprint(c.db.Port()))))
	}
	c.start(m)
	return m
}

// start runs a member, at the same address as before.
func (c *testCluster) start(m *member) {
	c.t.Helper()
	var hosts, reached []string
	for _, l := range m.database {
		hosts, reached = append(hosts, l.address()), append(reached, l.to+"="+l.address())
	}
	args := []string{"serve", "--store", "cql", "--dir", filepath.Join(c.dir, m.name), "--listen", m.address, "--node", m.name,
		"--peer-listen", m.link.to, "--peer-advertise", m.link.address(), "--suspicion", suspicion, "--allow-private-targets", "--log-level", "warn",
		"--keyspace", c.keyspace, "--cql-hosts", strings.Join(hosts, ","), "--cql-reached", strings.Join(reached, ",")}
	p := run(c.t, args...)
	p.token = c.token
	m.mu.Lock()
	m.process, m.address = p, strings.TrimPrefix(p.url, "http://")
	m.mu.Unlock()
}

// url returns the address of one node after the other.
func (c *testCluster) url() string {
	m := c.members[int(c.turn.Add(1))%len(c.members)]
	return "http://" + m.address
}

// settled waits until every partition is where the ring wants it, as every node sees it.
func (c *testCluster) settled() {
	c.t.Helper()
	for deadline := time.Now().Add(120 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		ready := 0
		for _, m := range c.members {
			var view struct {
				Partitions []struct {
					Owner  string
					Should string `json:"should_own"`
				}
			}
			if request("http://"+m.address, c.token, "GET", "/cluster", nil, &view) != nil || len(view.Partitions) != 12 {
				continue
			}
			moving := slices.ContainsFunc(view.Partitions, func(p struct {
				Owner  string
				Should string `json:"should_own"`
			}) bool {
				return p.Owner == "" || p.Owner != p.Should
			})
			if !moving {
				ready++
			}
		}
		if ready == len(c.members) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the cluster does not settle\n%s", c.members[0].log)
		}
	}
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}

// link is a TCP way to an address that can be cut.
type link struct {
	to       string
	listener net.Listener
	mu       sync.Mutex
	cut      bool
	open     map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l := &link{to: to, open: map[net.Conn]bool{}}
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.listener.Close(); l.set(true) })
	go l.accept()
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil || !l.join(in, out) {
			in.Close()
			if out != nil {
				out.Close()
			}
			continue
		}
		go l.copy(in, out)
		go l.copy(out, in)
	}
}

func (l *link) join(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		l.open[c] = true
	}
	return !l.cut
}

func (l *link) copy(to, from net.Conn) {
	io.Copy(to, from)
	to.Close()
	l.mu.Lock()
	delete(l.open, to)
	l.mu.Unlock()
}

// set cuts the link, or mends it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for c := range l.open {
		if cut {
			c.Close()
		}
	}
}

// user makes a user through any node.
func (c *testCluster) user(name string) string {
	c.t.Helper()
	_, token := newUser(c.t, c.members[0].process, name)
	return token
}

// TestClusterUnderFaults runs producers and consumers while nodes are killed, suspended and restarted, and links between them and to the
// database cut, at random from a seed, with a node of the database killed as well in the end, and then holds what was accepted against what was delivered.
func TestClusterUnderFaults(t *testing.T) {
	c := newCluster(t, 3)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	producer, consumer, once := c.user("producer"), c.user("consumer"), c.user("once")
	topic := newTopic(t, c.members[0].process, producer, object{"topic_name": "orders", "rule_id": "open", "pattern_id": "ordered", "partitions": 12})
	must(t, c.members[1].process, consumer, "POST", "/subscribe", object{"topic_id": topic, "ack_deadline": 10}, nil)
	must(t, c.members[2].process, once, "POST", "/subscribe", object{"topic_id": topic, "guarantee": "at_most_once"}, nil)

	h := newHistory()
	var producers, consumers sync.WaitGroup
	stopProducing, stopConsuming := make(chan struct{}), make(chan struct{})
	for i := range 12 {
		producers.Go(func() {
			h.produce(c.url, producer, topic, fmt.Sprintf("key%d", i), 100*time.Millisecond, stopProducing)
		})
	}
	for range 3 {
		consumers.Go(func() { h.consume(c.url, consumer, topic, stopConsuming) })
	}
	twice := onceConsumer{seen: map[string]int{}}
	consumers.Go(func() { twice.consume(c.url, once, topic, stopConsuming) })

	for range 6 {
		time.Sleep(time.Second)
		c.fault(r)
	}
	c.settled()
	restart := c.endDatabaseNode(r)
	for range 2 {
		time.Sleep(time.Second)
		c.fault(r)
	}
	time.Sleep(time.Second)
	close(stopProducing)
	producers.Wait()
	restart()
	c.settled()
	for deadline := time.Now().Add(120 * time.Second); len(h.missing()) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	close(stopConsuming)
	consumers.Wait()
	if missing := h.missing(); len(missing) > 0 {
		t.Errorf("%d of %d accepted messages were not delivered, such as %q", len(missing), len(h.accepted), missing[0])
	}
	for i, f := range h.faults {
		if i < 10 {
			t.Error(f)
		}
	}
	for content, n := range twice.seen {
		if n > 1 {
			t.Errorf("%q came %d times to an at-most-once subscription", content, n)
		}
	}
	t.Logf("%d messages accepted, %d came to the at-most-once consumer", len(h.accepted), len(twice.seen))
	if len(h.accepted) < 200 {
		t.Errorf("only %d messages were accepted: this run proves little", len(h.accepted))
	}
	if t.Failed() {
		for _, m := range c.members {
			t.Logf("%s:\n%s", m.name, m.log)
		}
	}
}

// fault does one thing to the cluster, and undoes it.
func (c *testCluster) fault(r *rand.Rand) {
	c.t.Helper()
	m := c.members[r.IntN(len(c.members))]
	pause := time.Duration(1000+r.IntN(4000)) * time.Millisecond
	switch r.IntN(6) {
	case 0:
		c.t.Logf("kill -9 of %s", m.name)
		m.kill()
		time.Sleep(pause)
		c.start(m)
	case 1:
		c.t.Logf("%s stands still beyond the suspicion time", m.name)
		m.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(5 * time.Second)
		m.cmd.Process.Signal(syscall.SIGCONT)
	case 2:
		c.t.Logf("the others cannot reach %s", m.name)
		m.link.set(true)
		time.Sleep(pause)
		m.link.set(false)
	case 3:
		c.t.Logf("%s restarts in order", m.name)
		if code := m.terminate(); code != 0 {
			c.t.Errorf("exit code %d\n%s", code, m.log)
		}
		c.start(m)
	case 4:
		c.t.Logf("%s cannot reach the database", m.name)
		m.cut(m.database, pause)
	case 5:
		n := r.IntN(len(m.database))
		c.t.Logf("%s cannot reach node %d of the database", m.name, n)
		m.cut(m.database[n:n+1], pause)
	}
}

func (m *member) cut(links []*link, pause time.Duration) {
	for _, l := range links {
		l.set(true)
	}
	time.Sleep(pause)
	for _, l := range links {
		l.set(false)
	}
}

// endDatabaseNode kills a node of the database for as long as there is load, where that is the test's to do: on two processors one takes
// minutes to come back under load.
func (c *testCluster) endDatabaseNode(r *rand.Rand) (restart func()) {
	c.t.Helper()
	if !c.db.Controlled() {
		c.t.Log("the database's nodes are not this test's to kill")
		return func() {}
	}
	n := r.IntN(len(c.db.Hosts()))
	c.t.Logf("kill -9 of node %d of the database", n)
	if err := c.db.Kill(n); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		if err := c.db.Restart(c.t.Context(), n); err != nil {
			c.t.Fatal(err)
		}
	}
}

// onceConsumer counts how often each message comes.
type onceConsumer struct {
	mu   sync.Mutex
	seen map[string]int
}

func (o *onceConsumer) consume(url func() string, token string, topic int64, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		var got struct {
			Messages []struct {
				Content string `json:"message_content"`
			}
		}
		if err := request(url(), token, "GET", fmt.Sprintf("/message?topic_id=%d&max=20&wait=1", topic), nil, &got); err != nil {
			time.Sleep(20 * time.Millisecond)
		}
		o.mu.Lock()
		for _, m := range got.Messages {
			o.seen[m.Content]++
		}
		o.mu.Unlock()
	}
}

// TestScaleAndRollUnderLoad goes from one node to three and back and restarts each, while producers that retry see nothing but success.
func TestScaleAndRollUnderLoad(t *testing.T) {
	c := newCluster(t, 1)
	token := c.user("producer")
	topic := newTopic(t, c.members[0].process, token, object{"topic_name": "orders", "rule_id": "open", "partitions": 12})
	must(t, c.members[0].process, token, "POST", "/subscribe", object{"topic_id": topic}, nil)
	first := "http://" + c.members[0].address
	stop := make(chan struct{})
	var load sync.WaitGroup
	h := newHistory()
	var longest atomic.Int64
	for i := range 6 {
		load.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				content := fmt.Sprintf("key%d %d", i, n)
				var got struct {
					ID int64 `json:"message_id"`
				}
				begun := time.Now()
				err := request(first, token, "POST", "/publish_message", object{"topic_id": topic, "key": fmt.Sprintf("key%d", i), "message_content": content}, &got)
				if err != nil {
					t.Errorf("a producer saw: %v", err)
					return
				}
				if took := int64(time.Since(begun)); took > longest.Load() {
					longest.Store(took)
				}
				h.accept(content, got.ID)
			}
		})
	}
	for _, name := range []string{"n2", "n3"} {
		c.members = append(c.members, c.newMember(name))
		c.settled()
	}
	for _, m := range c.members[1:] {
		if code := m.terminate(); code != 0 {
			t.Errorf("exit code %d\n%s", code, m.log)
		}
		c.start(m)
		c.settled()
	}
	for len(c.members) > 1 {
		last := c.members[len(c.members)-1]
		c.members = c.members[:len(c.members)-1]
		if code := last.terminate(); code != 0 {
			t.Errorf("exit code %d\n%s", code, last.log)
		}
		c.settled()
	}
	close(stop)
	load.Wait()
	t.Logf("%d messages; the longest publish took %v", len(h.accepted), time.Duration(longest.Load()).Round(time.Millisecond))
	stopConsuming := make(chan struct{})
	var consumer sync.WaitGroup
	consumer.Go(func() { h.consume(c.url, token, topic, stopConsuming) })
	for deadline := time.Now().Add(60 * time.Second); len(h.missing()) > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	close(stopConsuming)
	consumer.Wait()
	if missing := h.missing(); len(missing) > 0 {
		t.Errorf("%d accepted messages were not delivered", len(missing))
	}
	for _, f := range h.faults {
		t.Error(f)
	}
}

// TestNoDeliveryAfterAWithdrawal unsubscribes a webhook through another node than the one that delivers, again and again.
func TestNoDeliveryAfterAWithdrawal(t *testing.T) {
	c := newCluster(t, 3)
	token := c.user("owner")
	var withdrawn atomic.Bool
	var late, got atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WebHook-Allowed-Origin", "*")
		w.Header().Set("WebHook-Allowed-Rate", "*")
		if r.Method == "POST" {
			got.Add(1)
			if withdrawn.Load() {
				late.Add(1)
			}
		}
	}))
	defer hook.Close()
	topic := newTopic(t, c.members[0].process, token, object{"topic_name": "orders", "rule_id": "open", "partitions": 12})
	for round := range 10 {
		withdrawn.Store(false)
		var sub struct{ State, Reason string }
		must(t, c.members[round%3].process, token, "POST", "/subscribe", object{"topic_id": topic, "target": object{"type": "webhook", "url": hook.URL}}, &sub)
		if sub.State != "active" {
			t.Fatalf("%+v", sub)
		}
		stop := make(chan struct{})
		var load sync.WaitGroup
		for range 4 {
			load.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						request(c.url(), token, "POST", "/publish_message", object{"topic_id": topic, "message_content": "x"}, nil)
					}
				}
			})
		}
		before := got.Load()
		for got.Load() < before+20 {
			time.Sleep(5 * time.Millisecond)
		}
		must(t, c.members[(round+1)%3].process, token, "POST", "/unsubscribe", object{"topic_id": topic}, nil)
		withdrawn.Store(true)
		time.Sleep(200 * time.Millisecond)
		close(stop)
		load.Wait()
	}
	if late.Load() > 0 {
		t.Errorf("%d of %d deliveries came after the withdrawal had returned", late.Load(), got.Load())
	}
}

// TestMetadataIsLinearizable lets clients at different nodes write and read one setting, and has a published checker judge the history.
func TestMetadataIsLinearizable(t *testing.T) {
	c := newCluster(t, 3)
	topic := newTopic(t, c.members[0].process, c.token, object{"topic_name": "register", "retention_bytes": 0})
	type input struct {
		write bool
		value int64
	}
	var mu sync.Mutex
	var history []porcupine.Operation
	begun := time.Now()
	var clients sync.WaitGroup
	var next atomic.Int64
	for id := range 5 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(id), 1))
			for range 40 {
				m := c.members[r.IntN(3)]
				op := porcupine.Operation{ClientId: id, Call: int64(time.Since(begun))}
				var got struct {
					Value int64 `json:"retention_bytes"`
				}
				var err error
				if r.IntN(2) == 0 {
					v := next.Add(1)
					op.Input = input{true, v}
					err = request("http://"+m.address, c.token, "POST", "/update_topic", object{"topic_id": topic, "retention_bytes": v}, nil)
				} else {
					op.Input = input{}
					err = request("http://"+m.address, c.token, "GET", "/topic?topic_id="+str(topic), nil, &got)
				}
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				op.Output, op.Return = got.Value, int64(time.Since(begun))
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	model := porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, in, out any) (bool, any) {
			if i := in.(input); i.write {
				return true, i.value
			}
			return out.(int64) == state.(int64), state
		},
	}
	if !porcupine.CheckOperations(model, history) {
		t.Fatal("the history of the metadata is not linearizable")
	}
}

// TestTwoClientsSeeTheSameState changes things with the command line through one node and looks through another, at every step.
func TestTwoClientsSeeTheSameState(t *testing.T) {
	c := newCluster(t, 2)
	cli := func(n int, args ...string) any {
		t.Helper()
		cmd := exec.Command(binary, append(args, "--json", "--server", "http://"+c.members[n].address, "--token", c.token)...)
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Fatalf("%v: %v %s", args, err, exit.Stderr)
			}
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(out, &v); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return v
	}
	for step, change := range [][]string{
		{"user", "create", "ann"}, {"topic", "create", "orders"}, {"subscription", "create", "orders"}, {"topic", "update", "orders", "--retention", "1h"},
		{"rule", "list"}, {"unsubscribe", "orders"}, {"subscription", "create", "orders"}, {"topic", "delete", "orders"},
	} {
		cli(step%2, change...)
		for _, look := range [][]string{{"topic", "list"}, {"subscription", "list"}, {"user", "list"}} {
			a, b := fmt.Sprint(cli(0, look...)), fmt.Sprint(cli(1, look...))
			if a != b {
				t.Fatalf("after %v, %v differ:\n%s\n%s", change, look, a, b)
			}
		}
	}
}
