package partitions

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/partitions/ring"
	"github.com/handfast-mq/handfast/schema"
)

// members is this node's view of who is in the cluster: heartbeats that it sees change, by its own clock. It is for liveness alone; a wrong
// suspicion costs a takeover and never a message.
type members struct {
	store     schema.Ownership
	suspicion time.Duration
	total     int

	mu   sync.Mutex
	self schema.Node
	seen map[schema.NodeID]*sighting
	ring *ring.Ring
}

// sighting is when a node's row last changed.
type sighting struct {
	node schema.Node
	at   time.Time
}

func newMembers(store schema.Ownership, self schema.Node, suspicion time.Duration, total int) *members {
	return &members{store: store, suspicion: suspicion, total: total, self: self, seen: map[schema.NodeID]*sighting{}, ring: ring.New(nil, total)}
}

// beat writes this node's row.
func (m *members) beat(ctx context.Context, applied schema.Revision) error {
	m.mu.Lock()
	m.self.Beat++
	m.self.Applied = applied
	self := m.self
	m.mu.Unlock()
	return m.store.SaveNode(ctx, self)
}

// change changes what this node says of itself with its next heartbeat.
func (m *members) change(fn func(*schema.Node)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn(&m.self)
}

// look reads all rows and tells whether the ring changed.
func (m *members) look(ctx context.Context) (changed bool, err error) {
	rows, err := m.store.Nodes(ctx)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	present := map[schema.NodeID]bool{}
	for _, n := range rows {
		present[n.ID] = true
		s := m.seen[n.ID]
		switch {
		case s == nil:
			m.seen[n.ID] = &sighting{n, now}
		case s.node.Beat != n.Beat || s.node.Session != n.Session:
			s.node, s.at = n, now
		default:
			s.node = n
		}
	}
	for id := range m.seen {
		if !present[id] {
			delete(m.seen, id)
		}
	}
	live := m.eligible(now)
	if slices.Equal(live, m.ring.Nodes()) {
		return false, nil
	}
	m.ring = ring.New(live, m.total)
	return true, nil
}

// eligible returns the nodes that should own partitions, sorted. m.mu is held.
func (m *members) eligible(now time.Time) (live []schema.NodeID) {
	for id, s := range m.seen {
		draining := s.node.Draining
		if id == m.self.ID {
			draining = m.self.Draining
		}
		if !draining && (id == m.self.ID || now.Sub(s.at) < m.suspicion) {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	return live
}

// applied returns the highest revision of the metadata that a node says it has.
func (m *members) applied() (r schema.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seen {
		r = max(r, s.node.Applied)
	}
	return r
}

// shouldOwn returns the node that should own a partition.
func (m *members) shouldOwn(p schema.PartitionID) schema.NodeID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ring.Owner(p)
}

// nodes returns the nodes of the ring.
func (m *members) nodes() []schema.NodeID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ring.Nodes()
}

// node returns a node's row as it was last seen.
func (m *members) node(id schema.NodeID) (schema.Node, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[id]
	if s == nil {
		return schema.Node{}, false
	}
	return s.node, true
}

// nodeOf returns the node that lives in a session.
func (m *members) nodeOf(session schema.SessionID) (n schema.Node, alive bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seen {
		if s.node.Session == session {
			return s.node, time.Since(s.at) < m.suspicion
		}
	}
	return schema.Node{}, false
}

// aliveNow tells whether a session's node is alive, by rows that are read now: a node that came a moment ago is not taken for unknown.
func (m *members) aliveNow(ctx context.Context, session schema.SessionID) (bool, error) {
	if _, alive := m.nodeOf(session); alive {
		return true, nil
	}
	if _, err := m.look(ctx); err != nil {
		return true, err
	}
	_, alive := m.nodeOf(session)
	return alive, nil
}

// others returns the rows of all other nodes, and whether each is alive.
func (m *members) others() (rows []schema.Node, alive []bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.seen {
		if id != m.self.ID {
			rows, alive = append(rows, s.node), append(alive, time.Since(s.at) < m.suspicion)
		}
	}
	return rows, alive
}
