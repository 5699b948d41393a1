package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/handfast-mq/handfast/partitions/frame"
	"github.com/handfast-mq/handfast/partitions/session"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// check is a verifier that asks the store, as a node in a cluster does.
type check struct {
	store schema.Ownership
	me    schema.SessionID
}

func (c check) Verify(done func(bool)) { done(c.Live(ctx)) }

func (c check) Live(ctx context.Context) bool {
	live, err := c.store.SessionLive(ctx, c.me)
	return live && err == nil
}

func open(t *testing.T, store schema.Store, me schema.SessionID, change func(*Config)) *Owner {
	t.Helper()
	if err := store.OpenSession(ctx, me); err != nil {
		t.Fatal(err)
	}
	return reopen(t, store, me, change)
}

func reopen(t *testing.T, store schema.Store, me schema.SessionID, change func(*Config)) *Owner {
	t.Helper()
	row, err := store.Partition(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Row: row, Keys: &Budget{Max: 100_000}, Log: store, Ownership: store, Session: me, Verifier: session.Standing{}, Committed: func(schema.PartitionID, schema.TopicID) {},
		Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry())}
	if change != nil {
		change(&cfg)
	}
	o, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func batch(topic schema.TopicID, keysAndContents ...string) *Batch {
	b := &Batch{Topic: topic}
	for i := 0; i < len(keysAndContents); i += 2 {
		b.Add(&schema.Publish{Publisher: 9, IdempotencyKey: keysAndContents[i], Content: []byte(keysAndContents[i+1])}, i)
	}
	return b
}

func publish(t *testing.T, o *Owner, b *Batch) []schema.Published {
	t.Helper()
	results, err := o.Publish(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func contents(t *testing.T, o *Owner, topic schema.TopicID) (list []string) {
	t.Helper()
	for from := schema.Offset(0); ; {
		frames, next, err := o.Read(ctx, topic, from, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range frames {
			r := frame.Read(&frames[i])
			for m := (schema.Message{}); r.Next(1, &m); {
				list = append(list, string(m.Content))
			}
		}
		if next == from {
			return list
		}
		from = next
	}
}

func TestPublishAndRead(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", nil)
	defer o.Close()
	r := publish(t, o, batch(7, "", "one", "", "two"))
	publish(t, o, batch(8, "", "other"))
	if r[0].ID.Partition() != 1 || r[1].ID != r[0].ID+1 || r[0].ID == 0 {
		t.Fatal(r)
	}
	if got := contents(t, o, 7); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatal(got)
	}
	m, ok, err := o.Message(ctx, r[1].ID.Offset())
	if !ok || err != nil || string(m.Content) != "two" || m.Publisher != 9 {
		t.Fatal(m, ok, err)
	}
	if _, ok, _ := o.Message(ctx, o.Committed()); ok {
		t.Fatal("a message past the committed mark")
	}
}

func TestIdempotency(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", nil)
	first := publish(t, o, batch(7, "k1", "x", "k1", "x", "", "y", "k1", "z"))
	if first[0].Duplicate || !first[1].Duplicate || first[1].ID != first[0].ID || schema.KindOf(first[3].Err) != schema.Mismatch || first[2].ID == first[0].ID {
		t.Fatalf("%+v", first)
	}
	again := publish(t, o, batch(7, "k1", "x"))
	if !again[0].Duplicate || again[0].ID != first[0].ID {
		t.Fatalf("%+v", again)
	}
	if other := publish(t, o, batch(8, "k1", "x")); other[0].Duplicate {
		t.Fatal("another topic's key")
	}
	o.Close()
	successor := open(t, store, "b", nil)
	defer successor.Close()
	moved := publish(t, successor, batch(7, "k1", "x", "k1", "other"))
	if !moved[0].Duplicate || moved[0].ID != first[0].ID || schema.KindOf(moved[1].Err) != schema.Mismatch {
		t.Fatalf("after a takeover: %+v", moved)
	}
	if got := contents(t, successor, 7); !slices.Equal(got, []string{"x", "y"}) {
		t.Fatal(got)
	}
}

// ofBatch makes a batch of messages that came in one with an idempotency key, some of them with their own.
func ofBatch(key string, keysAndContents ...string) *Batch {
	b := &Batch{Topic: 7}
	for i := 0; i < len(keysAndContents); i += 2 {
		b.Add(&schema.Publish{Publisher: 9, Batch: key, IdempotencyKey: keysAndContents[i], Content: []byte(keysAndContents[i+1])}, i/2)
	}
	return b
}

// TestIdempotencyOfBatches: the messages of a batch that have no keys of their own share one as long as they follow each other.
func TestIdempotencyOfBatches(t *testing.T) {
	store := storetest.NewMemory()
	budget := &Budget{Max: 4}
	o := open(t, store, "a", func(c *Config) { c.Keys = budget })
	again := func(o *Owner) {
		t.Helper()
		first := publish(t, o, ofBatch("b", "", "1", "", "2", "own", "3", "", "4"))
		for i, r := range first {
			if !r.Duplicate || r.ID.Offset() != 1+schema.Offset(i) || r.Err != nil {
				t.Errorf("message %d again: %+v", i, r)
			}
		}
	}
	first := publish(t, o, ofBatch("b", "", "1", "", "2", "own", "3", "", "4"))
	for i, r := range first {
		if r.Duplicate || r.ID.Offset() != 1+schema.Offset(i) || r.Err != nil {
			t.Fatalf("message %d: %+v", i, r)
		}
	}
	if n := budget.used.Load(); n != 3 {
		t.Errorf("%d keys for two runs and a message", n)
	}
	again(o)
	for _, other := range []*Batch{ofBatch("b", "", "1", "", "x"), ofBatch("b", "", "2", "", "1"), ofBatch("b", "", "1")} {
		for i, r := range publish(t, o, other) {
			if schema.KindOf(r.Err) != schema.Mismatch {
				t.Errorf("message %d of another batch under the key: %+v", i, r)
			}
		}
	}
	mixed := publish(t, o, ofBatch("c", "own", "3", "", "5"))
	if !mixed[0].Duplicate || mixed[0].ID != first[2].ID || mixed[1].Duplicate || mixed[1].Err != nil {
		t.Errorf("%+v", mixed)
	}
	for _, r := range publish(t, o, ofBatch("d", "", "6", "", "7")) {
		if schema.KindOf(r.Err) != schema.Busy {
			t.Errorf("over the budget: %+v", r)
		}
	}
	again(o)
	o.Close()
	if n := budget.used.Load(); n != 0 {
		t.Errorf("%d keys of an owner that is gone", n)
	}
	successor := open(t, store, "b", func(c *Config) { c.Keys = budget })
	defer successor.Close()
	again(successor)
	if got := contents(t, successor, 7); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
		t.Error(got)
	}
}

// TestIdempotencyOverHoles: retention that took commits away between them does not hide the keys of others from a successor, however
// many commits and epochs there are.
func TestIdempotencyOverHoles(t *testing.T) {
	store := storetest.NewMemory()
	var ids []schema.MessageID
	o := open(t, store, "a", nil)
	keep := func(n int) {
		for range n {
			ids = append(ids, publish(t, o, batch(7, fmt.Sprint("key", len(ids)), "kept"))[0].ID)
			publish(t, o, batch(8, "", "goes"))
		}
	}
	keep(windowPage)
	o.Close()
	o = open(t, store, "b", nil)
	keep(windowPages * windowPage / 2 * 5 / 4) // more than one round of reads
	upTo, err := o.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		if _, more, err = store.Retain(ctx, 8, 1, time.Now().Add(time.Hour), 0, upTo); err != nil {
			t.Fatal(err)
		}
	}
	o.Close()
	successor := open(t, store, "c", nil)
	defer successor.Close()
	for i, id := range ids {
		if again := publish(t, successor, batch(7, fmt.Sprint("key", i), "kept"))[0]; !again.Duplicate || again.ID != id {
			t.Fatalf("key %d of %d: %+v, want a duplicate of %d", i, len(ids), again, id)
		}
	}
}

func TestIdempotencyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		o := open(t, store, "a", nil)
		first := publish(t, o, batch(7, "k", "x"))
		time.Sleep(schema.IdempotencyWindow + time.Second)
		second := publish(t, o, batch(7, "k", "x"))
		if second[0].Duplicate || second[0].ID == first[0].ID {
			t.Fatalf("%+v", second)
		}
		o.Close()
		time.Sleep(schema.IdempotencyWindow / 2)
		o = open(t, store, "b", nil)
		defer o.Close()
		if third := publish(t, o, batch(7, "k", "x")); !third[0].Duplicate || third[0].ID != second[0].ID {
			t.Fatalf("%+v", third)
		}
	})
}

func TestConcurrentRetriesMakeOneMessage(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", nil)
	defer o.Close()
	var all sync.WaitGroup
	ids := make([]schema.MessageID, 50)
	for i := range ids {
		all.Go(func() {
			results, err := o.Publish(ctx, batch(7, "same", "x"))
			if err == nil {
				ids[i] = results[0].ID
			}
		})
	}
	all.Wait()
	if slices.Sort(ids); ids[0] == 0 || ids[0] != ids[len(ids)-1] {
		t.Fatal(ids)
	}
	if got := contents(t, o, 7); len(got) != 1 {
		t.Fatal(got)
	}
}

func TestAFailedWriteAcknowledgesNothingAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Faulty(storetest.NewMemory(), storetest.Fault{Method: "Append", Nth: 1, Times: 3, Harm: storetest.Fail}, storetest.Fault{Method: "Append", Nth: 4, Times: 2, Harm: storetest.LoseAnswer})
		o := open(t, store, "a", nil)
		defer o.Close()
		r := publish(t, o, batch(7, "", "x"))
		if got := contents(t, o, 7); len(got) != 1 || r[0].ID == 0 {
			t.Fatal(got, r)
		}
	})
}

func TestAWriteThatNeverSucceedsEndsTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Faulty(storetest.NewMemory())
		o := open(t, store, "a", nil)
		kept := publish(t, o, batch(7, "k", "kept"))
		store.Plan(storetest.Fault{Method: "Append", Nth: 1, Times: 1 << 30, Harm: storetest.Fail})
		_, err := o.Publish(ctx, batch(7, "l", "unknown"))
		if schema.KindOf(err) != schema.Unknown {
			t.Fatal(err)
		}
		<-o.Done()
		if _, err := o.Publish(ctx, batch(7, "", "after")); schema.KindOf(err) != schema.NotOwner {
			t.Fatal(err)
		}
		o.Close()
		store.Plan()
		o = reopen(t, store, "a", nil)
		defer o.Close()
		if again := publish(t, o, batch(7, "k", "kept", "l", "unknown")); !again[0].Duplicate || again[0].ID != kept[0].ID || again[1].Err != nil {
			t.Fatalf("%+v", again)
		}
		if got := contents(t, o, 7); !slices.Equal(got, []string{"kept", "unknown"}) {
			t.Fatal(got)
		}
	})
}

func TestAFencedOwnerAcknowledgesNothing(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", func(c *Config) { c.Verifier = check{store, "a"} })
	acked := publish(t, o, batch(7, "", "acked"))
	if err := store.Fence(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Publish(ctx, batch(7, "", "late")); schema.KindOf(err) != schema.Unknown {
		t.Fatal(err)
	}
	o.Close()
	successor := open(t, store, "b", func(c *Config) { c.Verifier = check{store, "b"} })
	defer successor.Close()
	got := contents(t, successor, 7)
	if len(got) == 0 || got[0] != "acked" {
		t.Fatal(got)
	}
	// The late one was written before the successor read the log: it is kept, and its id is not given again.
	if next := publish(t, successor, batch(7, "", "next")); next[0].ID <= acked[0].ID+1 {
		t.Fatal(next)
	}
}

func TestAHoleEndsTheEpochAndLateCommitsAreNeverRead(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", nil)
	publish(t, o, batch(7, "", "one"))
	end := o.Committed()
	o.Close()
	ghost := func(seq schema.Seq, at schema.Offset) {
		blob := frame.AppendRecord(frame.NewBlob(10), &schema.Publish{Content: []byte("ghost")})
		frame.Seal(blob)
		c := &schema.Commit{Partition: 1, Epoch: 1, Seq: seq, Committed: 1, Time: time.UnixMilli(time.Now().UnixMilli()),
			Frames: []schema.Frame{{Topic: 7, First: at, Count: 1, Time: time.UnixMilli(time.Now().UnixMilli()), Blob: blob}}}
		if err := store.Append(ctx, c, schema.AckQuorum); err != nil {
			t.Fatal(err)
		}
	}
	ghost(3, end+1) // 2 is missing
	successor := open(t, store, "b", nil)
	defer successor.Close()
	ghost(2, end) // a write that was long on its way
	publish(t, successor, batch(7, "", "two"))
	if got := contents(t, successor, 7); !slices.Equal(got, []string{"one", "two"}) {
		t.Fatal(got)
	}
	if _, ok, err := successor.Message(ctx, end); ok || err != nil {
		t.Fatal("a ghost is found by its id", err)
	}
}

func TestRetentionDoesNotHideTheEndOfAnEpoch(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", nil)
	publish(t, o, batch(7, "", "short"))
	publish(t, o, batch(8, "", "long"))
	upTo, err := o.Checkpoint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Retain(ctx, 7, 1, time.Now().Add(time.Hour), 0, upTo); err != nil {
		t.Fatal(err)
	}
	o.Close()
	successor := open(t, store, "b", nil)
	defer successor.Close()
	if got := contents(t, successor, 8); !slices.Equal(got, []string{"long"}) {
		t.Fatal(got)
	}
}

func TestAFullQueueIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Faulty(storetest.NewMemory(), storetest.Fault{Method: "Append", Nth: 1, Times: 1000, Harm: storetest.Delay, Wait: time.Second})
		o := open(t, store, "a", nil)
		defer o.Close()
		var all sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[string]int{}
		for range 40 {
			all.Go(func() {
				_, err := o.Publish(ctx, batch(7, "", string(make([]byte, 1<<20))))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					outcomes["ok"]++
				} else {
					outcomes[schema.KindOf(err).String()]++
				}
			})
		}
		all.Wait()
		if outcomes["ok"] == 0 || outcomes["busy"] == 0 || outcomes["ok"]+outcomes["busy"] != 40 {
			t.Fatal(outcomes)
		}
	})
}

func TestDeadlineOfTheCallerIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Faulty(storetest.NewMemory(), storetest.Fault{Method: "Append", Nth: 1, Times: 1, Harm: storetest.Delay, Wait: 5 * time.Second})
		o := open(t, store, "a", nil)
		defer o.Close()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := o.Publish(short, batch(7, "k", "x"))
		if schema.KindOf(err) != schema.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if again := publish(t, o, batch(7, "k", "x")); !again[0].Duplicate {
			t.Fatalf("%+v", again)
		}
	})
}

func TestDrainAndRelease(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", nil)
	publish(t, o, batch(7, "", "one"))
	o.Drain(ctx)
	if _, err := o.Publish(ctx, batch(7, "", "two")); schema.KindOf(err) != schema.NotOwner {
		t.Fatal(err)
	}
	o.Close()
	if err := o.Release(ctx); err != nil {
		t.Fatal(err)
	}
	row, err := store.Partition(ctx, 1)
	if _, open := row.Open(); open || err != nil || row.Epochs[0].LastSeq != 1 {
		t.Fatalf("%+v %v", row, err)
	}
	successor := open(t, store, "b", nil)
	defer successor.Close()
	if live, _ := store.SessionLive(ctx, "a"); !live {
		t.Fatal("a handover needs no fence")
	}
	if got := contents(t, successor, 7); len(got) != 1 {
		t.Fatal(got)
	}
}

// TestManyProducers checks ids and order under load: ids are unique, and each producer's messages lie in its order.
func TestManyProducers(t *testing.T) {
	store := storetest.NewMemory()
	o := open(t, store, "a", func(c *Config) { c.TailBytes = 4096 })
	defer o.Close()
	var all sync.WaitGroup
	var ids sync.Map
	const producers, each = 20, 50
	for p := range producers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 0))
			for i := range each {
				b := batch(schema.TopicID(7+r.IntN(2)), "", fmt.Sprintf("%d %d", p, i))
				results, err := o.Publish(ctx, b)
				if err != nil {
					t.Error(err)
					return
				}
				if _, twice := ids.LoadOrStore(results[0].ID, true); twice {
					t.Error("an id was given twice", results[0].ID)
				}
			}
		})
	}
	all.Wait()
	total := 0
	for _, topic := range []schema.TopicID{7, 8} {
		last := map[int]int{}
		for _, c := range contents(t, o, topic) {
			var p, i int
			fmt.Sscanf(c, "%d %d", &p, &i)
			if before, seen := last[p]; seen && before >= i {
				t.Fatalf("producer %d: %d after %d", p, i, before)
			}
			last[p] = i
			total++
		}
	}
	if total != producers*each {
		t.Fatal(total)
	}
}
