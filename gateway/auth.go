package gateway

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"

	"github.com/handfast-mq/handfast/schema"
)

const bearer = "Bearer "

// user authenticates a request and counts it against the user's rate.
func (g *Gateway) user(c *fiber.Ctx) (*schema.User, error) {
	header := c.Request().Header.Peek(fiber.HeaderAuthorization)
	if len(header) <= len(bearer) || string(header[:len(bearer)]) != bearer {
		return nil, schema.Errorf(schema.Unauthenticated, "an Authorization header with a bearer token is needed")
	}
	u := g.cfg.Catalog.Authenticate(header[len(bearer):], time.Now())
	if u == nil {
		return nil, schema.Errorf(schema.Unauthenticated, "the token is not valid")
	}
	return u, g.limits.take(c, u.ID)
}

// allow asks the policies. The principal, the request's address and size are filled in here.
func (g *Gateway) allow(ctx context.Context, c *fiber.Ctx, r *schema.AuthRequest) error {
	if d := g.decide(ctx, c, r); !d.Allow {
		return forbidden(d)
	}
	return nil
}

func (g *Gateway) decide(ctx context.Context, c *fiber.Ctx, r *schema.AuthRequest) schema.Decision {
	r.Address = c.Context().RemoteIP().String()
	r.Bytes = len(c.Request().Body())
	r.TLS = c.Context().IsTLS()
	r.At = time.Now()
	if r.As == 0 {
		r.As = r.Principal.ID
	}
	return g.cfg.Authorizer.Authorize(ctx, r)
}

func forbidden(d schema.Decision) error {
	reason := "the policy does not allow it"
	if len(d.Reasons) > 0 {
		reason = d.Reasons[0]
	}
	return schema.Errorf(schema.Forbidden, "%s", reason)
}

// topicFor finds a topic and asks whether the action is allowed on it. A topic that is not there and one that the user may not
// see answer alike.
func (g *Gateway) topicFor(ctx context.Context, c *fiber.Ctx, u *schema.User, as schema.UserID, action schema.Action, id schema.TopicID) (*schema.Topic, *schema.Pattern, error) {
	topic, rule, pattern := g.cfg.Catalog.Topic(id)
	if topic == nil {
		if g.cfg.Catalog.Sync(ctx) == nil { // maybe another node made it a moment ago
			topic, rule, pattern = g.cfg.Catalog.Topic(id)
		}
		if topic == nil {
			return nil, nil, errNoTopic
		}
	}
	if as == 0 {
		as = u.ID
	}
	r := schema.AuthRequest{Principal: u, Action: action, As: as, Topic: topic, Rule: rule, Granted: g.cfg.Catalog.Granted(id, as)}
	d := g.decide(ctx, c, &r)
	if d.Allow {
		return topic, pattern, nil
	}
	if !g.maySee(ctx, c, u, topic) {
		return nil, nil, errNoTopic
	}
	return nil, nil, forbidden(d)
}

// maySee asks whether a user may see a topic.
func (g *Gateway) maySee(ctx context.Context, c *fiber.Ctx, u *schema.User, t *schema.Topic) bool {
	return g.decide(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionReadTopic, Topic: t, Rule: g.cfg.Catalog.Rule(t.Rule),
		Granted: g.cfg.Catalog.Granted(t.ID, u.ID), Subscription: g.cfg.Catalog.SubscriptionOf(t.ID, u.ID)}).Allow
}

// visibleTopic finds a topic that the user may see.
func (g *Gateway) visibleTopic(ctx context.Context, c *fiber.Ctx, u *schema.User, id schema.TopicID) (*schema.Topic, error) {
	t, _, _ := g.cfg.Catalog.Topic(id)
	if t == nil || !g.maySee(ctx, c, u, t) {
		return nil, errNoTopic
	}
	return t, nil
}

var (
	errNoTopic        = schema.Errorf(schema.NotFound, "there is no such topic, or it is not yours to see")
	errNoSubscription = schema.Errorf(schema.NotFound, "there is no such subscription, or it is not yours to see")
	errNoMessage      = schema.Errorf(schema.NotFound, "there is no such message, or it is not yours to see")
	errNoUser         = schema.Errorf(schema.NotFound, "there is no such user, or it is not yours to see")
)

// subscriptionFor asks whether an action is allowed on a subscription. Without it, the subscription is as good as not there.
func (g *Gateway) subscriptionFor(ctx context.Context, c *fiber.Ctx, u *schema.User, action schema.Action, s *schema.Subscription) (*schema.Subscription, error) {
	if s == nil {
		return nil, errNoSubscription
	}
	topic := g.cfg.Catalog.AnyTopic(s.Topic)
	if topic == nil {
		return nil, errNoSubscription
	}
	r := schema.AuthRequest{Principal: u, Action: action, Topic: topic, Rule: g.cfg.Catalog.Rule(topic.Rule),
		Granted: g.cfg.Catalog.Granted(topic.ID, u.ID), Subscription: s}
	d := g.decide(ctx, c, &r)
	if d.Allow {
		return s, nil
	}
	if action != schema.ActionReadSub {
		see := r
		see.Action = schema.ActionReadSub
		if g.decide(ctx, c, &see).Allow {
			return nil, forbidden(d)
		}
	}
	return nil, errNoSubscription
}

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
