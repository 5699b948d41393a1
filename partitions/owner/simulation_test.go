package owner

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// The simulation runs the protocol of ownership, Pipeline and Takeover as they are, over three replicas in a world where messages are
// delayed, lost, doubled and late by far, where an owner stands still between any two of its steps without its clock noticing, where two successors
// come at once, where the answers of compare-and-sets are lost, and where writes arrive after the seal. One seed is one run; a seed replays it.
//
// What must hold: an acknowledged commit is never past the sealed end of its epoch, no offset is acknowledged twice, and a sealed epoch
// never changes.

// weakness is one step of the protocol done wrong. Each must be caught.
type weakness uint8

const (
	sound        weakness = iota
	checkAtOne            // the session is read from one replica
	checkEarly            // the check begins when the commit is sent, not when it is durable
	ackAnyOrder           // a commit is acknowledged though an earlier one is not durable
	readTooEarly          // the successor reads the log before a quorum has the fence
)

type event struct {
	at float64
	n  int
	fn func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const replicas = 3

type place struct {
	epoch schema.Epoch
	seq   schema.Seq
}

// replica is one node of the database.
type replica struct {
	commits map[place]schema.Commit
	fenced  map[schema.SessionID]bool
}

type world struct {
	r        *rand.Rand
	weak     weakness
	queue    events
	now      float64
	n        int
	replicas [replicas]replica
	row      schema.Partition // the compare-and-set register
	sealed   map[schema.Epoch]schema.EpochRow
	acked    map[place]schema.OffsetRange
	faults   []string
}

func (w *world) at(d float64, fn func()) {
	w.n++
	heap.Push(&w.queue, event{w.now + d, w.n, fn})
}

// hop is one message's way: mostly short, sometimes long, and now and then so long that everything has moved on.
func (w *world) hop() float64 {
	switch x := w.r.Float64(); {
	case x < 0.85:
		return 0.2 + 2*w.r.Float64()
	case x < 0.97:
		return 30 * w.r.Float64()
	}
	return 200 * w.r.Float64()
}

// lost tells whether one message never arrives.
func (w *world) lost() bool { return w.r.IntN(50) == 0 }

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// actor is a process that may stand still: whatever should happen in it during a pause happens after it.
type actor struct {
	w                 *world
	pauseAt, pauseLen float64
	dead              bool
}

func (w *world) newActor() *actor {
	a := &actor{w: w, pauseAt: w.now + 200*w.r.Float64()}
	if w.r.IntN(2) == 0 {
		a.pauseLen = 300 * w.r.Float64()
	}
	return a
}

func (a *actor) after(d float64, fn func()) {
	t := a.w.now + d
	if t >= a.pauseAt && t < a.pauseAt+a.pauseLen {
		t = a.pauseAt + a.pauseLen
	}
	a.w.at(t-a.w.now, func() {
		if !a.dead {
			fn()
		}
	})
}

// write sends an idempotent change to all replicas, again and again until need of them answered, and calls done then. A copy may arrive late or twice.
func (a *actor) write(need int, change func(*replica), done func()) {
	answered := map[int]bool{}
	finished := false
	var send func()
	send = func() {
		if finished {
			return
		}
		for i := range a.w.replicas {
			if a.w.lost() {
				continue
			}
			copies := 1
			if a.w.r.IntN(30) == 0 {
				copies = 2
			}
			for range copies {
				a.w.at(a.w.hop(), func() {
					change(&a.w.replicas[i])
					if a.w.lost() {
						return
					}
					a.after(a.w.hop(), func() {
						answered[i] = true
						if len(answered) >= need && !finished {
							finished = true
							done()
						}
					})
				})
			}
		}
		a.after(60, send)
	}
	send()
}

// read asks all replicas and calls done with the first need answers, each as it was at its own moment.
func (a *actor) read(need int, look func(*replica) any, done func([]any)) {
	var answers []any
	asked := map[int]bool{}
	finished := false
	var send func()
	send = func() {
		if finished {
			return
		}
		for i := range a.w.replicas {
			if a.w.lost() {
				continue
			}
			a.w.at(a.w.hop(), func() {
				answer := look(&a.w.replicas[i])
				a.after(a.w.hop(), func() {
					if finished || asked[i] {
						return
					}
					asked[i] = true
					answers = append(answers, answer)
					if len(answers) == need {
						finished = true
						done(answers)
					}
				})
			})
		}
		a.after(60, send)
	}
	send()
}

const quorum = 2

// node is a process that owns, or wants to.
type node struct {
	*actor
	session schema.SessionID
	resume  func() (struct{}, bool)
	yield   func(struct{}) bool
}

// await lets straight-line code wait for something of the world.
func (n *node) await(begin func(done func())) {
	over := false
	begin(func() {
		if !over {
			over = true
			n.w.at(0, func() { n.resume() })
		}
	})
	n.yield(struct{}{})
}

// run starts straight-line code as a coroutine of the world.
func (n *node) run(code func()) (stop func()) {
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		n.yield = yield
		code()
	})
	n.resume = next
	n.w.at(0, func() { next() })
	return stop
}

// The store contracts that Takeover uses, over the replicas. The others are not called.
type simStore struct {
	schema.Log
	schema.Ownership
	n *node
}

func (s simStore) Fence(_ context.Context, id schema.SessionID) error {
	need := quorum
	if s.n.w.weak == readTooEarly {
		need = 0
	}
	s.n.await(func(done func()) {
		s.n.write(max(need, 1), func(r *replica) { r.fenced[id] = true }, func() {
			if need > 0 {
				done()
			}
		})
		if need == 0 {
			done()
		}
	})
	return nil
}

func (s simStore) commits(e schema.Epoch) map[schema.Seq]schema.Commit {
	seen := map[schema.Seq]schema.Commit{}
	s.n.await(func(done func()) {
		s.n.read(quorum, func(r *replica) any {
			var list []schema.Commit
			for p, c := range r.commits {
				if p.epoch == e {
					list = append(list, c)
				}
			}
			return list
		}, func(answers []any) {
			for _, a := range answers {
				for _, c := range a.([]schema.Commit) {
					seen[c.Seq] = c
				}
			}
			done()
		})
	})
	return seen
}

func (s simStore) LastCommit(_ context.Context, _ schema.PartitionID, e schema.Epoch) (last schema.Commit, ok bool, err error) {
	for _, c := range s.commits(e) {
		if c.Seq > last.Seq {
			last, ok = c, true
		}
	}
	return last, ok, nil
}

func (s simStore) Commits(_ context.Context, _ schema.PartitionID, e schema.Epoch, first schema.Seq, limit int) (list []schema.Commit, err error) {
	seen := s.commits(e)
	for seq := first; len(list) < limit; seq++ {
		c, ok := seen[seq]
		if !ok {
			break
		}
		list = append(list, c)
	}
	return list, nil
}

func (s simStore) Kept(context.Context, schema.PartitionID, schema.Epoch, schema.Seq, schema.Seq) ([]schema.Commit, error) {
	return nil, errors.New("nobody looks for keys here")
}

func (s simStore) Rewrite(_ context.Context, _ schema.PartitionID, e schema.Epoch, first, last schema.Seq) error {
	seen := s.commits(e)
	for seq := first; seq <= last; seq++ {
		c, ok := seen[seq]
		if !ok {
			return errors.New("a commit that was read is not to be found")
		}
		s.n.await(func(done func()) {
			s.n.write(quorum, func(r *replica) { r.commits[place{e, seq}] = c }, done)
		})
	}
	return nil
}

func (s simStore) Partition(context.Context, schema.PartitionID) (row schema.Partition, err error) {
	s.n.await(func(done func()) {
		s.n.w.at(s.n.w.hop(), func() {
			row = s.n.w.row
			s.n.after(s.n.w.hop(), done)
		})
	})
	return row, nil
}

// SwapPartition applies at one moment. Its answer may be lost, and then the moment may lie far ahead.
func (s simStore) SwapPartition(_ context.Context, next schema.Partition) (swapped bool, current schema.Partition, err error) {
	unknown := s.n.w.r.IntN(6) == 0
	s.n.await(func(done func()) {
		s.n.w.at(s.n.w.hop(), func() {
			if swapped = s.n.w.row.Version == next.Version-1; swapped {
				s.n.w.swap(next)
			}
			current = s.n.w.row
			if !unknown {
				s.n.after(s.n.w.hop(), done)
			}
		})
		if unknown {
			s.n.after(20*s.n.w.r.Float64(), done)
		}
	})
	if unknown {
		return false, schema.Partition{}, errors.New("no answer")
	}
	return swapped, current, nil
}

// swap makes a partition row the current one and holds it against what was before.
func (w *world) swap(next schema.Partition) {
	w.row = next
	for _, e := range next.Epochs {
		if !e.Sealed {
			continue
		}
		if before, ok := w.sealed[e.Epoch]; ok && before != e {
			w.fault("the sealed epoch %d changed from %+v to %+v", e.Epoch, before, e)
		}
		w.sealed[e.Epoch] = e
	}
}

// own is the owner's side: it sends commits, several at a time, and acknowledges what the pipeline lets it.
func (n *node) own(row schema.Partition) {
	epoch, _ := row.Open()
	o := &simOwner{node: n, epoch: epoch.Epoch, next: epoch.Start, sent: map[schema.Seq]schema.OffsetRange{}}
	o.send()
}

type simOwner struct {
	*node
	epoch    schema.Epoch
	next     schema.Offset
	seq      schema.Seq
	flying   int
	pipeline Pipeline
	sent     map[schema.Seq]schema.OffsetRange
	acked    schema.Seq
	over     bool
}

const simCommits = 25

func (o *simOwner) send() {
	if o.over || o.seq >= simCommits {
		return
	}
	o.after(3*o.w.r.Float64(), o.send)
	if o.flying >= commitsInFlight {
		return
	}
	o.flying++
	o.seq++
	seq := o.seq
	run := schema.OffsetRange{First: o.next, Count: 1 + o.w.r.IntN(3)}
	o.next += schema.Offset(run.Count)
	o.sent[seq] = run
	c := schema.Commit{Epoch: o.epoch, Seq: seq, Committed: o.pipeline.Acked(), Frames: []schema.Frame{{First: run.First, Count: run.Count}}}
	written, checked := false, false
	if o.w.weak == checkEarly {
		o.check(func() {
			checked = true
			if written {
				o.ack(o.pipeline.EndCheck(seq))
			}
		})
	}
	o.write(quorum, func(r *replica) { r.commits[place{o.epoch, seq}] = c }, func() {
		o.flying--
		if o.over {
			return
		}
		written = true
		switch o.w.weak {
		case checkEarly:
			if checked {
				o.ack(o.pipeline.EndCheck(seq))
			}
		case ackAnyOrder:
			o.check(func() { o.ackOne(seq) })
		default:
			o.pipeline.Durable(seq)
			if covered, ok := o.pipeline.BeginCheck(); ok {
				o.check(func() { o.ack(o.pipeline.EndCheck(covered)) })
			}
		}
	})
}

// check reads the session register and calls live when it is not fenced; else the owner is over.
func (o *simOwner) check(live func()) {
	need := quorum
	if o.w.weak == checkAtOne {
		need = 1
	}
	o.read(need, func(r *replica) any { return r.fenced[o.session] }, func(answers []any) {
		for _, fenced := range answers {
			if fenced.(bool) {
				o.over = true
			}
		}
		if !o.over {
			live()
		}
	})
}

func (o *simOwner) ack(upTo schema.Seq) {
	for ; o.acked < upTo; o.acked++ {
		o.ackOne(o.acked + 1)
	}
}

func (o *simOwner) ackOne(seq schema.Seq) { o.w.acked[place{o.epoch, seq}] = o.sent[seq] }

// simulate runs one seed and returns what was wrong, and how much was acknowledged and sealed.
func simulate(seed uint64, weak weakness) (faults []string, acked, sealed int) {
	w := &world{r: rand.New(rand.NewPCG(seed, 7)), weak: weak, sealed: map[schema.Epoch]schema.EpochRow{}, acked: map[place]schema.OffsetRange{}}
	for i := range w.replicas {
		w.replicas[i] = replica{map[place]schema.Commit{}, map[schema.SessionID]bool{}}
	}
	var stops []func()
	begin := func(name string, after float64) {
		w.at(after, func() {
			n := &node{actor: w.newActor(), session: schema.SessionID(name)}
			if w.r.IntN(4) == 0 { // it dies on the way
				w.at(400*w.r.Float64(), func() { n.dead = true })
			}
			stops = append(stops, n.run(func() { n.takeOver() }))
		})
	}
	begin("s1", 0)
	begin("s2", 20+280*w.r.Float64())
	begin("s3", 20+280*w.r.Float64())
	for steps := 0; len(w.queue) > 0 && steps < 200_000 && w.now < 3000; steps++ {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.fn()
	}
	for _, stop := range stops {
		stop()
	}
	w.judge()
	return w.faults, len(w.acked), len(w.sealed)
}

// takeOver tries until it owns the partition once, as a node does, and then owns it.
func (n *node) takeOver() {
	for try := range 5 {
		store := simStore{n: n}
		row, err := store.Partition(context.Background(), 1)
		if err == nil {
			row, err = Takeover(context.Background(), store, store, row, n.session, fmt.Sprintf("%s-%d", n.session, try))
		}
		if err == nil {
			n.own(row)
			return
		}
		if schema.KindOf(err) == schema.Conflict {
			return // somebody else was faster; it may be that one's turn to be taken over later
		}
		n.await(func(done func()) { n.after(10, done) })
	}
}

func (w *world) judge() {
	given := map[schema.Offset]place{}
	for p, run := range w.acked {
		if e, ok := w.sealed[p.epoch]; ok && (p.seq > e.LastSeq || run.First+schema.Offset(run.Count) > e.End) {
			w.fault("commit %d of epoch %d was acknowledged and lies past its end, %d", p.seq, p.epoch, e.LastSeq)
		}
		for o := run.First; o < run.First+schema.Offset(run.Count); o++ {
			if q, twice := given[o]; twice {
				w.fault("offset %d was acknowledged in epoch %d and in epoch %d", o, p.epoch, q.epoch)
			}
			given[o] = p
		}
	}
}

// simulateMany runs seeds on all processors and returns the first that fails, and how many do.
func simulateMany(seeds int, weak weakness, enough int) (failed int, example string, acked, sealed int64) {
	var next, bad, a, s atomic.Int64
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				seed := next.Add(1)
				if seed > int64(seeds) || bad.Load() >= int64(enough) {
					return
				}
				faults, acked, sealed := simulate(uint64(seed), weak)
				a.Add(int64(acked))
				s.Add(int64(sealed))
				if len(faults) > 0 {
					bad.Add(1)
					mu.Lock()
					example = fmt.Sprintf("seed %d: %s", seed, faults[0])
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return int(bad.Load()), example, a.Load(), s.Load()
}

func TestSimulation(t *testing.T) {
	seeds := 100_000
	if raced || testing.Short() {
		seeds = 2000
	}
	begun := time.Now()
	failed, example, acked, sealed := simulateMany(seeds, sound, 1)
	if failed > 0 {
		t.Fatal(example)
	}
	t.Logf("%d seeds: %d commits acknowledged, %d epochs sealed, in %v", seeds, acked, sealed, time.Since(begun).Round(time.Millisecond))
	if acked < int64(seeds) || sealed < int64(seeds)/2 {
		t.Fatal("too little happened for this to say anything")
	}
}

// TestSimulationCatchesWeaknesses makes sure that the simulation sees what it is there to see.
func TestSimulationCatchesWeaknesses(t *testing.T) {
	for weak, name := range map[weakness]string{checkAtOne: "the check at one replica", checkEarly: "the check while the commit is written",
		ackAnyOrder: "acknowledgements out of order", readTooEarly: "the log read before the fence is confirmed"} {
		t.Run(name, func(t *testing.T) {
			failed, example, _, _ := simulateMany(100_000, weak, 1)
			if failed == 0 {
				t.Fatal("not caught in 100,000 seeds")
			}
			t.Log(example)
		})
	}
}
