package dispatch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/filter"
)

const (
	concurrencyDefault = 16
	heldPause          = time.Second // between two tries of a subscriber that asked to wait without saying how long
	stopWait           = 2 * time.Second
	failingMax         = 72 * time.Hour // without one success, before the subscription is paused
)

// subscription is what one node does for one subscription: its feeds from the partitions that the node owns, and for push targets
// up to `concurrency` workers, which exist only while there is work.
type subscription struct {
	d     *Dispatcher
	id    schema.SubscriptionID
	topic schema.TopicID
	ctx   context.Context
	end   context.CancelFunc

	now     atomic.Pointer[settings]
	limiter *rate.Limiter

	mu        sync.Mutex
	feeds     []*feed
	turn      int
	workers   int // at work
	running   sync.WaitGroup
	lingering int           // workers that wait to be called
	calls     chan struct{} // as many as were called and have not heard it yet
	signal    bool          // something may have become ready since the workers last looked
	held      time.Time
	heldWake  *time.Timer
	pullers   []chan struct{}
}

// settings is a subscription as the metadata has it, with its filter compiled.
type settings struct {
	*schema.Subscription
	filter *filter.Filter
}

func newSubscription(d *Dispatcher, spec *schema.Subscription) *subscription {
	s := &subscription{d: d, id: spec.ID, topic: spec.Topic, limiter: rate.NewLimiter(rate.Inf, 1), calls: make(chan struct{}, schema.ConcurrencyMax)}
	s.ctx, s.end = context.WithCancel(d.ctx)
	s.set(spec)
	return s
}

func (s *subscription) set(spec *schema.Subscription) {
	f, err := filter.Compile(spec.Filter)
	if err != nil { // filters are checked when they come in
		s.d.cfg.Logger.Error("a stored filter does not compile; the subscription gets everything", "subscription", spec.ID, "err", err)
	}
	if r := spec.Target.Rate; r > 0 {
		s.limiter.SetLimit(rate.Limit(r))
	} else {
		s.limiter.SetLimit(rate.Inf)
	}
	s.now.Store(&settings{spec, f})
}

func (s *subscription) spec() *schema.Subscription { return s.now.Load().Subscription }

func (s *subscription) active() bool { return s.spec().State == schema.Active && s.ctx.Err() == nil }

// matches tells whether the subscription wants a message.
func (s *subscription) matches(m *schema.Message) bool {
	now := s.now.Load()
	return (m.Only == 0 || m.Only == s.id) && now.Accepts(m.Publisher) && now.filter.Match(m)
}

// wake looks for work: for a push target with one worker more, for a puller by waking one that waits.
func (s *subscription) wake() {
	spec := s.spec()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !spec.Target.Push() {
		if len(s.pullers) > 0 {
			close(s.pullers[0])
			s.pullers = s.pullers[1:]
		}
		return
	}
	s.signal = true
	limit := spec.Target.Concurrency
	if limit == 0 {
		limit = concurrencyDefault
	}
	if s.workers < limit && s.active() {
		s.start()
	}
}

// next takes messages from the feeds in turn. more tells that another look may find more.
func (s *subscription) next(ctx context.Context, n, bytesMax int, lease time.Duration) (f *feed, batch []schema.Delivery, more bool) {
	s.mu.Lock()
	feeds := slices.Clone(s.feeds)
	s.turn++
	turn := s.turn
	s.mu.Unlock()
	for i := range feeds {
		f = feeds[(turn+i)%len(feeds)]
		if batch = f.take(ctx, n, bytesMax, lease); len(batch) > 0 {
			return f, batch, f.more() || i < len(feeds)-1
		}
	}
	return nil, nil, false
}

// more tells whether the feed has, or may have, something ready.
func (f *feed) more() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ready) > 0 || f.mayRead()
}

// stop ends the subscription on this node. No delivery begins after it returned.
func (s *subscription) stop() {
	s.end()
	s.mu.Lock()
	feeds := s.feeds
	for _, p := range s.pullers {
		close(p)
	}
	s.pullers = nil
	if s.heldWake != nil {
		s.heldWake.Stop()
	}
	s.mu.Unlock()
	for _, f := range feeds {
		f.stop()
	}
	s.join()
}

// join waits until the workers have ended, though not for ever: what they had begun may take as long as an endpoint likes.
func (s *subscription) join() {
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopWait):
	}
}

func (s *subscription) attach(f *feed) {
	s.mu.Lock()
	s.feeds = append(s.feeds, f)
	s.mu.Unlock()
}

func (s *subscription) detach(f *feed) {
	s.mu.Lock()
	s.feeds = slices.DeleteFunc(slices.Clone(s.feeds), func(g *feed) bool { return g == f })
	s.mu.Unlock()
	f.stop()
}
