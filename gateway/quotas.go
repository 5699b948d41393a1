package gateway

import (
	"math"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/handfast-mq/handfast/schema"
)

// quotasMax bounds the limiters that are kept. Why not fewer: a pair of user and topic that falls out begins with a full second again.
const quotasMax = 16 << 10

// quotas hold what is published against the limits that the policies set, with one second's worth of burst.
type quotas struct {
	of *lru.Cache[quota, *rate.Limiter]
}

type quota struct {
	user  schema.UserID
	topic schema.TopicID
	rate  float64 // a changed one begins anew
}

func newQuotas() *quotas {
	of, err := lru.New[quota, *rate.Limiter](quotasMax)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &quotas{of}
}

func (q *quotas) check(publisher schema.UserID, on onTopic, messages []schema.Publish) error {
	for i := range messages {
		if n := on.limits.ContentBytes; n > 0 && len(messages[i].Content) > n {
			return schema.Errorf(schema.TooLarge, "the policy allows %d bytes of content here", n)
		}
	}
	if on.limits.Rate == 0 {
		return nil
	}
	limiter := q.limiter(quota{publisher, on.ID, on.limits.Rate})
	if burst := limiter.Burst(); len(messages) > burst {
		return schema.Errorf(schema.TooLarge, "the policy allows %d messages at once here", burst)
	}
	if !limiter.AllowN(time.Now(), len(messages)) {
		return schema.Errorf(schema.Busy, "the policy allows %v messages a second here", on.limits.Rate).Retry(time.Second)
	}
	return nil
}

func (q *quotas) limiter(k quota) *rate.Limiter {
	if l, known := q.of.Get(k); known {
		return l
	}
	fresh := rate.NewLimiter(rate.Limit(k.rate), int(math.Ceil(k.rate)))
	if l, known, _ := q.of.PeekOrAdd(k, fresh); known {
		return l
	}
	return fresh
}
