package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/session"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

const (
	testTopic     = schema.TopicID(7)
	testPartition = schema.PartitionID(3)
)

// bed is one partition with a dispatcher on the memory store. It lives in a synctest bubble, where time is what the test says.
type bed struct {
	t     *testing.T
	store schema.Store
	me    schema.SessionID
	owner *owner.Owner
	d     *Dispatcher
	specs []*schema.Subscription

	mu    sync.Mutex
	dead  []string // contents of dead letters
	fails bool     // the dead letter topic is down
	state map[schema.SubscriptionID]schema.State
	calls map[schema.TargetType]schema.Invoker
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, store: storetest.NewMemory(), state: map[schema.SubscriptionID]schema.State{}, calls: map[schema.TargetType]schema.Invoker{}}
	b.open()
	return b
}

func (b *bed) open() {
	b.t.Helper()
	ctx := context.Background()
	b.me = schema.SessionID(fmt.Sprintf("session-%d", rand.Int64()))
	if err := b.store.OpenSession(ctx, b.me); err != nil {
		b.t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	b.d = New(Config{
		Log: b.store, Cursors: b.store, Attempts: b.store, Invokers: b.calls, Logger: slog.New(slog.DiscardHandler), Registry: registry,
		Fresh:      func(context.Context) bool { return true },
		DeadLetter: b.bury,
		Change: func(_ context.Context, id schema.SubscriptionID, s schema.State, _ string) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.state[id] = s
			return nil
		},
	})
	row, err := b.store.Partition(ctx, testPartition)
	if err != nil {
		b.t.Fatal(err)
	}
	b.owner, err = owner.Open(ctx, owner.Config{Row: row, Keys: &owner.Budget{Max: 1000}, Log: b.store, Ownership: b.store, Session: b.me, Verifier: verifier{store: b.store, me: b.me},
		Committed: b.d.Committed, Logger: slog.New(slog.DiscardHandler), Metrics: owner.NewMetrics(registry)})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.d.Attach(ctx, b.owner, func() []*schema.Subscription { return b.specs }); err != nil {
		b.t.Fatal(err)
	}
}

// verifier lets every commit pass, and asks the store whether the session lives.
type verifier struct {
	session.Standing
	store schema.Ownership
	me    schema.SessionID
}

func (v verifier) Live(ctx context.Context) bool {
	live, err := v.store.SessionLive(ctx, v.me)
	return live && err == nil
}

func (b *bed) bury(_ context.Context, _ *schema.Subscription, m *schema.Message, _ int, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails {
		return errors.New("the dead letter topic is down")
	}
	b.dead = append(b.dead, string(m.Content))
	return nil
}

func (b *bed) buried() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dead)
}

func (b *bed) close() {
	b.d.Close()
	b.owner.Close()
}

// restart ends the node without a handover and starts another one on the same store.
func (b *bed) restart() {
	b.close()
	if err := b.store.Fence(context.Background(), b.me); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

func (b *bed) subscribe(change func(*schema.Subscription)) *schema.Subscription {
	b.t.Helper()
	s := &schema.Subscription{ID: schema.SubscriptionID(100 + len(b.specs)), Topic: testTopic, Consumer: 5, State: schema.Active, Target: schema.Target{Type: schema.TargetPull},
		Guarantee: schema.AtLeastOnce, Start: schema.StartAt{Position: "now"}, AckDeadline: 30 * time.Second, MaxOutstanding: 100, ActiveAt: time.Now()}
	if change != nil {
		change(s)
	}
	b.apply(s)
	b.specs = append(b.specs, s)
	return s
}

func (b *bed) apply(s *schema.Subscription) {
	b.t.Helper()
	if err := b.d.Apply(context.Background(), s, func(schema.PartitionID) bool { return true }); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) publish(contents ...string) []schema.MessageID {
	b.t.Helper()
	var ms []schema.Publish
	for _, c := range contents {
		ms = append(ms, schema.Publish{Publisher: 1, Content: []byte(c)})
	}
	return b.publishAll(ms...)
}

func (b *bed) publishAll(ms ...schema.Publish) []schema.MessageID {
	b.t.Helper()
	batch := &owner.Batch{Topic: testTopic}
	for i := range ms {
		batch.Add(&ms[i], i)
	}
	results, err := b.owner.Publish(context.Background(), batch)
	if err != nil {
		b.t.Fatal(err)
	}
	var ids []schema.MessageID
	for _, r := range results {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

func (b *bed) pull(s *schema.Subscription, n int) []schema.Delivery {
	b.t.Helper()
	out, err := b.d.Pull(context.Background(), s.ID, n, schema.PullBytesMax)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func contentsOf(out []schema.Delivery) []string {
	list := []string{}
	for i := range out {
		list = append(list, string(out[i].Content))
	}
	return list
}

func (b *bed) expect(s *schema.Subscription, n int, want ...string) []schema.Delivery {
	b.t.Helper()
	out := b.pull(s, n)
	if got := contentsOf(out); !slices.Equal(got, append([]string{}, want...)) {
		b.t.Fatalf("pulled %q, want %q", got, want)
	}
	return out
}

func (b *bed) settle(s *schema.Subscription, d *schema.Delivery, strict bool) schema.Verdict {
	b.t.Helper()
	item := schema.Settlement{Message: d.ID}
	if strict {
		item.Lease = d.Lease
	}
	v, err := b.d.Ack(context.Background(), s.ID, []schema.Settlement{item})
	if err != nil {
		b.t.Fatal(err)
	}
	return v[0]
}

// inBubble runs a test of dispatch where time is the test's.
func inBubble(t *testing.T, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		defer b.close()
		test(b)
	})
}

func TestPullAndAck(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.publish("before")
		s := b.subscribe(nil)
		b.expect(s, 10)
		b.publish("a", "b", "c")
		out := b.expect(s, 2, "a", "b")
		b.expect(s, 10, "c")
		b.expect(s, 10)
		if v := b.settle(s, &out[0], true); v != schema.Acknowledged {
			t.Fatal(v)
		}
		if v := b.settle(s, &out[0], false); v != schema.Acknowledged {
			t.Fatal("said twice:", v)
		}
		if p := b.d.Progress(s.ID); p.Outstanding != 2 || !p.CaughtUp {
			t.Fatalf("%+v", p)
		}
	})
}

func TestLeaseEndsAndTheMessageComesAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(nil)
		b.publish("a")
		first := b.expect(s, 1, "a")
		time.Sleep(29 * time.Second)
		b.expect(s, 1)
		time.Sleep(2 * time.Second)
		second := b.expect(s, 1, "a")
		if second[0].Attempt != 2 {
			t.Fatal("attempt", second[0].Attempt)
		}
		if v := b.settle(s, &first[0], true); v != schema.Stale {
			t.Fatal("the former holder's ack:", v)
		}
		b.expect(s, 1)
		if v := b.settle(s, &second[0], true); v != schema.Acknowledged {
			t.Fatal(v)
		}
		time.Sleep(time.Minute)
		b.expect(s, 1)
	})
}

func TestExtendKeepsALease(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(nil)
		b.publish("a")
		out := b.expect(s, 1, "a")
		time.Sleep(20 * time.Second)
		v, err := b.d.Extend(s.ID, []schema.Settlement{{Message: out[0].ID, Lease: out[0].Lease}}, time.Minute)
		if err != nil || v[0] != schema.Extended {
			t.Fatal(v, err)
		}
		time.Sleep(50 * time.Second)
		b.expect(s, 1)
		time.Sleep(11 * time.Second)
		b.expect(s, 1, "a")
	})
}

func TestNackWithDelay(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(nil)
		b.publish("a", "b")
		out := b.expect(s, 1, "a")
		v, err := b.d.Nack(s.ID, []schema.Settlement{{Message: out[0].ID}}, 10*time.Second)
		if err != nil || v[0] != schema.Returned {
			t.Fatal(v, err)
		}
		b.expect(s, 5, "b")
		time.Sleep(11 * time.Second)
		if again := b.expect(s, 5, "a"); again[0].Attempt != 2 {
			t.Fatal("attempt", again[0].Attempt)
		}
	})
}

func TestProgressSurvivesARestart(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(nil)
		b.publish("a", "b", "c", "d")
		out := b.expect(s, 4, "a", "b", "c", "d")
		b.settle(s, &out[0], true)
		b.settle(s, &out[2], true)
		if _, err := b.d.Nack(s.ID, []schema.Settlement{{Message: out[1].ID}}, 0); err != nil {
			t.Fatal(err)
		}
		b.expect(s, 1, "b")
		b.restart()
		again := b.expect(s, 10, "b", "d")
		if again[0].Attempt != 2 { // the attempt that ended is counted; the one that was out when the node ended is not
			t.Fatal("attempt", again[0].Attempt)
		}
		if v := b.settle(s, &out[1], true); v != schema.Stale {
			t.Fatal("a lease of the former owner:", v)
		}
	})
}

func TestOrderPerKey(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(func(s *schema.Subscription) { s.Ordered = true })
		b.publishAll(schema.Publish{Key: "x", Content: []byte("x1")}, schema.Publish{Key: "x", Content: []byte("x2")},
			schema.Publish{Key: "y", Content: []byte("y1")}, schema.Publish{Key: "x", Content: []byte("x3")}, schema.Publish{Content: []byte("free")})
		out := b.expect(s, 10, "x1", "y1", "free")
		time.Sleep(31 * time.Second) // every lease ends
		again := b.expect(s, 10, "x1", "y1", "free")
		b.settle(s, &again[0], true)
		next := b.expect(s, 10, "x2")
		b.settle(s, &out[1], false)
		b.expect(s, 10)
		b.restart()
		out = b.expect(s, 10, "x2", "free")
		b.settle(s, &out[0], true)
		b.expect(s, 10, "x3")
		_ = next
	})
}

func TestAtMostOnceIsRecordedBeforeItIsHandedOut(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(func(s *schema.Subscription) { s.Guarantee = schema.AtMostOnce })
		b.publish("a", "b")
		b.expect(s, 1, "a")
		b.restart()
		b.expect(s, 10, "b")
		time.Sleep(time.Hour)
		b.expect(s, 10)
		// A fenced node hands nothing out: it can no longer record.
		b.publish("c")
		if err := b.store.Fence(context.Background(), b.me); err != nil {
			t.Fatal(err)
		}
		b.expect(s, 10)
	})
}

func TestDeadLetters(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(func(s *schema.Subscription) { s.MaxAttempts = 2; s.DeadLetter = 9 })
		ids := b.publish("poison", "good")
		b.mu.Lock()
		b.fails = true
		b.mu.Unlock()
		for range 2 {
			out := b.expect(s, 1, "poison")
			if _, err := b.d.Nack(s.ID, []schema.Settlement{{Message: out[0].ID}}, 0); err != nil {
				t.Fatal(err)
			}
			good := b.expect(s, 1, "good")
			if _, err := b.d.Nack(s.ID, []schema.Settlement{{Message: good[0].ID}}, time.Second); err != nil && len(good) > 0 {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if dead := b.buried(); len(dead) != 0 {
			t.Fatal("written although the topic was down:", dead)
		}
		m := b.message(ids[0])
		if st := b.d.Standings(&m); st[0].State != schema.StandingOutstanding {
			t.Fatalf("a dead letter that could not be written is %s", st[0].State)
		}
		b.mu.Lock()
		b.fails = false
		b.mu.Unlock()
		time.Sleep(buryRetry + time.Second)
		synctest.Wait()
		dead := b.buried()
		slices.Sort(dead)
		if !slices.Equal(dead, []string{"good", "poison"}) {
			t.Fatal("dead letters:", dead)
		}
		if st := b.d.Standings(&m); st[0].State != schema.StandingDeadLettered {
			t.Fatalf("%+v", st)
		}
		if p := b.d.Progress(s.ID); p.Outstanding != 0 {
			t.Fatalf("slots stay taken: %+v", p)
		}
		n, err := b.d.Redrive(context.Background(), s.ID, 10, func(_ context.Context, m *schema.Message) error {
			b.publishAll(schema.Publish{Content: m.Content, Only: s.ID})
			return nil
		})
		if n != 2 || err != nil {
			t.Fatal(n, err)
		}
		b.expect(s, 10, "poison", "good")
		if n, err := b.d.Redrive(context.Background(), s.ID, 10, nil); n != 0 || err != nil {
			t.Fatal("redriven twice", n, err)
		}
	})
}

func (b *bed) message(id schema.MessageID) schema.Message {
	b.t.Helper()
	m, ok, err := b.owner.Message(context.Background(), id.Offset())
	if err != nil || !ok {
		b.t.Fatal(ok, err)
	}
	return m
}

func TestDelay(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(nil)
		b.publishAll(schema.Publish{Content: []byte("later"), Delay: time.Minute}, schema.Publish{Content: []byte("now")})
		b.settle(s, &b.expect(s, 10, "now")[0], true)
		time.Sleep(59 * time.Second)
		b.expect(s, 1)
		time.Sleep(2 * time.Second)
		b.expect(s, 1, "later")
	})
}

func TestStartPositionsAndReplay(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.publish("1")
		time.Sleep(time.Minute)
		at := time.Now()
		ids := b.publish("2", "3")
		early := b.subscribe(func(s *schema.Subscription) { s.Start.Position = "earliest" })
		since := b.subscribe(func(s *schema.Subscription) { s.Start = schema.StartAt{Position: "time", Time: at} })
		from := b.subscribe(func(s *schema.Subscription) {
			s.Start = schema.StartAt{Position: "message", Message: ids[1], Time: at}
		})
		out := b.expect(early, 10, "1", "2", "3")
		b.expect(since, 10, "2", "3")
		b.expect(from, 10, "3")
		for i := range out {
			b.settle(early, &out[i], true)
		}
		moved := *early
		moved.Start, moved.Seeks = schema.StartAt{Position: "message", Message: ids[0], Time: at}, 1
		b.apply(&moved)
		b.specs[0] = &moved
		b.expect(&moved, 1, "2")
		b.restart()
		b.expect(&moved, 10, "2", "3")
	})
}

func TestFilterAndAcceptedPublishers(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(func(s *schema.Subscription) {
			s.Filter = []byte(`{"type": ["a"]}`)
			s.AcceptPublishers = []schema.UserID{1}
		})
		typ := func(v string) []schema.Attribute { return []schema.Attribute{{Name: "type", Value: v}} }
		b.publishAll(schema.Publish{Publisher: 1, Attributes: typ("a"), Content: []byte("yes")}, schema.Publish{Publisher: 1, Attributes: typ("b"), Content: []byte("other")},
			schema.Publish{Publisher: 2, Attributes: typ("a"), Content: []byte("stranger")})
		b.expect(s, 10, "yes")
	})
}

func TestRetentionTellsWhatWasLost(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(nil)
		b.publish("a", "b", "c")
		out := b.expect(s, 2, "a", "b")
		b.settle(s, &out[1], true)
		time.Sleep(time.Hour)
		b.publish("d")
		if err := b.d.Retain(context.Background(), b.owner, testTopic, time.Now().Add(-time.Minute), 0); err != nil {
			t.Fatal(err)
		}
		if p := b.d.Progress(s.ID); p.Lost != 2 {
			t.Fatalf("lost %d, want a and c", p.Lost)
		}
		b.expect(s, 10, "d")
		b.restart()
		if p := b.d.Progress(s.ID); p.Lost != 2 {
			t.Fatalf("after a restart lost %d", p.Lost)
		}
	})
}

func TestWindowBoundsWhatIsOut(t *testing.T) {
	inBubble(t, func(b *bed) {
		s := b.subscribe(func(s *schema.Subscription) { s.MaxOutstanding = 3 })
		b.publish("a", "b", "c", "d", "e")
		out := b.expect(s, 10, "a", "b", "c")
		b.expect(s, 10)
		b.settle(s, &out[1], true)
		b.expect(s, 10, "d")
		b.settle(s, &out[0], true)
		b.expect(s, 10, "e")
	})
}

// pusher is an invoker whose answers the test gives.
type pusher struct {
	mu     sync.Mutex
	got    []string
	at     []time.Time
	answer func(d *schema.Delivery) schema.Result
}

func (p *pusher) Invoke(_ context.Context, _ *schema.Subscription, batch []schema.Delivery) []schema.Result {
	results := make([]schema.Result, len(batch))
	for i := range batch {
		p.mu.Lock()
		p.got = append(p.got, string(batch[i].Content))
		p.at = append(p.at, time.Now())
		p.mu.Unlock()
		results[i] = p.answer(&batch[i])
	}
	return results
}

func (p *pusher) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got)
}

func (b *bed) push(p *pusher, change func(*schema.Subscription)) *schema.Subscription {
	b.calls[schema.TargetWebhook] = p
	return b.subscribe(func(s *schema.Subscription) {
		s.Target = schema.Target{Type: schema.TargetWebhook}
		if change != nil {
			change(s)
		}
	})
}

func TestPushFollowsTheSchedule(t *testing.T) {
	inBubble(t, func(b *bed) {
		p := &pusher{answer: func(*schema.Delivery) schema.Result { return schema.Result{Outcome: schema.Failed} }}
		b.push(p, func(s *schema.Subscription) {
			s.RetrySchedule = []time.Duration{0, 5 * time.Second, 5 * time.Minute}
			s.DeadLetter = 9
		})
		begin := time.Now()
		b.publish("a")
		time.Sleep(time.Hour)
		if dead := b.buried(); !slices.Equal(dead, []string{"a"}) || p.count() != 3 {
			t.Fatal(dead, p.got)
		}
		for i, low := range []time.Duration{0, 5 * time.Second, 5*time.Minute + 5*time.Second} {
			if at := p.at[i].Sub(begin); at < low || at > low+low/5+time.Second {
				t.Errorf("attempt %d after %v, want about %v", i+1, at, low)
			}
		}
	})
}

func TestHeldUsesNoAttempt(t *testing.T) {
	inBubble(t, func(b *bed) {
		n := 0
		p := &pusher{}
		p.answer = func(d *schema.Delivery) schema.Result {
			if n++; n <= 20 {
				return schema.Result{Outcome: schema.Held, RetryAfter: 10 * time.Second}
			}
			if d.Attempt != 1 {
				t.Error("attempt", d.Attempt)
			}
			return schema.Result{}
		}
		s := b.push(p, func(s *schema.Subscription) { s.MaxAttempts = 2; s.Target.Concurrency = 1 })
		b.publish("a")
		time.Sleep(time.Hour)
		if got := b.d.Progress(s.ID); got.Outstanding != 0 || n != 21 {
			t.Fatalf("%+v after %d calls", got, n)
		}
	})
}

func TestGoneEndsAndNothingFollows(t *testing.T) {
	inBubble(t, func(b *bed) {
		p := &pusher{answer: func(*schema.Delivery) schema.Result { return schema.Result{Outcome: schema.EndpointGone} }}
		s := b.push(p, func(s *schema.Subscription) { s.Target.Concurrency = 1 })
		b.publish("a")
		synctest.Wait()
		b.mu.Lock()
		state := b.state[s.ID]
		b.mu.Unlock()
		if state != schema.Ended {
			t.Fatal("state", state)
		}
		ended := *s
		ended.State = schema.Ended
		b.apply(&ended)
		before := p.count()
		b.publish("b")
		time.Sleep(24 * time.Hour)
		if p.count() != before {
			t.Fatal("delivered after the end:", p.got)
		}
	})
}

func TestADeadEndpointDelaysNobody(t *testing.T) {
	inBubble(t, func(b *bed) {
		block := make(chan struct{})
		var good atomic.Int64
		p := &pusher{}
		p.answer = func(d *schema.Delivery) schema.Result {
			if d.Subscription == 100 {
				<-block
				return schema.Result{Outcome: schema.Failed}
			}
			good.Add(1)
			return schema.Result{}
		}
		const endpoints, messages = 1000, 10
		for range endpoints + 1 {
			b.push(p, nil)
		}
		for i := range messages {
			b.publish(fmt.Sprint(i))
		}
		synctest.Wait() // no time passed: nobody waited for the one that hangs
		if good.Load() != endpoints*messages {
			t.Fatalf("%d of %d deliveries reached the live endpoints", good.Load(), endpoints*messages)
		}
		close(block)
	})
}

func TestPersistentFailurePauses(t *testing.T) {
	inBubble(t, func(b *bed) {
		p := &pusher{answer: func(*schema.Delivery) schema.Result { return schema.Result{Outcome: schema.Failed} }}
		s := b.push(p, nil)
		b.publish("a")
		time.Sleep(failingMax + 48*time.Hour)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.state[s.ID] != schema.Paused {
			t.Fatal("state", b.state[s.ID])
		}
	})
}

// TestRandomly runs a seeded mix of publishing, pulling, acks, nacks, time and restarts, and checks the promises at the end: every message
// was delivered until it was acknowledged, never after that, and in order per key.
func TestRandomly(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(b *bed) { randomly(b, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomly(b *bed, r *rand.Rand) {
	ordered := r.IntN(2) == 0
	s := b.subscribe(func(s *schema.Subscription) {
		s.Ordered, s.MaxOutstanding = ordered, 1+r.IntN(20)
	})
	acked, published := map[string]bool{}, []string{}
	lastOf := map[string]int{} // per key, the last acknowledged number
	var out []schema.Delivery
	deliver := func(ds []schema.Delivery) {
		for i := range ds {
			c := string(ds[i].Content)
			if acked[c] {
				b.t.Fatalf("%s came after it was acknowledged", c)
			}
			var n int
			fmt.Sscanf(c, ds[i].Key+"-%d", &n)
			if ordered && n != lastOf[ds[i].Key]+1 {
				b.t.Fatalf("%s came while %d was the last acknowledged of its key", c, lastOf[ds[i].Key])
			}
		}
		out = append(out, ds...)
	}
	ack := func(i int) {
		d := out[i]
		out = slices.Delete(out, i, i+1)
		if v := b.settle(s, &d, true); v == schema.Acknowledged {
			acked[string(d.Content)] = true
			fmt.Sscanf(string(d.Content), d.Key+"-%d", new(int))
			var n int
			fmt.Sscanf(string(d.Content), d.Key+"-%d", &n)
			lastOf[d.Key] = max(lastOf[d.Key], n)
		}
	}
	count := map[string]int{}
	for range 200 {
		switch r.IntN(10) {
		case 0, 1, 2:
			key := fmt.Sprintf("k%d", r.IntN(4))
			count[key]++
			c := fmt.Sprintf("%s-%d", key, count[key])
			published = append(published, c)
			b.publishAll(schema.Publish{Key: key, Content: []byte(c)})
		case 3, 4:
			deliver(b.pull(s, 1+r.IntN(5)))
		case 5, 6, 7:
			if len(out) > 0 {
				ack(r.IntN(len(out)))
			}
		case 8:
			if len(out) > 0 {
				d := out[r.IntN(len(out))]
				if _, err := b.d.Nack(s.ID, []schema.Settlement{{Message: d.ID, Lease: d.Lease}}, time.Duration(r.IntN(3))*time.Second); err != nil {
					b.t.Fatal(err)
				}
			}
		case 9:
			if r.IntN(4) == 0 {
				b.restart()
				out = nil
			} else {
				time.Sleep(time.Duration(r.IntN(40)) * time.Second)
			}
		}
	}
	for idle := 0; idle < 3; {
		time.Sleep(time.Minute)
		out = nil
		deliver(b.pull(s, 100))
		if len(out) == 0 {
			idle++
		}
		for len(out) > 0 {
			ack(0)
		}
	}
	for _, c := range published {
		if !acked[c] {
			b.t.Fatalf("%s was never delivered", c)
		}
	}
}
