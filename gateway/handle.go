package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// caller is who makes a call, and the request that it came in.
type caller struct {
	request *fiber.Ctx
	user    *schema.User
}

// or is the user in whose name the caller acts: itself, unless the request names somebody. Whether one may act for somebody else is for
// the policies.
func (by caller) or(named schema.UserID) schema.UserID {
	if named == 0 {
		return by.user.ID
	}
	return named
}

// call bounds one request by requestTimeout.
func call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), requestTimeout)
}

// deadlines bounds requests like call, with one context for all that come within a moment: a timer for each costs a publish more than
// its authorization.
type deadlines struct {
	mu   sync.Mutex
	ctx  context.Context
	next time.Time // when the next one is made
}

const deadlineStep = time.Second

// call returns a context that ends requestTimeout from now, or up to a deadlineStep later.
func (d *deadlines) call() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); !now.Before(d.next) {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout+deadlineStep)
		context.AfterFunc(ctx, cancel) // no sooner: others use it
		d.ctx, d.next = ctx, now.Add(deadlineStep)
	}
	return d.ctx
}

// nothing is the answer of a call that has nothing to say but that it was done.
type nothing struct{}

// body is the handler of a call that takes a JSON object: it authenticates, decodes, bounds the time and answers.
func body[In, Out any](g *Gateway, do func(context.Context, caller, *In) (Out, error)) fiber.Handler {
	return func(c *fiber.Ctx) error {
		u, err := g.user(c)
		if err != nil {
			return err
		}
		var in In
		if err := decode(c, &in); err != nil {
			return err
		}
		ctx, cancel := call()
		defer cancel()
		out, err := do(ctx, caller{c, u}, &in)
		if err != nil {
			return err
		}
		return answer(c, "ok", out)
	}
}

// query is the handler of a call that takes the query parameters that are named, and no others.
func query[Out any](g *Gateway, do func(context.Context, caller, *params) (Out, error), names ...string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		u, err := g.user(c)
		if err != nil {
			return err
		}
		q := paramsOf(c, names...)
		if q.err != nil {
			return q.err
		}
		ctx, cancel := call()
		defer cancel()
		out, err := do(ctx, caller{c, u}, q)
		if err != nil {
			return err
		}
		return answer(c, "ok", out)
	}
}

// answer sends a JSON object that begins with its status.
func answer[Out any](c *fiber.Ctx, status string, out Out) error {
	err := json.MarshalWrite(c.Response().BodyWriter(), struct {
		Status string `json:"status"`
		Out    Out    `json:",embed"`
	}{status, out})
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return nil
}

// list collects up to limit of the nouns that come after a place and that show lets the caller see, page by page: the policies are asked
// outside of the catalog's lock.
func list[Noun, Wire any, Key any](ctx context.Context, after Key, limit int, page func(after Key, limit int) []*Noun, key func(*Noun) Key, show func(*Noun) (Wire, bool)) ([]Wire, error) {
	out := make([]Wire, 0, limit)
	for {
		nouns := page(after, schema.ListMax)
		for _, n := range nouns {
			if w, seen := show(n); seen {
				out = append(out, w)
			}
			if len(out) == limit {
				return out, nil
			}
			after = key(n)
		}
		if len(nouns) < schema.ListMax {
			return out, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}
