// Package partitions is the heart of a node: it owns partitions, takes messages in and brings them to their subscribers.
//
// A message's way: Service.Publish chooses the partition and the node that owns it, owner forms commits and has them made
// durable by the store, dispatch reads them and hands them to pullers and invokers. Ownership itself (sessions, fences,
// takeover) is in owner and session.
package partitions

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/partitions/dispatch"
	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
)

const (
	// requestTimeout bounds what the system does of its own accord on a client's behalf.
	requestTimeout = 15 * time.Second
	retainEvery    = 20 * time.Second
	tailBytesTotal = 32 << 20 // the newest messages of all partitions, in memory
	opensAtOnce    = 16
)

// Config is what a service works with.
type Config struct {
	Store    schema.Store
	Catalog  *catalog.Catalog
	Session  schema.SessionID
	Verifier owner.Verifier
	Invokers map[schema.TargetType]schema.Invoker
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Service is one node's part in the cluster. On the embedded store it owns every partition.
type Service struct {
	cfg     Config
	catalog *catalog.Catalog
	logger  *slog.Logger
	total   int
	local   *local
	owners  *owner.Metrics
	turn    atomic.Int64

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	opened atomic.Int64
}

// Open begins to own partitions. It returns when all of this node's are open.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, catalog: cfg.Catalog, logger: cfg.Logger, total: cfg.Catalog.Cluster().Partitions, owners: owner.NewMetrics(cfg.Registry)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.local = &local{owners: map[schema.PartitionID]*owner.Owner{}, republish: s.publishOne}
	s.local.dispatcher = dispatch.New(dispatch.Config{
		Log: cfg.Store, Cursors: cfg.Store, Attempts: cfg.Store, Invokers: cfg.Invokers,
		Live: s.live, DeadLetter: s.deadLetter, Change: s.changeSubscription, Logger: cfg.Logger, Registry: cfg.Registry,
	})
	s.catalog.Watch(s.changed)
	if err := s.openAll(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.work.Go(s.retain)
	return s, nil
}

// Close stops every delivery and every partition and waits for what was begun. Messages that were accepted are safe at any time.
func (s *Service) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var draining sync.WaitGroup
	for _, o := range s.local.all() {
		draining.Go(func() { o.Drain(ctx) })
	}
	draining.Wait()
	s.local.dispatcher.Close()
	s.cancel()
	for _, o := range s.local.all() {
		o.Close()
	}
	s.work.Wait()
}

// Ready tells whether every partition of this node is served.
func (s *Service) Ready() bool {
	owners := s.local.all()
	for _, o := range owners {
		if o.Err() != nil {
			return false
		}
	}
	return len(owners) == s.total
}

func (s *Service) live(ctx context.Context) bool {
	answer := make(chan bool, 1)
	s.cfg.Verifier.Verify(func(live bool) { answer <- live })
	select {
	case live := <-answer:
		return live
	case <-ctx.Done():
		return false
	}
}

func (s *Service) openAll(ctx context.Context) error {
	var opening sync.WaitGroup
	slots := make(chan struct{}, opensAtOnce)
	failed := make(chan error, s.total)
	for p := range s.total {
		opening.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := s.open(ctx, schema.PartitionID(p)); err != nil {
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

// open takes one partition over and serves it until the owner ends, and then takes it again.
func (s *Service) open(ctx context.Context, p schema.PartitionID) error {
	o, err := owner.Open(ctx, owner.Config{
		Partition: p, Log: s.cfg.Store, Ownership: s.cfg.Store, Session: s.cfg.Session, Verifier: s.cfg.Verifier,
		Committed: s.local.dispatcher.Committed, TailBytes: max(tailBytesTotal/s.total, 256<<10), Logger: s.logger, Metrics: s.owners,
	})
	if err != nil {
		return err
	}
	s.local.set(p, o)
	if err := s.local.dispatcher.Attach(ctx, o, s.catalog.PartitionSubscriptions(p)); err != nil {
		s.local.set(p, nil)
		o.Close()
		return err
	}
	s.work.Go(func() { s.keep(o) })
	return nil
}

// keep waits for the end of an ownership and takes the partition again under a new epoch.
func (s *Service) keep(o *owner.Owner) {
	select {
	case <-s.ctx.Done():
		return
	case <-o.Done():
	}
	p := o.Partition()
	s.local.set(p, nil)
	o.Close()
	s.local.dispatcher.Detach(s.ctx, p)
	for pause := 100 * time.Millisecond; s.ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		err := s.open(s.ctx, p)
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

// peerOf finds the node that owns a partition.
func (s *Service) peerOf(_ context.Context, p schema.PartitionID) (Peer, error) {
	return s.local, nil
}

// peersOf finds the nodes that own the partitions of a topic, each once.
func (s *Service) peersOf(ctx context.Context, t schema.TopicID) ([]Peer, error) {
	topic, _, _ := s.catalog.Topic(t)
	if topic == nil {
		return nil, schema.Errorf(schema.NotFound, "there is no such topic")
	}
	var peers []Peer
	for i := range topic.Partitions {
		peer, err := s.peerOf(ctx, schema.TopicPartition(t, i, s.total))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(peers, peer) {
			peers = append(peers, peer)
		}
	}
	return peers, nil
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
