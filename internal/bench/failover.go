package bench

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
)

const (
	probeEvery = 10 * time.Millisecond
	movedMax   = 30 * time.Second // in which every moved partition must have answered
)

// probe publishes with one key, one message after the other, and notes what every acknowledged one took.
type probe struct {
	partition int64
	body      []byte
	mu        sync.Mutex
	first     time.Time     // when the first publish was acknowledged that began after since
	since     time.Time     // zero = not looking
	longest   time.Duration // of a publish, its repetitions included, since since
}

// run publishes at the nodes in turn until ctx ends; one that is refused is tried again.
func (p *probe) run(ctx context.Context, nodes []*server) {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	for turn := 0; ctx.Err() == nil; turn++ {
		begun := time.Now()
		for ctx.Err() == nil {
			n := nodes[turn%len(nodes)]
			req := n.request("POST", "/publish_message", p.body)
			err := n.do(req, resp)
			fasthttp.ReleaseRequest(req)
			if err == nil {
				p.note(begun)
				break
			}
			time.Sleep(probeEvery)
		}
		time.Sleep(probeEvery)
	}
}

func (p *probe) note(begun time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.since.IsZero() {
		return
	}
	p.longest = max(p.longest, now.Sub(begun))
	if p.first.IsZero() && begun.After(p.since) {
		p.first = now
	}
}

func (p *probe) look(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = since
}

func (p *probe) answered() (first time.Time, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first, p.longest
}

// probes makes one for each partition of a topic that has all of them.
func (c *cluster) probes(name string) ([]*probe, error) {
	topic, err := c.topic(name, clusterPartitions)
	if err != nil {
		return nil, err
	}
	of := map[int64]*probe{}
	for i := 0; len(of) < clusterPartitions; i++ {
		if i > 100*clusterPartitions {
			return nil, fmt.Errorf("%d keys reached %d of %d partitions", i, len(of), clusterPartitions)
		}
		message := map[string]any{"topic_id": topic, "key": fmt.Sprint("key", i), "message_content": "x"}
		var got struct {
			ID schema.MessageID `json:"message_id"`
		}
		if err := c.nodes[0].call("POST", "/publish_message", message, &got); err != nil {
			return nil, err
		}
		p := int64(got.ID.Partition())
		of[p] = &probe{partition: p, body: fmt.Appendf(nil, `{"topic_id":%d,"key":"key%d","message_content":"x"}`, topic, i)}
	}
	var all []*probe
	for _, p := range of {
		all = append(all, p)
	}
	return all, nil
}

// leave ends the last node with a signal while every partition is published to through the others, and returns how long it took until
// every partition that moved acknowledged a publish begun after that, and the longest publish of any of them. The node is started again.
func (c *cluster) leave(name string, signal syscall.Signal) (moved int, until, longest time.Duration, err error) {
	all, err := c.probes(name)
	if err != nil {
		return 0, 0, 0, err
	}
	last := len(c.nodes) - 1
	gone, others := c.nodes[last], c.nodes[:last]
	before, _, err := owners(others[0].target)
	if err != nil {
		return 0, 0, 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, p := range all {
		running.Go(func() { p.run(ctx, others) })
	}
	time.Sleep(c.Warm)
	since := time.Now()
	for _, p := range all {
		p.look(since)
	}
	gone.cmd.Process.Signal(signal)
	gone.cmd.Wait() // in order it ends when its partitions are handed over
	for _, p := range all {
		if before[p.partition] != fmt.Sprintf("n%d", last+1) {
			continue
		}
		moved++
		if err = p.settled(since, &until); err != nil {
			break
		}
	}
	cancel()
	running.Wait()
	for _, p := range all {
		_, most := p.answered()
		longest = max(longest, most)
	}
	if err == nil && moved == 0 {
		err = fmt.Errorf("the node that ended owned no partition")
	}
	if err != nil {
		return moved, until, longest, err
	}
	back, err := c.start(last)
	if err != nil {
		return moved, until, longest, err
	}
	c.nodes[last] = back
	return moved, until, longest, c.settle()
}

// settled waits for a partition's first answer and raises until to the time it came after since.
func (p *probe) settled(since time.Time, until *time.Duration) error {
	for deadline := time.Now().Add(movedMax); ; time.Sleep(probeEvery) {
		if first, _ := p.answered(); !first.IsZero() {
			*until = max(*until, first.Sub(since))
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("partition %d acknowledged nothing within %v", p.partition, movedMax)
		}
	}
}

// failover measures a crash.
func (c *cluster) failover() error {
	var took []float64
	for i := range c.Rounds {
		_, until, _, err := c.leave(fmt.Sprint("bench-crash-", i), syscall.SIGKILL)
		if err != nil {
			return err
		}
		took = append(took, until.Seconds())
	}
	c.row(Row{Work: "kill -9 of a node to a publish on every moved partition", Unit: "s", Goal: fmt.Sprintf("%v + 1 s", c.Suspicion), Handfast: median(took)})
	return nil
}

// handover measures an orderly end.
func (c *cluster) handover() error {
	var took []float64
	for i := range c.Rounds {
		_, _, longest, err := c.leave(fmt.Sprint("bench-handover-", i), syscall.SIGTERM)
		if err != nil {
			return err
		}
		took = append(took, longest.Seconds()*1000)
	}
	c.row(Row{Work: "SIGTERM of a node, longest publish with a key meanwhile", Unit: "ms", Goal: "500", Handfast: median(took)})
	return nil
}
