package pebble

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/handfast-mq/handfast/schema"
)

// crashes is a store that loses its power again and again, and what it must still hold.
type crashes struct {
	*testing.T
	r  *rand.Rand
	fs *vfs.MemFS
	s  *Store

	mu        sync.Mutex
	next      int
	acked     map[int]bool // at quorum
	forgotten [3]int       // by topic: frames of commits below it may be gone
}

// TestPowerCuts proves that what was acknowledged at quorum is there after any power cut, that nothing is there that
// was never sent, and that forgetting, moving and reusing of segments keep it so.
func TestPowerCuts(t *testing.T) {
	for seed := range uint64(6) {
		c := &crashes{T: t, r: rand.New(rand.NewPCG(seed, 1)), fs: vfs.NewCrashableMem(), next: 1, acked: map[int]bool{}}
		c.open()
		for range 6 {
			c.life()
		}
		if err := c.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// memory is a file system without MemFS.ReuseForWrite, which takes a lock twice and so hangs when a clone is made meanwhile.
type memory struct{ *vfs.MemFS }

func (m memory) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.Rename(from, to); err != nil {
		return nil, err
	}
	return m.OpenReadWrite(to, c)
}

func (c *crashes) open() {
	c.Helper()
	s, err := Open("/data", Options{FS: memory{c.fs}, SegmentBytes: 8 << 10, Logger: quiet()})
	if err != nil {
		c.Fatalf("open after a power cut: %v", err)
	}
	c.s = s
}

// life works side by side until the power is cut, and checks what the next start finds.
func (c *crashes) life() {
	cut := c.r.IntN(120)
	percent := []int{0, 0, 50, 100}[c.r.IntN(4)]
	rng := rand.New(rand.NewPCG(c.r.Uint64(), 2))
	var wg sync.WaitGroup
	reached := make(chan struct{})
	stop := make(chan struct{})
	for w := range 4 {
		wg.Go(func() { c.write(w, cut, reached, stop) })
	}
	wg.Go(func() { c.forget(stop) })
	<-reached
	// What was acknowledged before the cut must be in the clone, whatever comes after.
	c.mu.Lock()
	must := make(map[int]bool, len(c.acked))
	for n := range c.acked {
		must[n] = true
	}
	c.mu.Unlock()
	clone := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	close(stop)
	wg.Wait()
	if err := c.s.Close(); err != nil {
		c.Fatal(err)
	}
	c.fs, c.acked = clone, must
	c.open()
	c.check()
}

// write appends until stop, and tells when the lives' share of commits is reached.
func (c *crashes) write(w, cut int, reached, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if w == 0 && i == cut/4 {
			close(reached)
			<-stop // the clone is taken while the others write on
			return
		}
		c.mu.Lock()
		n := c.next
		c.next++
		c.mu.Unlock()
		level := schema.AckQuorum
		if n%5 == 0 {
			level = schema.AckOne
		}
		if err := c.s.Append(c.Context(), commitN(n), level); err != nil {
			c.Errorf("append %d: %v", n, err)
			return
		}
		c.mu.Lock()
		if level == schema.AckQuorum {
			c.acked[n] = true
		}
		c.mu.Unlock()
	}
}

// forget keeps the last commits of topic 1 and a few more of topic 2, so that segments become sparse and then die.
func (c *crashes) forget(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		for topic, keep := range []int{1: 20, 2: 120} {
			c.mu.Lock()
			n := c.next - keep
			if topic == 0 || n < 1 {
				c.mu.Unlock()
				continue
			}
			c.forgotten[topic] = max(c.forgotten[topic], n)
			c.mu.Unlock()
			before := start.Add(time.Duration(n) * time.Second)
			if _, _, err := c.s.Retain(c.Context(), schema.TopicID(topic), 1, before, 0, schema.OffsetMax); err != nil {
				c.Errorf("retain: %v", err)
				return
			}
		}
	}
}

// check looks for every commit that was ever sent.
func (c *crashes) check() {
	c.Helper()
	for n := 1; n < c.next; n++ {
		for _, want := range commitN(n).Frames {
			got, ok, err := c.s.Locate(c.Context(), 1, want.First)
			switch {
			case err != nil:
				c.Fatalf("commit %d: %v", n, err)
			case ok && (got.Topic != want.Topic || !bytes.Equal(got.Blob, want.Blob)):
				c.Fatalf("commit %d has other bytes than were sent", n)
			case !ok && c.acked[n] && n >= c.forgotten[want.Topic]:
				c.Fatalf("commit %d of topic %d was acknowledged and is lost", n, want.Topic)
			}
		}
	}
	for topic := schema.TopicID(1); topic <= 2; topic++ {
		if _, err := c.s.Frames(c.Context(), topic, 1, 0, schema.OffsetMax, 1<<30); err != nil {
			c.Fatalf("read topic %d: %v", topic, err)
		}
	}
	c.checkLive()
}

// checkLive compares the counters with the rows.
func (c *crashes) checkLive() {
	c.Helper()
	c.s.index.mu.Lock()
	defer c.s.index.mu.Unlock()
	live := map[uint64]int64{}
	err := scan(c.s.db, row(rowFrame), func(_, v []byte) (bool, error) {
		r, err := parseFrameRow(v)
		live[r.at.Segment] += r.cost()
		return true, err
	})
	if err != nil {
		c.Fatal(err)
	}
	for id, n := range c.s.index.live {
		if n != live[id] {
			c.Fatalf("segment %d has %d live bytes, counted %d", id, live[id], n)
		}
	}
}
