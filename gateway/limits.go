package gateway

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"github.com/handfast-mq/handfast/schema"
)

var headerRateLimitPolicy, headerRateLimit = []byte("Ratelimit-Policy"), []byte("Ratelimit")

// limiters bounds the requests of each user, one second's worth of burst.
type limiters struct {
	rate   int
	policy []byte // the RateLimit-Policy field, which never changes
	mu     sync.RWMutex
	of     map[schema.UserID]*rate.Limiter
}

func newLimiters(perSecond int) *limiters {
	return &limiters{rate: perSecond, policy: fmt.Appendf(nil, `"user";q=%d;w=1`, perSecond), of: map[schema.UserID]*rate.Limiter{}}
}

func (l *limiters) take(c *fiber.Ctx, u schema.UserID) error {
	if l.rate == 0 {
		return nil
	}
	l.mu.RLock()
	limiter := l.of[u]
	l.mu.RUnlock()
	if limiter == nil {
		l.mu.Lock()
		if limiter = l.of[u]; limiter == nil {
			limiter = rate.NewLimiter(rate.Limit(l.rate), l.rate)
			l.of[u] = limiter
		}
		l.mu.Unlock()
	}
	now := time.Now()
	allowed := limiter.AllowN(now, 1)
	var field [32]byte
	left := append(strconv.AppendInt(append(field[:0], `"user";r=`...), int64(max(limiter.TokensAt(now), 0)), 10), ";t=1"...)
	h := &c.Response().Header
	h.SetCanonical(headerRateLimitPolicy, l.policy)
	h.SetCanonical(headerRateLimit, left)
	if !allowed {
		return schema.Errorf(schema.Busy, "more than %d requests a second", l.rate).Retry(time.Second)
	}
	return nil
}
