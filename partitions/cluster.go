package partitions

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/peer"
	"github.com/handfast-mq/handfast/partitions/session"
	"github.com/handfast-mq/handfast/schema"
)

// Cluster says how a node takes part in a cluster of several.
type Cluster struct {
	Node    schema.NodeID // stable name of this node
	Address string        // of its API, for people
	Peer    string        // where the other nodes reach it
	TLS     *tls.Config   // of connections to other nodes; nil = in the clear
	// Suspicion is how long a node may be silent before its partitions are taken over. Shorter fails over faster and takes a pause
	// for a failure more often, which costs time and never messages. Default 3 s.
	Suspicion time.Duration
}

const (
	suspicionDefault = 3 * time.Second
	beatsPerSuspense = 10              // heartbeats within the suspicion time
	lookEvery        = 5 * time.Second // at what the heartbeats say has not changed
	claimsAtOnce     = 16              // takeovers after a failure: as many as the database likes
	handoversAtOnce  = 4               // of healthy partitions: few at a time, so that little waits
	settleDown       = 250 * time.Millisecond
)

// tenure is one session's time: what this node owns hangs on it.
type tenure struct {
	id       schema.SessionID
	verifier owner.Verifier
	fresh    func(ctx context.Context) bool
	done     <-chan struct{}
	end      func()
}

// openTenure takes a new session.
func (s *Service) openTenure(ctx context.Context) (*tenure, error) {
	live, err := session.Open(ctx, s.cfg.Store, s.logger)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return &tenure{id: live.ID, verifier: live, fresh: live.Fresh, done: live.Done(), end: live.Close}, nil
}

// runCluster keeps the node in the cluster: heartbeats, the ring, the metadata, and a new session when the former was fenced.
func (s *Service) runCluster() {
	every := s.cfg.Cluster.Suspicion / beatsPerSuspense
	beat := time.NewTicker(every)
	defer beat.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.now().done:
			s.renew()
		case <-beat.C:
		case <-s.reconcile:
		}
		s.takePart()
	}
}

// takePart writes the heartbeat, looks at the others and brings what this node owns in line with the ring. The metadata and who owns what
// are read when the others' heartbeats, or the ring, tell that they have changed, and now and then.
func (s *Service) takePart() {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Cluster.Suspicion)
	defer cancel()
	s.work.Go(func() { s.now().fresh(ctx) }) // an idle node finds out too that it was fenced: the session ends
	if err := s.members.beat(ctx, s.catalog.Revision()); err != nil {
		s.logger.Warn("the heartbeat could not be written", "err", err)
		return
	}
	changed, err := s.members.look(ctx)
	if err != nil {
		s.logger.Warn("the members could not be read", "err", err)
		return
	}
	if changed {
		s.logger.Info("the ring changed", "nodes", s.members.nodes())
	}
	again := time.Since(time.Unix(0, s.looked.Load())) > lookEvery
	if again {
		s.looked.Store(time.Now().UnixNano())
	}
	if again || s.members.applied() > s.catalog.Revision() {
		if err := s.catalog.CatchUp(ctx); err != nil {
			s.logger.Warn("the metadata could not be read", "err", err)
		}
	}
	if again || !s.settled() {
		if err := s.routes.refresh(ctx, s.cfg.Store); err != nil {
			s.logger.Warn("the partition rows could not be read", "err", err)
			return
		}
	}
	s.align()
}

// settled tells whether, as far as this node knows, every partition is where the ring wants it.
func (s *Service) settled() bool {
	for i := range s.total {
		p := schema.PartitionID(i)
		if n, alive := s.members.nodeOf(s.routes.session(p)); !alive || n.ID != s.members.shouldOwn(p) {
			return false
		}
	}
	return true
}

// renew drops what the fenced session owned and takes a new one.
func (s *Service) renew() {
	s.now().end()
	for _, o := range s.local.all() {
		s.drop(o)
	}
	for pause := 100 * time.Millisecond; s.ctx.Err() == nil; pause = min(2*pause, 2*time.Second) {
		t, err := s.openTenure(s.ctx)
		if err == nil {
			s.tenure.Store(t)
			s.members.change(func(n *schema.Node) { n.Session = t.id })
			s.logger.Warn("the node goes on in a new session", "session", t.id)
			return
		}
		s.logger.Error("no new session", "err", err)
		select {
		case <-s.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// align starts the claims and handovers that the ring asks for. What is under way already is left alone.
func (s *Service) align() {
	me := s.cfg.Cluster.Node
	for i := range s.total {
		p := schema.PartitionID(i)
		should := s.members.shouldOwn(p)
		owned := s.local.owns(p)
		switch {
		case should == me && !owned && s.claimable(p):
			s.moving.start(p, s.claims, func() { s.claim(p) })
		case should != me && should != "" && owned:
			s.moving.start(p, s.handovers, func() { s.handOver(p, should) })
		}
	}
}

// claimable tells from what was last read whether a claim has a chance: the partition is free, or its owner is gone.
func (s *Service) claimable(p schema.PartitionID) bool {
	holder := s.routes.session(p)
	if holder == "" || holder == s.now().id {
		return true
	}
	_, alive := s.members.nodeOf(holder)
	return !alive
}

// claim takes a partition that is free or whose owner is gone. A living owner hands over by itself.
func (s *Service) claim(p schema.PartitionID) {
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	row, err := s.cfg.Store.Partition(ctx, p)
	if err != nil {
		s.logger.Warn("a partition row could not be read", "partition", p, "err", err)
		return
	}
	if open, held := row.Open(); held && open.Session != s.now().id {
		alive, err := s.members.aliveNow(ctx, open.Session)
		if alive {
			if err != nil {
				s.logger.Warn("the members could not be read", "err", err)
			}
			return
		}
	}
	if err := s.open(ctx, row); err != nil && schema.KindOf(err) != schema.Conflict {
		s.logger.Warn("a partition could not be taken over", "partition", p, "err", err)
	}
}

// handOver lets a partition go to the node that should own it, if that one is alive.
func (s *Service) handOver(p schema.PartitionID, to schema.NodeID) {
	o, err := s.local.owner(p)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	o.Drain(ctx)
	s.drop(o)
	if err := o.Release(ctx); err != nil {
		s.logger.Warn("a partition could not be released", "partition", p, "err", err)
		return
	}
	s.routes.set(p, "")
	if next, err := s.peers.to(s.members, to); err == nil {
		if err := next.Claim(ctx, p); err != nil {
			s.logger.Debug("the next owner finds out by itself", "partition", p, "node", to, "err", err)
		}
	}
}

// drop stops serving a partition on this node.
func (s *Service) drop(o *owner.Owner) {
	s.local.unset(o)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), requestTimeout)
	defer cancel()
	s.local.dispatcher.Detach(ctx, o)
	o.Close()
}

// leave hands every partition over and takes this node's row away.
func (s *Service) leave(ctx context.Context) {
	s.members.change(func(n *schema.Node) { n.Draining = true })
	s.takePart()
	tick := time.NewTicker(settleDown / 5)
	defer tick.Stop()
	for len(s.local.all()) > 0 && len(s.members.nodes()) > 0 && ctx.Err() == nil {
		s.align()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	for _, o := range s.local.all() { // nobody is left to take them
		o.Drain(ctx)
		s.drop(o)
		if err := o.Release(ctx); err != nil {
			s.logger.Warn("a partition could not be released", "partition", o.Partition(), "err", err)
		}
	}
	if err := s.cfg.Store.RemoveNode(ctx, s.cfg.Cluster.Node); err != nil {
		s.logger.Warn("the node's row stays", "err", err)
	}
}

// barrier returns after every other living node has applied a revision, or was fenced because it is silent.
func (s *Service) barrier(ctx context.Context, r schema.Revision) error {
	if _, err := s.members.look(ctx); err != nil {
		return err
	}
	rows, alive := s.members.others()
	var pending sync.WaitGroup
	failed := make(chan error, len(rows))
	for i, n := range rows {
		if alive[i] || !s.silenced(n.Session) {
			pending.Go(func() { failed <- s.awaitNode(ctx, n, r) })
		}
	}
	pending.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// awaitNode waits until a node has applied a revision. One that stays silent is fenced: it can do nothing any more in its session.
func (s *Service) awaitNode(ctx context.Context, n schema.Node, r schema.Revision) error {
	for ctx.Err() == nil {
		if p, err := s.peers.at(n.Peer); err == nil {
			sync, cancel := context.WithTimeout(ctx, time.Second)
			err := p.Sync(sync, r)
			cancel()
			if err == nil {
				return nil
			}
		}
		alive, err := s.members.aliveNow(ctx, n.Session)
		if err != nil {
			return err
		}
		now, known := s.members.node(n.ID)
		switch {
		case !alive:
			if err := s.cfg.Store.Fence(ctx, n.Session); err != nil {
				return fmt.Errorf("fence node %s, which is silent: %w", n.ID, err)
			}
			s.silence(n.Session)
			return nil
		case known && now.Session == n.Session && now.Applied >= r:
			return nil
		case known && now.Session != n.Session: // it started anew meanwhile, and reads the metadata after it shows itself
			n = now
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := s.members.look(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// silenced tells whether this node has fenced a session.
func (s *Service) silenced(id schema.SessionID) bool {
	_, found := s.fenced.Load(id)
	return found
}

func (s *Service) silence(id schema.SessionID) { s.fenced.Store(id, true) }

// moves keeps one move per partition and bounds how many run.
type moves struct {
	mu      sync.Mutex
	busy    map[schema.PartitionID]bool
	stopped bool
	work    sync.WaitGroup
}

// stop starts nothing more and waits for what runs.
func (m *moves) stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.work.Wait()
}

// start runs a move unless the partition is being moved or all slots are taken.
func (m *moves) start(p schema.PartitionID, slots chan struct{}, move func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[p] || m.stopped {
		return
	}
	select {
	case slots <- struct{}{}:
	default:
		return
	}
	m.busy[p] = true
	m.work.Go(func() {
		defer func() {
			<-slots
			m.mu.Lock()
			delete(m.busy, p)
			m.mu.Unlock()
		}()
		move()
	})
}

// routes is who owns which partition, as far as this node knows. It may be stale: the owner itself has the last word.
type routes struct {
	mu       sync.Mutex
	sessions map[schema.PartitionID]schema.SessionID
	read     time.Time
}

func (r *routes) session(p schema.PartitionID) schema.SessionID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[p]
}

func (r *routes) set(p schema.PartitionID, s schema.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions != nil {
		r.sessions[p] = s
	}
}

func (r *routes) refresh(ctx context.Context, store schema.Ownership) error {
	rows, err := store.Partitions(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = time.Now()
	for _, row := range rows {
		open, _ := row.Open()
		r.sessions[row.ID] = open.Session
	}
	return nil
}

// stale tells whether the rows should be read again for somebody who was sent to the wrong node. Many ask at once after a move; one reads.
func (r *routes) stale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.read) < 20*time.Millisecond {
		return false
	}
	r.read = time.Now()
	return true
}

// peers keeps a client for each address.
type peers struct {
	tls *tls.Config
	mu  sync.Mutex
	of  map[string]*peer.Client
}

func (p *peers) at(address string) (*peer.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.of[address]; c != nil {
		return c, nil
	}
	if address == "" {
		return nil, schema.Errorf(schema.NotOwner, "the node has no peer address")
	}
	c, err := peer.Dial(address, p.tls)
	if err == nil {
		p.of[address] = c
	}
	return c, err
}

func (p *peers) to(m *members, id schema.NodeID) (*peer.Client, error) {
	n, known := m.node(id)
	if !known {
		return nil, schema.Errorf(schema.NotOwner, "node %s is not known", id)
	}
	return p.at(n.Peer)
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.of {
		c.Close()
	}
}
