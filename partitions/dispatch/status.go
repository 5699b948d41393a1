package dispatch

import (
	"github.com/handfast-mq/handfast/schema"
)

// Standing is where one message stands with one subscription.
type Standing struct {
	Subscription schema.SubscriptionID
	State        StandingState
	Attempts     int // tries so far, of messages that are not settled
}

// StandingState is a word for it.
type StandingState string

const (
	StandingPending      StandingState = "pending"     // not handed out yet
	StandingOutstanding  StandingState = "outstanding" // handed out, or waiting for another try
	StandingDelivered    StandingState = "delivered"   // acknowledged
	StandingDeadLettered StandingState = "dead_lettered"
)

// Standings tells where a message of a partition of this node stands with each subscription that is to get it.
func (d *Dispatcher) Standings(m *schema.Message) []Standing {
	d.mu.RLock()
	var feeds []*feed
	if a := d.partitions[m.ID.Partition()]; a != nil {
		feeds = append(feeds, a.topics[m.Topic]...)
	}
	d.mu.RUnlock()
	out := make([]Standing, 0, len(feeds))
	for _, f := range feeds {
		if s, ok := f.standing(m); ok {
			out = append(out, s)
		}
	}
	return out
}

func (f *feed) standing(m *schema.Message) (Standing, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := m.ID.Offset()
	s := Standing{Subscription: f.sub.id, State: StandingPending}
	e := f.entries[o]
	switch {
	case o < f.cursor.start || !f.sub.matches(m):
		return s, false
	case f.cursor.dead.Contains(uint64(o)):
		s.State = StandingDeadLettered
	case e != nil:
		s.Attempts = e.attempts
		if e.attempts > 0 {
			s.State = StandingOutstanding
		}
	case o < f.cursor.floor, f.cursor.acked.Contains(uint64(o)):
		s.State = StandingDelivered
	}
	return s, true
}

// Progress is how far a subscription is in the partitions of this node.
type Progress struct {
	Outstanding int   // handed out or waiting
	Lost        int64 // taken by retention before they were delivered
	CaughtUp    bool  // nothing more to read
}

// Progress sums up the feeds of a subscription.
func (d *Dispatcher) Progress(id schema.SubscriptionID) Progress {
	p := Progress{CaughtUp: true}
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
