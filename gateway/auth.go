package gateway

import (
	"bytes"
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
)

var bearer = []byte("Bearer ")

// bearerToken finds the token of a request, nil when it has none. Of two Authorization headers nobody knows which one counts.
func bearerToken(h *fasthttp.RequestHeader) []byte {
	fields := h.PeekAll(fiber.HeaderAuthorization)
	if len(fields) != 1 || len(fields[0]) <= len(bearer) || !bytes.EqualFold(fields[0][:len(bearer)], bearer) {
		return nil
	}
	return fields[0][len(bearer):]
}

// user authenticates a request and counts it against the user's rate.
func (g *Gateway) user(c *fiber.Ctx) (*schema.User, error) {
	token := bearerToken(&c.Request().Header)
	if token == nil {
		return nil, schema.Errorf(schema.Unauthenticated, "one Authorization header with a bearer token is needed")
	}
	u := g.cfg.Catalog.Authenticate(token, time.Now())
	if u == nil {
		return nil, errToken
	}
	return u, g.limits.take(c, u.ID)
}

// allow asks the policies. The principal, the request's address and size are filled in here.
func (g *Gateway) allow(ctx context.Context, by caller, r *schema.AuthRequest) error {
	if d := g.decide(ctx, by, r); !d.Allow {
		return forbidden(d)
	}
	return nil
}

func (g *Gateway) decide(ctx context.Context, by caller, r *schema.AuthRequest) schema.Decision {
	r.Principal = by.user
	r.Address = by.request.Context().RemoteIP().String()
	r.Bytes = len(by.request.Request().Body())
	r.TLS = by.request.Context().IsTLS()
	r.At = time.Now()
	if r.As == 0 {
		r.As = by.user.ID
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

// onTopic is what a user may do something with, and how much.
type onTopic struct {
	*schema.Topic
	pattern *schema.Pattern
	limits  schema.Limits
}

// topicFor finds a topic and asks whether the action is allowed on it; as = 0 is the caller itself. A topic that is not there and one that
// the user may not see answer alike.
func (g *Gateway) topicFor(ctx context.Context, by caller, as schema.UserID, action schema.Action, id schema.TopicID) (onTopic, error) {
	topic, rule, pattern := g.cfg.Catalog.Topic(id)
	if topic == nil {
		if g.cfg.Catalog.Sync(ctx) == nil { // maybe another node made it a moment ago
			topic, rule, pattern = g.cfg.Catalog.Topic(id)
		}
		if topic == nil {
			return onTopic{}, errNoTopic
		}
	}
	as = by.or(as)
	r := schema.AuthRequest{Action: action, As: as, Topic: topic, Rule: rule, Granted: g.cfg.Catalog.Granted(id, as)}
	d := g.decide(ctx, by, &r)
	if d.Allow {
		return onTopic{topic, pattern, d.Limits}, nil
	}
	if !g.maySee(ctx, by, topic) {
		return onTopic{}, errNoTopic
	}
	return onTopic{}, forbidden(d)
}

// maySee asks whether a user may see a topic.
func (g *Gateway) maySee(ctx context.Context, by caller, t *schema.Topic) bool {
	return g.decide(ctx, by, &schema.AuthRequest{Action: schema.ActionReadTopic, Topic: t, Rule: g.cfg.Catalog.Rule(t.Rule),
		Granted: g.cfg.Catalog.Granted(t.ID, by.user.ID), Subscription: g.cfg.Catalog.SubscriptionOf(t.ID, by.user.ID)}).Allow
}

var (
	errToken          = schema.Errorf(schema.Unauthenticated, "the token is not valid")
	errNoTopic        = schema.Errorf(schema.NotFound, "there is no such topic, or it is not yours to see")
	errNoSubscription = schema.Errorf(schema.NotFound, "there is no such subscription, or it is not yours to see")
	errNoMessage      = schema.Errorf(schema.NotFound, "there is no such message, or it is not yours to see")
	errNoToken        = schema.Errorf(schema.NotFound, "there is no such token, or it is not yours to see")
	errNoUser         = schema.Errorf(schema.NotFound, "there is no such user, or it is not yours to see")
)

// subscriptionFor asks whether an action is allowed on a subscription. Without it, the subscription is as good as not there.
func (g *Gateway) subscriptionFor(ctx context.Context, by caller, action schema.Action, s *schema.Subscription) (*schema.Subscription, error) {
	if s == nil {
		return nil, errNoSubscription
	}
	topic := g.cfg.Catalog.AnyTopic(s.Topic)
	if topic == nil {
		return nil, errNoSubscription
	}
	r := schema.AuthRequest{Action: action, Topic: topic, Rule: g.cfg.Catalog.Rule(topic.Rule),
		Granted: g.cfg.Catalog.Granted(topic.ID, by.user.ID), Subscription: s}
	d := g.decide(ctx, by, &r)
	if d.Allow {
		return s, nil
	}
	if action != schema.ActionReadSub {
		see := r
		see.Action = schema.ActionReadSub
		if g.decide(ctx, by, &see).Allow {
			return nil, forbidden(d)
		}
	}
	return nil, errNoSubscription
}
