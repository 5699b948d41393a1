// Package dispatch brings committed messages to subscriptions: it reads them from the owners of this node, keeps
// what is outstanding, and settles them by what the subscribers say.
//
// Nothing here runs while nothing happens: an owner wakes the feeds of a topic that got messages, a wake starts workers for
// push targets or wakes a waiting puller, and both end when nothing is ready. A subscription's window, workers, holds and
// retries are its own, so a dead endpoint delays nobody else.
package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/schema"
)

// Config is what a dispatcher works with.
type Config struct {
	Log      schema.Log
	Cursors  schema.Cursors
	Attempts schema.Attempts
	Invokers map[schema.TargetType]schema.Invoker
	// Fresh tells, cheaply, whether the session was alive a moment ago. Without it no delivery begins.
	Fresh func(ctx context.Context) bool
	// DeadLetter stores a message that the subscription gives up. It returns nil when it is durable, or when there is
	// nowhere to store it by the subscription's own will.
	DeadLetter func(ctx context.Context, s *schema.Subscription, m *schema.Message, attempts int, reason string) error
	// Change sets a subscription's state in the metadata.
	Change   func(ctx context.Context, id schema.SubscriptionID, state schema.State, reason string) error
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Dispatcher serves the subscriptions of one node.
type Dispatcher struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	saver   *saver
	records *recorder
	metrics *metrics

	mu         sync.RWMutex
	partitions map[schema.PartitionID]*attached
	subs       map[schema.SubscriptionID]*subscription
}

// attached is a partition that this node owns.
type attached struct {
	owner  *owner.Owner
	feeds  map[schema.SubscriptionID]*feed
	topics map[schema.TopicID][]*feed
}

// New starts a dispatcher without partitions.
func New(cfg Config) *Dispatcher {
	d := &Dispatcher{cfg: cfg, partitions: map[schema.PartitionID]*attached{}, subs: map[schema.SubscriptionID]*subscription{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.metrics = newMetrics(cfg.Registry)
	d.saver = newSaver(cfg.Cursors, func(err error) {
		d.metrics.cursorErrors.Inc()
		cfg.Logger.Error("cursors could not be saved; they will be tried again", "err", err)
	})
	d.records = newRecorder(cfg.Attempts, d.metrics, cfg.Logger)
	d.work.Add(2)
	go func() { defer d.work.Done(); d.saver.run(d.ctx) }()
	go func() { defer d.work.Done(); d.records.run(d.ctx) }()
	return d
}

// Close stops every delivery, saves the cursors and waits for all that was started.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	subs := d.subs
	d.subs, d.partitions = map[schema.SubscriptionID]*subscription{}, map[schema.PartitionID]*attached{}
	d.mu.Unlock()
	var stopping sync.WaitGroup
	for _, s := range subs {
		stopping.Go(s.stop)
	}
	stopping.Wait()
	d.cancel()
	d.work.Wait()
}

// Committed wakes the feeds of a topic in a partition. It is the owner's Committed callback.
func (d *Dispatcher) Committed(p schema.PartitionID, t schema.TopicID) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	a := d.partitions[p]
	if a == nil {
		return
	}
	for _, f := range a.topics[t] {
		f.mu.Lock()
		f.behind, f.woken = true, true
		f.mu.Unlock()
		f.sub.wake()
	}
}

// Attach begins to serve a partition: it unites the cursors of earlier owners and opens a feed for each subscription that subs
// returns, which are those of the topics that use the partition and are not at their end. subs is asked after the partition can be found by
// Apply, so that no change falls in between.
func (d *Dispatcher) Attach(ctx context.Context, o *owner.Owner, subs func() []*schema.Subscription) error {
	p := o.Partition()
	cursors, err := d.loadCursors(ctx, p)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.partitions[p] = &attached{owner: o, feeds: map[schema.SubscriptionID]*feed{}, topics: map[schema.TopicID][]*feed{}}
	d.mu.Unlock()
	var rows []schema.CursorRow
	specs := subs()
	for _, spec := range specs {
		if spec.ActiveAt.IsZero() {
			continue
		}
		c := cursors[spec.ID]
		if c == nil || c.seeks < spec.Seeks {
			start, err := d.startOffset(ctx, o, spec, false)
			if err != nil {
				return err
			}
			c = newCursor(start, spec.Seeks)
		}
		f := d.open(o, spec, c)
		rows = append(rows, f.row())
	}
	if err := d.cfg.Cursors.SaveCursors(ctx, rows, true); err != nil {
		return fmt.Errorf("save united cursors: %w", err)
	}
	if err := d.cfg.Cursors.DropCursors(ctx, p, 0, o.Epoch()); err != nil {
		d.cfg.Logger.Warn("cursors of earlier owners stay", "partition", p, "err", err)
	}
	for _, spec := range specs {
		if s := d.subscription(spec.ID); s != nil {
			s.wake()
		}
	}
	return nil
}

func (d *Dispatcher) loadCursors(ctx context.Context, p schema.PartitionID) (map[schema.SubscriptionID]*cursor, error) {
	rows, err := d.cfg.Cursors.LoadCursors(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("load cursors: %w", err)
	}
	cursors := map[schema.SubscriptionID]*cursor{}
	for _, r := range rows {
		c, err := decodeCursor(r.State)
		if err != nil {
			return nil, fmt.Errorf("cursor of subscription %d in partition %d: %w", r.Subscription, p, err)
		}
		if before := cursors[r.Subscription]; before != nil {
			c = unite(before, c)
		}
		cursors[r.Subscription] = c
	}
	return cursors, nil
}

// open makes a feed and lets it be found.
func (d *Dispatcher) open(o *owner.Owner, spec *schema.Subscription, c *cursor) *feed {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.subs[spec.ID]
	if s == nil {
		s = newSubscription(d, spec)
		d.subs[spec.ID] = s
	}
	a := d.partitions[o.Partition()]
	if f := a.feeds[spec.ID]; f != nil {
		return f
	}
	f := newFeed(s, o, c)
	a.feeds[spec.ID] = f
	a.topics[spec.Topic] = append(a.topics[spec.Topic], f)
	s.attach(f)
	return f
}

// startOffset finds where a subscription begins in a partition. fresh tells that it becomes active at this moment.
func (d *Dispatcher) startOffset(ctx context.Context, o *owner.Owner, spec *schema.Subscription, fresh bool) (schema.Offset, error) {
	committed := o.Committed()
	var at schema.Offset
	var ok bool
	var err error
	switch spec.Start.Position {
	case "earliest":
		at, ok, err = d.cfg.Log.Earliest(ctx, spec.Topic, o.Partition())
	case "time", "message":
		at, ok, err = d.cfg.Log.SeekTime(ctx, spec.Topic, o.Partition(), spec.Start.Time)
		if spec.Start.Message.Partition() == o.Partition() && spec.Start.Message != 0 {
			at, ok, err = spec.Start.Message.Offset(), true, nil
		}
	default:
		if !fresh { // the node that should have noted the position went away before it could
			at, ok, err = d.cfg.Log.SeekTime(ctx, spec.Topic, o.Partition(), spec.ActiveAt)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("find where subscription %d starts: %w", spec.ID, err)
	}
	if !ok || at > committed {
		at = committed
	}
	return at, nil
}

// Detach stops serving a partition by an owner and saves its cursors.
func (d *Dispatcher) Detach(ctx context.Context, o *owner.Owner) {
	p := o.Partition()
	d.mu.Lock()
	a := d.partitions[p]
	if a == nil || a.owner != o {
		d.mu.Unlock()
		return
	}
	delete(d.partitions, p)
	d.mu.Unlock()
	for _, f := range a.feeds {
		f.sub.detach(f)
	}
	if err := d.saver.flush(ctx, true); err != nil {
		d.cfg.Logger.Warn("cursors were not saved at handover; some messages may come twice", "partition", p, "err", err)
	}
}

// Apply brings a changed subscription into force: after it returned, no delivery begins that the change forbids, and a subscription that became
// active has its starting position noted. uses tells whether a partition carries the subscription's topic.
func (d *Dispatcher) Apply(ctx context.Context, spec *schema.Subscription, uses func(schema.PartitionID) bool) error {
	s := d.subscription(spec.ID)
	if spec.State.Final() {
		d.drop(ctx, s, spec.ID)
		return nil
	}
	if spec.ActiveAt.IsZero() {
		return nil
	}
	if s != nil {
		before := s.spec()
		s.set(spec)
		if before.State == schema.Active && spec.State != schema.Active {
			s.pause()
		}
	}
	for _, o := range d.owners(uses) {
		if err := d.applyTo(ctx, o, spec); err != nil {
			return err
		}
	}
	if err := d.saver.flush(ctx, false); err != nil {
		return err
	}
	if s := d.subscription(spec.ID); s != nil {
		s.wake()
	}
	return nil
}

// pause waits until deliveries that had begun are over or given back.
func (s *subscription) pause() {
	s.mu.Lock()
	for _, p := range s.pullers {
		close(p)
	}
	s.pullers = nil
	s.mu.Unlock()
	s.join()
}

func (d *Dispatcher) applyTo(ctx context.Context, o *owner.Owner, spec *schema.Subscription) error {
	d.mu.RLock()
	var f *feed
	if a := d.partitions[o.Partition()]; a != nil {
		f = a.feeds[spec.ID]
	}
	d.mu.RUnlock()
	if f != nil && f.seeks() >= spec.Seeks {
		return nil
	}
	start, err := d.startOffset(ctx, o, spec, true)
	if err != nil {
		return err
	}
	if f != nil {
		f.reset(start, spec.Seeks)
		return nil
	}
	d.saver.mark(d.open(o, spec, newCursor(start, spec.Seeks)))
	return nil
}

func (f *feed) seeks() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursor.seeks
}

func (d *Dispatcher) owners(uses func(schema.PartitionID) bool) (owners []*owner.Owner) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for p, a := range d.partitions {
		if uses(p) {
			owners = append(owners, a.owner)
		}
	}
	return owners
}

// drop forgets a subscription that ended.
func (d *Dispatcher) drop(ctx context.Context, s *subscription, id schema.SubscriptionID) {
	if s == nil {
		return
	}
	s.stop()
	d.mu.Lock()
	delete(d.subs, id)
	for _, f := range s.feedsNow() {
		a := d.partitions[f.owner.Partition()]
		if a == nil {
			continue
		}
		delete(a.feeds, id)
		a.topics[s.topic] = without(a.topics[s.topic], f)
		if len(a.topics[s.topic]) == 0 {
			delete(a.topics, s.topic)
		}
	}
	d.mu.Unlock()
	for _, f := range s.feedsNow() {
		if err := d.cfg.Cursors.DropCursors(ctx, f.owner.Partition(), id, 0); err != nil {
			d.cfg.Logger.Warn("the cursor of an ended subscription stays", "subscription", id, "partition", f.owner.Partition(), "err", err)
		}
	}
}

func without(feeds []*feed, f *feed) []*feed {
	kept := make([]*feed, 0, len(feeds))
	for _, g := range feeds {
		if g != f {
			kept = append(kept, g)
		}
	}
	return kept
}

func (d *Dispatcher) subscription(id schema.SubscriptionID) *subscription {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.subs[id]
}

// Retain lets a topic's messages go that are past its retention, and tells the subscriptions that had not had them.
func (d *Dispatcher) Retain(ctx context.Context, o *owner.Owner, t schema.TopicID, before time.Time, bytesMax int64) error {
	upTo, err := o.Checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("note what is committed: %w", err)
	}
	for {
		gone, more, err := d.cfg.Log.Retain(ctx, t, o.Partition(), before, bytesMax, upTo)
		if err != nil || len(gone) == 0 {
			return err
		}
		d.mu.RLock()
		var feeds []*feed
		if a := d.partitions[o.Partition()]; a != nil {
			feeds = append(feeds, a.topics[t]...)
		}
		d.mu.RUnlock()
		for _, f := range feeds {
			f.forget(gone)
		}
		if !more || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
