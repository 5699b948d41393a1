package storetest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// RandomOptions choose a list of operations. The same options choose the same list.
type RandomOptions struct {
	Seed      uint64
	Steps     int
	Partition schema.PartitionID // the first of four that are used
	Reopen    func(t testing.TB, s schema.Store) schema.Store
}

// Compare runs one random list of operations on two stores and fails where their answers differ.
func Compare(t testing.TB, a, b schema.Store, o RandomOptions) {
	t.Helper()
	p := &pair{TB: t, a: a, b: b, r: rand.New(rand.NewPCG(o.Seed, 0)), opts: o}
	for i := range 4 {
		p.slots = append(p.slots, &slot{p: o.Partition + schema.PartitionID(i), epoch: 1, seq: 1})
	}
	for p.step = range o.Steps {
		p.do()
	}
}

// pair is two stores and what the list has done to them.
type pair struct {
	testing.TB
	a, b    schema.Store
	r       *rand.Rand
	opts    RandomOptions
	step    int
	slots   []*slot
	changed bool // the metadata is not empty
}

// slot is one partition as its owner sees it.
type slot struct {
	p         schema.PartitionID
	epoch     schema.Epoch
	seq       schema.Seq // the next
	next      schema.Offset
	sec       int
	recent    []*schema.Commit
	forgotten bool // some commits of this and earlier epochs may be gone, in part or whole
	version   int64
}

func (p *pair) do() {
	s := p.slots[p.r.IntN(len(p.slots))]
	switch n := p.r.IntN(100); {
	case n < 40:
		p.append(s, p.newCommit(s))
	case n < 45 && len(s.recent) > 0:
		p.append(s, s.recent[p.r.IntN(len(s.recent))])
	case n < 48:
		s.seq++ // a hole
	case n < 51:
		s.epoch++
		s.seq, s.next, s.recent, s.forgotten = 1, s.next+schema.Offset(p.r.IntN(1000)), nil, false
	case n < 60:
		p.frames(s)
	case n < 68:
		p.locate(s)
	case n < 74:
		p.seek(s)
	case n < 80 && !s.forgotten:
		p.commits(s)
	case n < 85:
		p.retain(s)
	case n < 92:
		p.cursors(s)
	case n < 97:
		p.swap(s)
	case n < 99:
		p.metadata()
	case p.opts.Reopen != nil:
		p.a = p.opts.Reopen(p.TB, p.a)
	}
}

// same fails when the two answers differ.
func same[T any](p *pair, what string, equal func(x, y T) bool, ask func(schema.Store) (T, error)) {
	p.Helper()
	x, errX := ask(p.a)
	y, errY := ask(p.b)
	if (errX == nil) != (errY == nil) || errX != nil && schema.KindOf(errX) != schema.KindOf(errY) || errX == nil && !equal(x, y) {
		p.Fatalf("seed %d step %d: %s:\n%+v %v\n%+v %v", p.opts.Seed, p.step, what, x, errX, y, errY)
	}
}

func (p *pair) newCommit(s *slot) *schema.Commit {
	s.sec += p.r.IntN(3)
	c := &schema.Commit{Partition: s.p, Epoch: s.epoch, Seq: s.seq, Committed: s.seq - 1, Time: at(s.sec)}
	c.Keys = bytes.Repeat([]byte{byte(s.seq)}, p.r.IntN(40))
	for t := range 1 + p.r.IntN(3) {
		f := frame(schema.TopicID(t+1), s.next, 1+p.r.IntN(20), s.sec)
		f.Blob = bytes.Repeat(f.Blob, p.r.IntN(50))
		c.Frames = append(c.Frames, f)
		s.next = f.End()
	}
	s.seq++
	if s.recent = append(s.recent, c); len(s.recent) > 5 {
		s.recent = s.recent[1:]
	}
	return c
}

func (p *pair) append(s *slot, c *schema.Commit) {
	level := schema.AckLevel(p.r.IntN(3))
	same(p, fmt.Sprintf("append %d/%d/%d", c.Partition, c.Epoch, c.Seq), func(x, y bool) bool { return x == y },
		func(st schema.Store) (bool, error) { return true, st.Append(p.Context(), c, level) })
}

func (p *pair) topic() schema.TopicID { return schema.TopicID(1 + p.r.IntN(4)) }

func (p *pair) offset(s *slot) schema.Offset { return schema.Offset(p.r.Int64N(int64(s.next) + 10)) }

func (p *pair) frames(s *slot) {
	t, from := p.topic(), p.offset(s)
	to := from + schema.Offset(p.r.IntN(200))
	same(p, fmt.Sprintf("frames of %d in %d..%d", t, from, to),
		func(x, y []schema.Frame) bool { return slices.EqualFunc(x, y, equalFrames) },
		func(st schema.Store) ([]schema.Frame, error) {
			return readAll(p.TB, st, t, s.p, from, to, 1<<12), nil
		})
}

type located struct {
	f  schema.Frame
	ok bool
}

func (p *pair) locate(s *slot) {
	o := p.offset(s)
	same(p, fmt.Sprintf("locate %d", o), func(x, y located) bool { return x.ok == y.ok && (!x.ok || equalFrames(x.f, y.f)) },
		func(st schema.Store) (l located, err error) {
			l.f, l.ok, err = st.Locate(p.Context(), s.p, o)
			return l, err
		})
}

type sought struct {
	o  schema.Offset
	ok bool
}

func (p *pair) seek(s *slot) {
	t, when := p.topic(), at(p.r.IntN(s.sec+2))
	equal := func(x, y sought) bool { return x.ok == y.ok && (!x.ok || x.o == y.o) }
	same(p, fmt.Sprintf("seek %d to %v", t, when), equal, func(st schema.Store) (x sought, err error) {
		x.o, x.ok, err = st.SeekTime(p.Context(), t, s.p, when)
		return x, err
	})
	same(p, fmt.Sprintf("earliest of %d", t), equal, func(st schema.Store) (x sought, err error) {
		x.o, x.ok, err = st.Earliest(p.Context(), t, s.p)
		return x, err
	})
}

func (p *pair) commits(s *slot) {
	first := schema.Seq(1 + p.r.Int64N(int64(s.seq)))
	limit := 1 + p.r.IntN(20)
	same(p, fmt.Sprintf("commits of %d/%d from %d", s.p, s.epoch, first),
		func(x, y []schema.Commit) bool { return slices.EqualFunc(x, y, equalCommits) },
		func(st schema.Store) ([]schema.Commit, error) {
			return st.Commits(p.Context(), s.p, s.epoch, first, limit)
		})
	same(p, fmt.Sprintf("kept of %d/%d from %d", s.p, s.epoch, first),
		func(x, y []schema.Commit) bool { return slices.EqualFunc(x, y, equalCommits) },
		func(st schema.Store) ([]schema.Commit, error) {
			return st.Kept(p.Context(), s.p, s.epoch, first, first+schema.Seq(limit)-1)
		})
	same(p, "last commit", equalCommits, func(st schema.Store) (schema.Commit, error) {
		c, _, err := st.LastCommit(p.Context(), s.p, s.epoch)
		return c, err
	})
}

// retain forgets; whether a commit without frames is forgotten with them, a store may choose.
func (p *pair) retain(s *slot) {
	t, before, bytesMax := p.topic(), time.Time{}, int64(0)
	if p.r.IntN(2) == 0 {
		before = at(p.r.IntN(s.sec + 1))
	} else {
		bytesMax = 1 + p.r.Int64N(20000)
	}
	s.forgotten, s.recent = true, nil
	same(p, fmt.Sprintf("retain %d before %v bytes %d", t, before, bytesMax), slices.Equal[[]schema.OffsetRange],
		func(st schema.Store) ([]schema.OffsetRange, error) {
			return retain(p.TB, st, t, s.p, before, bytesMax), nil
		})
}

func (p *pair) cursors(s *slot) {
	row := schema.CursorRow{Subscription: schema.SubscriptionID(1 + p.r.IntN(5)), Partition: s.p,
		Epoch: schema.Epoch(1 + p.r.IntN(4)), State: fmt.Appendf(nil, "%d", p.step)}
	drop, sync := p.r.IntN(4) == 0, p.r.IntN(4) == 0
	same(p, "cursors", func(x, y []schema.CursorRow) bool { return slices.EqualFunc(x, y, equalCursors) },
		func(st schema.Store) (rows []schema.CursorRow, err error) {
			if drop {
				err = st.DropCursors(p.Context(), s.p, row.Subscription-1, row.Epoch-1)
			} else {
				err = st.SaveCursors(p.Context(), []schema.CursorRow{row}, sync)
			}
			if err != nil {
				return nil, err
			}
			rows, err = st.LoadCursors(p.Context(), s.p)
			slices.SortFunc(rows, func(a, b schema.CursorRow) int {
				return cmp.Or(cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Epoch, b.Epoch))
			})
			return rows, err
		})
}

type swapAnswer struct {
	swapped bool
	current schema.Partition
}

func (p *pair) swap(s *slot) {
	next := schema.Partition{ID: s.p, Version: s.version + p.r.Int64N(3), Attempt: fmt.Sprint(p.step), Reserved: s.next}
	next.Version = max(next.Version, 1)
	same(p, fmt.Sprintf("swap to version %d", next.Version),
		func(x, y swapAnswer) bool { return x.swapped == y.swapped && equalPartitions(x.current, y.current) },
		func(st schema.Store) (x swapAnswer, err error) {
			x.swapped, x.current, err = swap(p.Context(), st, next)
			if err == nil {
				s.version = x.current.Version
			}
			return x, err
		})
}

// metadata appends at each store's own head: a shared store has a past.
func (p *pair) metadata() {
	stale := p.step > 0 && p.r.IntN(4) == 0 && p.changed
	p.changed = true
	same(p, "metadata", func(x, y bool) bool { return x == y }, func(st schema.Store) (bool, error) {
		head, err := st.Head(p.Context())
		if err != nil {
			return false, err
		}
		if stale && head > 0 {
			return appendChange(p.Context(), st, change(head, fmt.Sprint("stale ", p.step)))
		}
		ok, err := appendChange(p.Context(), st, change(head+1, fmt.Sprint(p.step)))
		if err != nil || !ok {
			return ok, err
		}
		cs, err := st.Changes(p.Context(), head, 10)
		return len(cs) == 1 && cs[0].Revision == head+1, err
	})
}
