package partitions

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/handfast-mq/handfast/partitions/peer"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
	"github.com/handfast-mq/handfast/schema/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testPartitions = 16

// member is one node of a cluster within the test: a service, its catalog and its peer server.
type member struct {
	t       *testing.T
	service *Service
	catalog *catalog.Catalog
	server  *peer.Server
	serving sync.WaitGroup
	gone    bool
}

// lazyNode lets the peer server start before the service that it serves.
type lazyNode struct{ peer.Node }

func startMember(t *testing.T, store schema.Store, name string) *member {
	t.Helper()
	ctx := context.Background()
	c, err := catalog.Open(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, catalog: c}
	m.service, err = Open(ctx, Config{Store: store, Catalog: c, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		Cluster: &Cluster{Node: schema.NodeID(name), Peer: l.Addr().String(), Suspicion: 800 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	m.server = peer.NewServer(m.service.Node(), nil)
	m.serving.Go(func() { m.server.Serve(l) })
	t.Cleanup(m.stop)
	return m
}

// stop leaves the cluster in order.
func (m *member) stop() {
	if m.gone {
		return
	}
	m.gone = true
	m.service.Close()
	m.server.Close()
	m.serving.Wait()
}

// crash ends the node without a word to the others or to the store.
func (m *member) crash() {
	m.gone = true
	m.server.Close()
	m.serving.Wait()
	m.service.cancel()
	m.service.moving.stop()
	for _, o := range m.service.local.all() {
		o.Close()
	}
	m.service.local.dispatcher.Close()
	m.service.work.Wait()
	m.service.peers.close()
	m.service.now().end()
}

func newCluster(t *testing.T, names ...string) (schema.Store, []*member) {
	t.Helper()
	store := storetest.NewMemory()
	c, err := catalog.Open(context.Background(), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Init(context.Background(), schema.Cluster{Partitions: testPartitions}, catalog.NewToken()); err != nil {
		t.Fatal(err)
	}
	var all []*member
	for _, n := range names {
		all = append(all, startMember(t, store, n))
	}
	return store, all
}

// eventually waits for something that follows by itself; it fails after a time that no healthy run needs.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !check(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to this: " + what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func owned(all ...*member) (n int) {
	for _, m := range all {
		n += len(m.service.local.all())
	}
	return n
}

func settled(t *testing.T, all ...*member) {
	t.Helper()
	eventually(t, "every partition is where the ring wants it", func() bool {
		for _, m := range all {
			if !m.service.Ready() {
				return false
			}
		}
		return owned(all...) == testPartitions
	})
}

func (m *member) topic(name string, ordered bool) *schema.Topic {
	m.t.Helper()
	pattern := schema.PatternStandard
	if ordered {
		pattern = schema.PatternOrdered
	}
	topic, err := m.catalog.CreateTopic(context.Background(), schema.Topic{Name: name, Owner: 1, Rule: schema.RuleOpen, Pattern: pattern, Partitions: 8})
	if err != nil {
		m.t.Fatal(err)
	}
	return topic
}

func (m *member) subscribe(t schema.TopicID) *schema.Subscription {
	m.t.Helper()
	s, err := m.catalog.Subscribe(context.Background(), schema.Subscription{Topic: t, Consumer: 1}, true, true)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *member) publish(topic *schema.Topic, content string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return m.service.Publish(ctx, topic, schema.AckQuorum, []schema.Publish{{Publisher: 1, Key: content, IdempotencyKey: content, Content: []byte(content)}})[0].Err
}

// drain pulls and acknowledges at a node until it has seen n different messages.
func (m *member) drain(s *schema.Subscription, n int) map[string]bool {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	got := map[string]bool{}
	for len(got) < n && ctx.Err() == nil {
		out, err := m.service.Pull(ctx, s, 100, schema.PullBytesMax, 500*time.Millisecond)
		if err != nil {
			continue
		}
		var list []schema.Settlement
		for i := range out {
			got[string(out[i].Content)] = true
			list = append(list, schema.Settlement{Message: out[i].ID, Lease: out[i].Lease})
		}
		if len(list) > 0 {
			m.service.Settle(ctx, schema.SettleAck, s, list, 0)
		}
	}
	if len(got) < n {
		m.t.Fatalf("%d of %d messages came", len(got), n)
	}
	return got
}

func TestThreeNodesActAsOne(t *testing.T) {
	_, all := newCluster(t, "a", "b", "c")
	settled(t, all...)
	topic := all[0].topic("orders", false)
	sub := all[1].subscribe(topic.ID)
	for _, m := range all { // the call returned: it is in force everywhere
		if s := m.catalog.Subscription(sub.ID); s == nil || s.State != schema.Active {
			t.Fatalf("%s has %+v", m.service.cfg.Cluster.Node, s)
		}
	}
	for i := range 90 {
		if err := all[i%3].publish(topic, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	all[2].drain(sub, 90)
	p, err := all[0].service.Progress(context.Background(), sub)
	if err != nil || p.Outstanding != 0 {
		t.Fatalf("%+v %v", p, err)
	}
}

// The owner of a partition is told how long the topic keeps its messages, on whichever node they came in.
func TestFramesCarryTheTopicsRetention(t *testing.T) {
	store, all := newCluster(t, "a", "b", "c")
	settled(t, all...)
	ctx := context.Background()
	topic, err := all[0].catalog.CreateTopic(ctx, schema.Topic{Name: "orders", Owner: 1, Rule: schema.RuleOpen, Pattern: schema.PatternOrdered, Partitions: 8, RetentionTime: 3 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		if err := all[i%3].publish(topic, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for p := range schema.PartitionID(testPartitions) {
		frames, err := store.Frames(ctx, topic.ID, p, 0, schema.OffsetMax, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			n += f.Count
			if f.Retention != topic.RetentionTime {
				t.Fatalf("partition %d has a frame that is kept for %v", p, f.Retention)
			}
		}
	}
	if n != 60 {
		t.Fatalf("%d messages are stored", n)
	}
}

func TestALongPollWakesAcrossNodes(t *testing.T) {
	_, all := newCluster(t, "a", "b", "c")
	settled(t, all...)
	topic := all[0].topic("orders", false)
	sub := all[0].subscribe(topic.ID)
	for i := range 20 {
		done := make(chan []schema.Delivery)
		go func() {
			out, _ := all[i%3].service.Pull(context.Background(), sub, 1, schema.PullBytesMax, 20*time.Second)
			done <- out
		}()
		time.Sleep(time.Duration(i) * time.Millisecond)
		if err := all[(i+1)%3].publish(topic, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		out := <-done
		if len(out) != 1 || string(out[0].Content) != fmt.Sprint(i) {
			t.Fatalf("%d: %v", i, out)
		}
		if _, err := all[i%3].service.Settle(context.Background(), schema.SettleAck, sub, []schema.Settlement{{Message: out[0].ID}}, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestJoinAndLeaveUnderLoad(t *testing.T) {
	store, all := newCluster(t, "a")
	settled(t, all...)
	topic := all[0].topic("orders", false)
	sub := all[0].subscribe(topic.ID)
	stop := make(chan struct{})
	var load sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for w := range 4 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := all[0].publish(topic, fmt.Sprintf("%d/%d", w, i)); err != nil {
					t.Errorf("a producer saw %v", err)
					return
				}
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	var more []*member
	for _, name := range []string{"b", "c"} {
		more = append(more, startMember(t, store, name))
		settled(t, slices.Concat(all, more)...)
	}
	for _, m := range more {
		m.stop()
	}
	settled(t, all...)
	close(stop)
	load.Wait()
	all[0].drain(sub, n)
}

func TestACrashLosesNothing(t *testing.T) {
	_, all := newCluster(t, "a", "b", "c")
	settled(t, all...)
	topic := all[0].topic("orders", false)
	sub := all[0].subscribe(topic.ID)
	for i := range 60 {
		if err := all[i%3].publish(topic, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	all[2].crash()
	for i := 60; i < 120; i++ { // retried by the router until the successor serves
		if err := all[i%2].publish(topic, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	all[1].drain(sub, 120)
	settled(t, all[0], all[1])
}

func TestAFencedNodeComesBackInANewSession(t *testing.T) {
	store, all := newCluster(t, "a", "b")
	settled(t, all...)
	topic := all[0].topic("orders", false)
	sub := all[0].subscribe(topic.ID)
	before := all[1].service.now().id
	if err := store.Fence(context.Background(), before); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := all[i%2].publish(topic, fmt.Sprint(i)); err != nil && schema.KindOf(err) != schema.Unknown {
			t.Fatal(err)
		} else if err != nil && all[i%2].publish(topic, fmt.Sprint(i)) != nil {
			t.Fatal("a retry failed too")
		}
	}
	all[0].drain(sub, 40)
	settled(t, all...)
	if all[1].service.now().id == before {
		t.Fatal("the node still lives in the fenced session")
	}
}

// TestRightsAreInForceEverywhereWhenTheCallReturns changes grants on one node and looks on the others at once.
func TestRightsAreInForceEverywhereWhenTheCallReturns(t *testing.T) {
	_, all := newCluster(t, "a", "b", "c")
	settled(t, all...)
	topic := all[0].topic("orders", false)
	u, _, _, err := all[0].catalog.CreateUser(context.Background(), schema.User{Name: "producer"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		from := all[i%3].catalog
		if err := from.Grant(context.Background(), topic.ID, u.ID); err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if !m.catalog.Granted(topic.ID, u.ID) {
				t.Fatal("a grant is not in force")
			}
		}
		if err := from.Revoke(context.Background(), topic.ID, u.ID); err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			if m.catalog.Granted(topic.ID, u.ID) {
				t.Fatal("a revoked grant is in force")
			}
		}
	}
	all[2].crash() // a silent node is fenced, and does not hold up the others for ever
	if err := all[0].catalog.Grant(context.Background(), topic.ID, u.ID); err != nil {
		t.Fatal(err)
	}
	if !all[1].catalog.Granted(topic.ID, u.ID) {
		t.Fatal("not in force")
	}
}
