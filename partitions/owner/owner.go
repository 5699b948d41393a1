// Package owner holds the one writer of a partition: it forms commits, has them made durable, and acknowledges
// them in order while its session lives.
//
// A batch waits in a bounded queue. While one commit is on its way the next one fills; it is sent when the former was
// acknowledged, or when it is full and few enough are in flight. One message alone is written at once, and under load the
// batches grow by themselves: producers that were answered together are expected back together.
package owner

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/handfast-mq/handfast/partitions/frame"
	"github.com/handfast-mq/handfast/schema"
)

const (
	commitBytesTarget = 256 << 10 // larger gains no throughput from disk or database and costs latency
	commitBytesMax    = 1 << 20   // what one database cell takes well
	commitsInFlight   = 4         // enough to keep a database with 5 ms answers busy
	queueBytesMax     = 8 << 20   // a second of a disk's bandwidth, shared by the partitions
	queueBatchesMax   = 8192
	gatherShare       = 8                    // of a commit's time, how long the next one waits for those who were in it
	gatherFrom        = 2 * time.Millisecond // commits that are faster wait for nobody
)

// Verifier checks that the node's session still lives.
type Verifier interface {
	// Verify calls done once, after a check of the session that began after the call. live is false when the session is
	// fenced or when it could not be found out.
	Verify(done func(live bool))
	// Live waits for such a check.
	Live(ctx context.Context) bool
}

// Config is what an owner works with.
type Config struct {
	Row       schema.Partition // of the partition to take over, as it was just read
	Log       schema.Log
	Ownership schema.Ownership
	Session   schema.SessionID
	Verifier  Verifier
	// Committed is called after messages of a topic became readable. It must not block.
	Committed    func(schema.PartitionID, schema.TopicID)
	Keys         *Budget       // of the node's partitions together
	TailBytes    int           // memory for the newest frames; default 1 MiB
	WriteTimeout time.Duration // how long a commit is tried before the epoch is abandoned; default 10 s
	Logger       *slog.Logger
	Metrics      *Metrics
}

// Owner is one node's ownership of one partition for one epoch. It ends by itself when a commit cannot be written in
// time or when the session is fenced; Done tells.
type Owner struct {
	cfg       Config
	partition schema.PartitionID
	ctx       context.Context
	end       context.CancelFunc
	loops     sync.WaitGroup

	epoch schema.EpochRow

	rowing sync.Mutex // one change of the partition row at a time

	mu       sync.Mutex
	row      schema.Partition // as this owner last wrote it
	work     sync.Cond        // something to commit, or an end
	queue    []*pending
	queued   int // bytes in queue
	writing  int // commits that are being written
	inFlight []*commit
	pipeline Pipeline
	tail     *tail
	took     time.Duration // by the last commit
	expected int           // batches that waited when it was answered, and those that were in it
	draining bool
	drained  bool  // every batch that was taken is answered
	err      error // why the owner ended; nil while it serves

	committed atomic.Int64 // offset after the last acknowledged message

	// Of the commit loop alone.
	next     schema.Offset
	reserved schema.Offset // offsets below it are this epoch's to give
	seq      schema.Seq
	time     time.Time
	window   *window
}

// pending is a batch that waits for its commit.
type pending struct {
	batch   *Batch
	results []schema.Published
	until   schema.Seq // the commit that its results wait for
	err     error
	done    chan struct{}
}

func (p *pending) finish(err error) {
	p.err = err
	close(p.done)
}

// Partition returns the slot that this owner holds.
func (o *Owner) Partition() schema.PartitionID { return o.partition }

// Epoch returns the epoch that this owner opened.
func (o *Owner) Epoch() schema.Epoch { return o.epoch.Epoch }

// Committed returns the offset after the last acknowledged message.
func (o *Owner) Committed() schema.Offset { return schema.Offset(o.committed.Load()) }

// Done is closed when the owner no longer serves.
func (o *Owner) Done() <-chan struct{} { return o.ctx.Done() }

// Live waits for a check, begun after the call, of the session that the ownership hangs on.
func (o *Owner) Live(ctx context.Context) bool { return o.cfg.Verifier.Live(ctx) }

// Context ends with the ownership.
func (o *Owner) Context() context.Context { return o.ctx }

// Err tells why the owner ended.
func (o *Owner) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Publish writes batches, in their order, and returns one result per record after all of them are durable. The batches must not be touched
// until Publish returned nil or an error other than Unknown; after Unknown they must not be used again.
func (o *Owner) Publish(ctx context.Context, batches ...*Batch) ([]schema.Published, error) {
	waiting := make([]*pending, len(batches))
	for i, b := range batches {
		waiting[i] = &pending{batch: b, done: make(chan struct{})}
	}
	if err := o.enqueue(waiting); err != nil {
		return nil, err
	}
	var results []schema.Published
	for _, p := range waiting {
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, unconfirmed(ctx.Err())
		}
		if p.err != nil {
			return nil, p.err
		}
		if results == nil {
			results = p.results
		} else {
			results = append(results, p.results...)
		}
	}
	return results, nil
}

func unconfirmed(why error) error {
	return schema.WrapError(schema.Unknown, why,
		"the message was not confirmed and may have been accepted: retry with the same idempotency key").Retry(time.Second)
}

func (o *Owner) enqueue(waiting []*pending) error {
	bytes := 0
	for _, p := range waiting {
		bytes += len(p.batch.Records)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil || o.draining:
		return notOwner(o.partition)
	case o.queued+bytes > queueBytesMax || len(o.queue)+len(waiting) > queueBatchesMax:
		o.cfg.Metrics.queueFull.Inc()
		return schema.Errorf(schema.Busy, "the partition's queue is full").Retry(time.Second)
	}
	o.queue = append(o.queue, waiting...)
	o.queued += bytes
	if o.ready() {
		o.work.Signal()
	}
	return nil
}

func notOwner(p schema.PartitionID) error {
	return schema.Errorf(schema.NotOwner, "partition %d moved to another node", p).Retry(time.Second)
}

// run is the commit loop.
func (o *Owner) run() {
	defer o.loops.Done()
	defer o.window.close()
	for {
		batches, ok := o.nextBatches()
		if !ok {
			return
		}
		o.commit(batches)
	}
}

// ready tells whether a commit should be formed now. o.mu is held.
func (o *Owner) ready() bool {
	switch {
	case len(o.queue) == 0:
		return false
	case len(o.inFlight) == 0:
		return true
	}
	return o.queued >= commitBytesTarget && o.writing < commitsInFlight
}

// nextBatches waits for batches and takes as many as one commit holds. ok is false when the owner ended.
func (o *Owner) nextBatches() (taken []*pending, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && !o.ready() {
		o.work.Wait()
	}
	o.gather()
	if o.err != nil {
		return nil, false
	}
	n, bytes := 0, 0
	for n < len(o.queue) {
		size := len(o.queue[n].batch.Records)
		if n > 0 && (bytes >= commitBytesTarget || bytes+size > commitBytesMax) {
			break
		}
		bytes += size
		n++
	}
	taken = append(taken, o.queue[:n]...)
	rest := copy(o.queue, o.queue[n:])
	clear(o.queue[rest:])
	o.queue = o.queue[:rest]
	o.queued -= bytes
	return taken, true
}

// gather lets requests that are on their way get into the same commit. Where processors are short, one turn of the scheduler doubles its
// size. Where a commit takes long, as it does with a database, the first producer who is back after an answer would get a commit of its own
// and all the others would wait for it: so a small share of that time is waited until as many are back. o.mu is held.
func (o *Owner) gather() {
	if o.took < gatherFrom {
		if o.queued < commitBytesTarget {
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		}
		return
	}
	over := false
	timer := time.AfterFunc(o.took/gatherShare, func() {
		o.mu.Lock()
		over = true
		o.mu.Unlock()
		o.work.Signal()
	})
	defer timer.Stop()
	for o.err == nil && !over && len(o.queue) < o.expected && o.queued < commitBytesTarget {
		o.work.Wait()
	}
}

// Read returns frames of a topic from an offset on, up to bytesMax of blob, and the offset to go on from. When next is
// from, the topic has nothing more to read for now. Nothing that is not committed is ever returned.
func (o *Owner) Read(ctx context.Context, t schema.TopicID, from schema.Offset, bytesMax int) (frames []schema.Frame, next schema.Offset, err error) {
	o.mu.Lock()
	committed := o.Committed()
	if from >= o.tail.start {
		frames = o.tail.read(t, from, bytesMax)
	}
	to := min(o.tail.start, committed)
	epochs := o.row.Epochs
	o.mu.Unlock()
	if from >= to {
		return frames, after(frames, max(from, committed)), nil
	}
	frames, err = o.cfg.Log.Frames(ctx, t, o.partition, from, to, bytesMax)
	if err != nil {
		return nil, from, err
	}
	next = after(frames, to)
	frames = keepCommitted(frames, epochs)
	for i := range frames {
		if err := frame.Check(frames[i].Blob); err != nil {
			return nil, from, schema.WrapError(schema.Internal, err, "stored messages are damaged")
		}
	}
	return frames, next, nil
}

// Message returns one committed message; ok is false when there is none of this offset (any more).
func (o *Owner) Message(ctx context.Context, at schema.Offset) (m schema.Message, ok bool, err error) {
	o.mu.Lock()
	epochs := o.row.Epochs
	o.mu.Unlock()
	if at >= o.Committed() || !Committed(epochs, at) {
		return m, false, nil
	}
	f, ok, err := o.cfg.Log.Locate(ctx, o.partition, at)
	if err != nil || !ok {
		return m, false, err
	}
	if err := frame.Check(f.Blob); err != nil {
		return m, false, schema.WrapError(schema.Internal, err, "stored messages are damaged")
	}
	r := frame.Read(&f)
	r.Skip(at)
	return m, r.Next(o.partition, &m), r.Err()
}

func after(frames []schema.Frame, none schema.Offset) schema.Offset {
	if n := len(frames); n > 0 {
		return frames[n-1].End()
	}
	return none
}

// keepCommitted leaves out frames that lie past the sealed end of their epoch: they were never acknowledged.
func keepCommitted(frames []schema.Frame, epochs []schema.EpochRow) []schema.Frame {
	kept := frames[:0]
	for _, f := range frames {
		if Committed(epochs, f.First) {
			kept = append(kept, f)
		}
	}
	return kept
}

// Committed tells whether an offset lies within an epoch, and not between the sealed end of one and the start of the next. The
// oldest epochs may be missing: what lies before the first one counts as committed.
func Committed(epochs []schema.EpochRow, o schema.Offset) bool {
	for i := len(epochs) - 1; i >= 0; i-- {
		if e := epochs[i]; o >= e.Start {
			return !e.Sealed || o < e.End
		}
	}
	return true
}

// Drain refuses new batches and waits until those that wait are answered.
func (o *Owner) Drain(ctx context.Context) {
	o.mu.Lock()
	o.draining = true
	o.mu.Unlock()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		o.mu.Lock()
		o.drained = len(o.queue) == 0 && len(o.inFlight) == 0 && o.err == nil
		idle := o.drained || o.err != nil
		o.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close ends the ownership without sealing it and waits for everything that the owner started.
func (o *Owner) Close() {
	o.fail(notOwner(o.partition))
	o.loops.Wait()
}

// fail ends the ownership: what waits in the queue was not written, what is in flight may have been.
func (o *Owner) fail(reason error) {
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return
	}
	o.err = reason
	queue, flying := o.queue, o.inFlight
	o.queue, o.inFlight, o.queued = nil, nil, 0
	o.work.Broadcast()
	o.mu.Unlock()
	o.end()
	for _, p := range queue {
		p.finish(notOwner(o.partition))
	}
	unknown := unconfirmed(reason)
	for _, c := range flying {
		for _, p := range c.waiting {
			p.finish(unknown)
		}
	}
}
