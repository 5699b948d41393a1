// Package partitions is the heart of a node: it owns partitions, takes messages in and brings them to their subscribers.
//
// A message's way: Service.Publish chooses the partition and the node that owns it, owner forms commits and has them made
// durable by the store, dispatch reads them and hands them to pullers and invokers. Ownership itself (sessions, fences,
// takeover) is in owner and session.
package partitions

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/partitions/dispatch"
	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/peer"
	"github.com/handfast-mq/handfast/partitions/session"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
)

const (
	// requestTimeout bounds what the system does of its own accord on a client's behalf.
	requestTimeout = 15 * time.Second
	retainEvery    = 20 * time.Second
	tailBytesTotal = 32 << 20 // the newest messages of all partitions, in memory
	opensAtOnce    = 16

	// IdempotencyKeys is how many a node remembers where nothing else is said: some 110 MB.
	IdempotencyKeys = 1_000_000
)

// Config is what a service works with.
type Config struct {
	Store    schema.Store
	Catalog  *catalog.Catalog
	Cluster  *Cluster // nil = the only node, on a store that nobody else can open
	Invokers map[schema.TargetType]schema.Invoker
	Logger   *slog.Logger
	Registry prometheus.Registerer
	// IdempotencyKeys is how many the node remembers at most, at some 110 bytes of memory each; 0 = the constant of this name.
	IdempotencyKeys int
}

// Service is one node's part in the cluster. On the embedded store it owns every partition.
type Service struct {
	cfg     Config
	catalog *catalog.Catalog
	logger  *slog.Logger
	total   int
	local   *local
	owners  *owner.Metrics
	keys    owner.Budget
	turn    atomic.Int64
	tenure  atomic.Pointer[tenure]

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	// Of a cluster.
	members   *members
	routes    routes
	peers     peers
	moving    moves
	claims    chan struct{}
	handovers chan struct{}
	reconcile chan struct{}
	looked    atomic.Int64 // when the metadata and the routes were last read for no reason, in Unix nanoseconds
	fenced    sync.Map     // sessions that this node fenced
}

// Open begins to own partitions. On the embedded store it returns when all are open; in a cluster, when the node takes part.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, catalog: cfg.Catalog, logger: cfg.Logger, total: cfg.Catalog.Cluster().Partitions, owners: owner.NewMetrics(cfg.Registry)}
	s.keys.Max = int64(cmp.Or(cfg.IdempotencyKeys, IdempotencyKeys))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.local = &local{owners: map[schema.PartitionID]*owner.Owner{}, republish: s.PublishOwn, catalog: cfg.Catalog, free: s.free}
	s.local.dispatcher = dispatch.New(dispatch.Config{
		Log: cfg.Store, Cursors: cfg.Store, Attempts: cfg.Store, Invokers: cfg.Invokers,
		Fresh: func(ctx context.Context) bool { return s.now().fresh(ctx) }, DeadLetter: s.deadLetter, Change: s.changeSubscription, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	s.catalog.Watch(s.changed)
	start := s.openAlone
	if cfg.Cluster != nil {
		start = s.join
	}
	if err := start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.work.Go(s.retain)
	return s, nil
}

// openAlone takes all partitions. The only session is always live.
func (s *Service) openAlone(ctx context.Context) error {
	t := &tenure{id: schema.SessionID(uuid.NewString()), verifier: session.Standing{}, fresh: session.Standing{}.Fresh, end: func() {}}
	if err := s.cfg.Store.OpenSession(ctx, t.id); err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	s.tenure.Store(t)
	return s.openAll(ctx)
}

// join makes the node a member. It shows itself before it reads the metadata once more: who changes the metadata from then on waits for it.
func (s *Service) join(ctx context.Context) error {
	c := s.cfg.Cluster
	if c.Suspicion == 0 {
		c.Suspicion = suspicionDefault
	}
	t, err := s.openTenure(ctx)
	if err != nil {
		return err
	}
	s.tenure.Store(t)
	s.claims, s.handovers, s.reconcile = make(chan struct{}, claimsAtOnce), make(chan struct{}, handoversAtOnce), make(chan struct{}, 1)
	s.moving.busy = map[schema.PartitionID]bool{}
	s.routes.sessions = map[schema.PartitionID]schema.SessionID{}
	s.peers = peers{tls: c.TLS, of: map[string]*peer.Client{}}
	s.members = newMembers(s.cfg.Store, schema.Node{ID: c.Node, Session: t.id, Address: c.Address, Peer: c.Peer, Beat: time.Now().UnixNano()}, c.Suspicion, s.total)
	if err := s.members.beat(ctx, s.catalog.Revision()); err != nil {
		return fmt.Errorf("show this node to the others: %w", err)
	}
	if err := s.catalog.Sync(ctx); err != nil {
		return err
	}
	s.catalog.Barrier = s.barrier
	s.takePart()
	s.work.Go(s.runCluster)
	return nil
}

// Node returns this node as the others see it, for the peer server.
func (s *Service) Node() peer.Node { return s.local }

// now returns the session that this node lives in.
func (s *Service) now() *tenure { return s.tenure.Load() }

// Close hands over what there is to hand over, stops every delivery and every partition, and waits for what was begun. Messages that were
// accepted are safe at any time.
func (s *Service) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/2)
	defer cancel()
	if s.members != nil {
		s.leave(ctx)
	}
	var draining sync.WaitGroup
	for _, o := range s.local.all() {
		draining.Go(func() { o.Drain(ctx) })
	}
	draining.Wait()
	s.local.dispatcher.Close()
	s.cancel()
	s.moving.stop()
	s.work.Wait()
	s.peers.close()
	if t := s.now(); t != nil {
		t.end()
	}
}

// Ready tells whether requests should come here: every partition that this node should own is served.
func (s *Service) Ready() bool {
	for i := range s.total {
		p := schema.PartitionID(i)
		if s.members != nil && s.members.shouldOwn(p) != s.cfg.Cluster.Node {
			continue
		}
		if o, err := s.local.owner(p); err != nil || o.Err() != nil {
			return false
		}
	}
	return true
}

func (s *Service) openAll(ctx context.Context) error {
	var opening sync.WaitGroup
	slots := make(chan struct{}, opensAtOnce)
	failed := make(chan error, s.total)
	for p := range s.total {
		opening.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.openNow(ctx, schema.PartitionID(p)); err != nil {
				failed <- fmt.Errorf("open partition %d: %w", p, err)
			}
		})
	}
	opening.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// openNow takes one partition over as its row is now.
func (s *Service) openNow(ctx context.Context, p schema.PartitionID) error {
	row, err := s.cfg.Store.Partition(ctx, p)
	if err != nil {
		return fmt.Errorf("read partition row: %w", err)
	}
	return s.open(ctx, row)
}

// open takes one partition over, whose row was just read, and serves it until the owner ends.
func (s *Service) open(ctx context.Context, row schema.Partition) error {
	t, p := s.now(), row.ID
	o, err := owner.Open(ctx, owner.Config{
		Row: row, Log: s.cfg.Store, Ownership: s.cfg.Store, Session: t.id, Verifier: t.verifier,
		Committed: s.local.dispatcher.Committed, TailBytes: max(tailBytesTotal/s.total, 256<<10), Keys: &s.keys, Logger: s.logger, Metrics: s.owners,
	})
	if err != nil {
		return err
	}
	if err := s.local.dispatcher.Attach(ctx, o, func() []*schema.Subscription { return s.catalog.PartitionSubscriptions(p) }); err != nil {
		s.local.dispatcher.Detach(ctx, o)
		o.Close()
		return err
	}
	s.local.set(o)
	s.routes.set(p, t.id)
	s.work.Go(func() { s.keep(o, t) })
	return nil
}

// keep waits for the end of an ownership, or of the session that it hangs on: one that was opened while the session ended would find out
// with its first commit alone, and nobody sends any to a session that is gone. Alone, the node takes the partition again; in a cluster, the
// ring decides. When the node stops, it is closed here, however late it was opened.
func (s *Service) keep(o *owner.Owner, t *tenure) {
	select {
	case <-s.ctx.Done():
		o.Close()
		return
	case <-o.Done():
	case <-t.done:
	}
	s.drop(o)
	if s.members != nil {
		s.wakeCluster()
		return
	}
	p := o.Partition()
	for pause := 100 * time.Millisecond; s.ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		err := s.openNow(s.ctx, p)
		if err == nil {
			s.logger.Info("the partition is served again under a new epoch", "partition", p)
			return
		}
		s.logger.Error("the partition cannot be served", "partition", p, "err", err)
		select {
		case <-s.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// wakeCluster has the ring looked at now.
func (s *Service) wakeCluster() {
	select {
	case s.reconcile <- struct{}{}:
	default:
	}
}

// free notes that a partition has no owner, and takes it when it should be this node's.
func (s *Service) free(p schema.PartitionID) {
	if s.members == nil || int(p) >= s.total {
		return
	}
	s.routes.set(p, "")
	if s.members.shouldOwn(p) == s.cfg.Cluster.Node && !s.local.owns(p) {
		s.moving.start(p, s.claims, func() { s.claim(p) })
		return
	}
	s.wakeCluster() // the ring is older than the one by which the partition was let go
}

// nodeOf finds the node that owns a partition.
func (s *Service) nodeOf(p schema.PartitionID) (peer.Node, error) {
	if s.members == nil || s.local.owns(p) {
		return s.local, nil
	}
	n, alive := s.members.nodeOf(s.routes.session(p))
	if !alive || n.ID == s.cfg.Cluster.Node {
		return nil, schema.Errorf(schema.NotOwner, "partition %d has no owner at this moment", p).Retry(time.Second)
	}
	return s.peers.at(n.Peer)
}

// lookAround reads again who owns what, for somebody who was sent to the wrong node.
func (s *Service) lookAround(ctx context.Context) {
	if s.members == nil || !s.routes.stale() {
		return
	}
	if err := s.routes.refresh(ctx, s.cfg.Store); err != nil && ctx.Err() == nil {
		s.logger.Warn("the partition rows could not be read", "err", err)
	}
}

// nodesOf finds the nodes that own the partitions of a topic, each once. With an error, some are missing.
func (s *Service) nodesOf(t schema.TopicID) (nodes []peer.Node, err error) {
	topic, _, _ := s.catalog.Topic(t)
	if topic == nil {
		return nil, schema.Errorf(schema.NotFound, "there is no such topic")
	}
	for i := range topic.Partitions {
		n, failed := s.nodeOf(schema.TopicPartition(t, i, s.total))
		if failed != nil {
			err = failed
		} else if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes, err
}

// changed brings a change of the metadata into force on this node.
func (s *Service) changed(ctx context.Context, e catalog.Event) {
	switch e.Kind {
	case schema.KindSubscription:
		spec, _ := e.New.(*schema.Subscription)
		if spec == nil { // forgotten: it had ended before
			return
		}
		topic := s.catalog.AnyTopic(spec.Topic)
		uses := func(p schema.PartitionID) bool { return topic != nil && topic.Uses(p, s.total) }
		if err := s.local.dispatcher.Apply(ctx, spec, uses); err != nil {
			s.logger.Error("a changed subscription is not fully in force", "subscription", spec.ID, "err", err)
		}
	case schema.KindTopic:
		if t, _ := e.New.(*schema.Topic); t != nil && !t.DeletedAt.IsZero() {
			s.work.Go(func() { s.retainTopic(t) })
		}
	}
}

// changeSubscription ends or pauses a subscription because of what its endpoint does.
func (s *Service) changeSubscription(ctx context.Context, id schema.SubscriptionID, state schema.State, reason string) error {
	var err error
	if state == schema.Ended {
		_, err = s.catalog.Unsubscribe(ctx, id, reason)
	} else {
		_, err = s.catalog.Pause(ctx, id, reason)
	}
	if schema.KindOf(err) == schema.Conflict { // another delivery was faster
		return nil
	}
	return err
}

// retain lets messages go that are past their topic's retention, from time to time.
func (s *Service) retain() {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		for _, t := range s.catalog.AllTopics() {
			s.retainTopic(t)
		}
		if err := s.catalog.Purge(s.ctx); err != nil && s.ctx.Err() == nil {
			s.logger.Warn("deleted topics could not be purged", "err", err)
		}
	}
}

func (s *Service) retainTopic(t *schema.Topic) {
	before, bytesMax := time.Now().Add(-t.RetentionTime), int64(0)
	if !t.DeletedAt.IsZero() {
		before = time.Now().Add(time.Hour) // all of it
	}
	if t.RetentionBytes > 0 {
		bytesMax = max(t.RetentionBytes/int64(t.Partitions), 1)
	}
	for i := range t.Partitions {
		o, err := s.local.owner(schema.TopicPartition(t.ID, i, s.total))
		if err != nil {
			continue
		}
		if err := s.local.dispatcher.Retain(o.Context(), o, t.ID, before, bytesMax); err != nil && o.Context().Err() == nil {
			s.logger.Warn("retention failed", "topic", t.ID, "partition", o.Partition(), "err", err)
		}
	}
}
