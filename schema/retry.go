package schema

import (
	"math/rand/v2"
	"time"
)

// DefaultRetrySchedule is the example of the Standard Webhooks specification: ten attempts over about 75 hours.
// Entry n is the delay before attempt n+1.
var DefaultRetrySchedule = []time.Duration{0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
	5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}

// Schedule returns the subscription's retry delays.
func (s *Subscription) Schedule() []time.Duration {
	if len(s.RetrySchedule) > 0 {
		return s.RetrySchedule
	}
	return DefaultRetrySchedule
}

// Attempts returns how many attempts a message of this subscription has; 0 = no bound, the default of those who pull.
func (s *Subscription) Attempts() int {
	switch {
	case s.Guarantee == AtMostOnce:
		return 1
	case s.MaxAttempts > 0:
		return s.MaxAttempts
	case !s.Target.Push():
		return 0
	}
	return len(s.Schedule())
}

// RetryDelay returns how long to wait after failed attempt n (from 1), with up to 10 % of jitter added. The endpoint's own
// wish (0 = none) can lengthen it, up to RetryDelayMax, and never shortens it. Past the schedule's end its last entry repeats.
func (s *Subscription) RetryDelay(n int, wish time.Duration) time.Duration {
	schedule := s.Schedule()
	d := schedule[min(n, len(schedule)-1)]
	d = max(d, min(wish, RetryDelayMax))
	if tenth := int64(d / 10); tenth > 0 {
		d += time.Duration(rand.Int64N(tenth))
	}
	return d
}
