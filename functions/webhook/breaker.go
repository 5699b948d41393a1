package webhook

import (
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sony/gobreaker/v2"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// breakersMax bounds the endpoints that are remembered as failing. One that drops out begins anew.
	breakersMax = 16 << 10
	// breakerFailures in a row open a breaker: a few bad messages do not, a dead endpoint soon does.
	breakerFailures = 10
	// breakerPause is how long an open breaker waits until it lets one probe pass.
	breakerPause = 30 * time.Second
	// probePause is how long others wait while a probe is out.
	probePause = time.Second
)

var errExcluded = errors.New("neither success nor failure")

// breakers keeps one circuit breaker per subscription whose endpoint fails. Most endpoints work and have no entry: the
// first failure makes it, the first success drops it.
type breakers struct {
	failing *lru.Cache[schema.SubscriptionID, *breaker]
}

type breaker struct {
	cb *gobreaker.TwoStepCircuitBreaker[struct{}]

	mu       sync.Mutex
	openedAt time.Time
}

func newBreakers() *breakers {
	failing, err := lru.New[schema.SubscriptionID, *breaker](breakersMax)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &breakers{failing}
}

func newBreaker() *breaker {
	b := &breaker{}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     breakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errExcluded) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.mu.Lock()
				b.openedAt = time.Now()
				b.mu.Unlock()
			}
		},
	})
	return b
}

// allow asks whether a delivery may go out now. When it may, done must be called with how it ended; when it may not,
// wait says how long to hold it.
func (bs *breakers) allow(id schema.SubscriptionID) (done func(schema.Outcome), wait time.Duration) {
	b, ok := bs.failing.Get(id)
	if !ok {
		return func(o schema.Outcome) { bs.first(id, o) }, 0
	}
	report, err := b.cb.Allow()
	if err != nil {
		return nil, b.wait()
	}
	return func(o schema.Outcome) {
		report(verdict(o))
		if o == schema.Delivered && b.cb.State() == gobreaker.StateClosed {
			bs.failing.Remove(id)
		}
	}, 0
}

// first takes the outcome of a delivery that had no breaker yet.
func (bs *breakers) first(id schema.SubscriptionID, o schema.Outcome) {
	if o != schema.Failed {
		return
	}
	b := newBreaker()
	if old, ok, _ := bs.failing.PeekOrAdd(id, b); ok {
		b = old
	}
	if report, err := b.cb.Allow(); err == nil {
		report(verdict(o))
	}
}

// wait is the time until the next probe may go.
func (b *breaker) wait() time.Duration {
	if b.cb.State() != gobreaker.StateOpen {
		return probePause
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(probePause, time.Until(b.openedAt.Add(breakerPause)))
}

// verdict is an outcome as the breaker counts it: being asked to wait says nothing about an endpoint's health.
func verdict(o schema.Outcome) error {
	switch o {
	case schema.Delivered, schema.EndpointGone:
		return nil
	case schema.Failed:
		return errors.New("failed")
	}
	return errExcluded
}

// state names where a subscription's breaker stands: closed, half-open or open.
func (bs *breakers) state(id schema.SubscriptionID) string {
	if b, ok := bs.failing.Peek(id); ok {
		return b.cb.State().String()
	}
	return gobreaker.StateClosed.String()
}

// open counts the breakers that hold deliveries back.
func (bs *breakers) open() int {
	n := 0
	for _, b := range bs.failing.Values() {
		if b.cb.State() != gobreaker.StateClosed {
			n++
		}
	}
	return n
}
