package dispatch

import (
	"github.com/handfast-mq/handfast/schema"
)

// Standings tells where a message of a partition of this node stands with each subscription that is to get it.
func (d *Dispatcher) Standings(m *schema.Message) []schema.Standing {
	d.mu.RLock()
	var feeds []*feed
	if a := d.partitions[m.ID.Partition()]; a != nil {
		feeds = append(feeds, a.topics[m.Topic]...)
	}
	d.mu.RUnlock()
	out := make([]schema.Standing, 0, len(feeds))
	for _, f := range feeds {
		if s, ok := f.standing(m); ok {
			out = append(out, s)
		}
	}
	return out
}

func (f *feed) standing(m *schema.Message) (schema.Standing, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := m.ID.Offset()
	s := schema.Standing{Subscription: f.sub.id, State: schema.StandingPending}
	e := f.entries[o]
	switch {
	case o < f.cursor.start || !f.sub.matches(m):
		return s, false
	case f.cursor.redriven.Contains(uint64(o)):
		s.State = schema.StandingRedriven
	case f.cursor.dead.Contains(uint64(o)):
		s.State = schema.StandingDeadLettered
	case e != nil:
		s.Attempts = e.attempts
		if e.attempts > 0 {
			s.State = schema.StandingOutstanding
		}
	case o < f.cursor.floor, f.cursor.acked.Contains(uint64(o)):
		s.State = schema.StandingDelivered
	}
	return s, true
}

// Progress sums up the feeds of a subscription.
func (d *Dispatcher) Progress(id schema.SubscriptionID) schema.Progress {
	p := schema.Progress{CaughtUp: true}
	s := d.subscription(id)
	if s == nil {
		return p
	}
	for _, f := range s.feedsNow() {
		f.mu.Lock()
		p.Outstanding += len(f.entries)
		p.Lost += f.cursor.lost
		p.CaughtUp = p.CaughtUp && !f.behind && len(f.frames) == 0
		f.mu.Unlock()
	}
	return p
}
