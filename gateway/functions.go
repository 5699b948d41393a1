package gateway

import (
	"bytes"
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
)

// Functions is what the gateway needs of the node that hosts functions.
type Functions interface {
	// Run invokes a function and waits for its answer. An error says that it did not run.
	Run(ctx context.Context, f *schema.Function, call *schema.Invocation) (*schema.Invoked, error)
	// Enqueue accepts an invocation that nobody waits for. It is durable when this returns.
	Enqueue(ctx context.Context, f *schema.Function, call *schema.Invocation) error
	// Deploy checks an archive, keeps it, and calls commit with its hash.
	Deploy(ctx context.Context, archive []byte, commit func(sha256 string) error) error
	// Logs returns what a function wrote on this node from a place on, and the next place.
	Logs(ctx context.Context, f *schema.Function, after int64, wait time.Duration) ([]byte, int64, error)
}

const (
	deployPath = "/deploy_function"
	// deployTimeout is for reading a function's code, however slow the line.
	deployTimeout = 5 * time.Minute
)

var errNoFunction = schema.Errorf(schema.NotFound, "there is no such function, or it is not yours to use")

// requestConfig lets code be larger and slower than other bodies, from those who have a valid token.
func (g *Gateway) requestConfig(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	if g.bodyBytesMax(h) > bodyBytesMax {
		c.MaxRequestBodySize, c.ReadTimeout = schema.ArtifactBytesMax, deployTimeout
	}
	return c
}

func (g *Gateway) bodyBytesMax(h *fasthttp.RequestHeader) int {
	token, is := bytes.CutPrefix(h.Peek(fiber.HeaderAuthorization), []byte(bearer))
	if is && bytes.HasPrefix(h.RequestURI(), []byte(deployPath)) && g.cfg.Catalog.Authenticate(token, time.Now()) != nil {
		return schema.ArtifactBytesMax
	}
	return bodyBytesMax
}

// functionFor finds a function that the user may do something with. One that is not there and one that is not the user's to use answer alike.
func (g *Gateway) functionFor(ctx context.Context, c *fiber.Ctx, u *schema.User, as schema.UserID, action schema.Action, name string) (*schema.Function, error) {
	if g.cfg.Functions == nil {
		return nil, schema.Errorf(schema.Invalid, "this cluster hosts no functions")
	}
	f := g.cfg.Catalog.Function(name)
	if f == nil && g.cfg.Catalog.Sync(ctx) == nil { // maybe another node made it a moment ago
		f = g.cfg.Catalog.Function(name)
	}
	if f == nil || !g.decide(ctx, c, &schema.AuthRequest{Principal: u, As: as, Action: action, Function: f.Name, FunctionBy: f.Owner, Invokers: f.Invokers}).Allow {
		return nil, errNoFunction
	}
	return f, nil
}

// mayTarget refuses targets whose function the consumer may not invoke: its owner's permission is the consumer's side of the agreement.
func (g *Gateway) mayTarget(ctx context.Context, c *fiber.Ctx, u *schema.User, s *schema.Subscription) error {
	if s.Target.Type != schema.TargetFunction {
		return nil
	}
	name, _, err := parseFunction(s.Target.Function)
	if err != nil {
		return err
	}
	_, err = g.functionFor(ctx, c, u, s.Consumer, schema.ActionInvokeFunc, name)
	return err
}

func (g *Gateway) answerFunction(c *fiber.Ctx, f *schema.Function) error {
	return ok(c, struct {
		status
		wireFunction
	}{okay, wireFunctionOf(f)})
}

// deployFunction takes code as its body: the first makes a function, another one makes its next version, which is live at once.
func (g *Gateway) deployFunction(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "function_name", "settings")
	if err != nil {
		return err
	}
	if err := wantPlain(c); err != nil {
		return err
	}
	var terms wireFunctionTerms
	if raw, there := q["settings"]; there {
		if err := decodeJSON([]byte(raw), &terms); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name := q["function_name"]
	if err := g.mayDeploy(ctx, c, u, name); err != nil {
		return err
	}
	archive := c.Request().Body()
	var made *schema.Function
	err = g.cfg.Functions.Deploy(ctx, archive, func(sum string) (err error) {
		made, err = g.cfg.Catalog.PutFunction(ctx, name, u.ID, func(f *schema.Function, v *schema.FunctionVersion) error {
			v.SHA256, v.Size = sum, int64(len(archive))
			return terms.set(f, v)
		})
		return err
	})
	if err != nil {
		return err
	}
	return g.answerFunction(c, made)
}

func (g *Gateway) mayDeploy(ctx context.Context, c *fiber.Ctx, u *schema.User, name string) error {
	if g.cfg.Functions == nil {
		return schema.Errorf(schema.Invalid, "this cluster hosts no functions")
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	r := schema.AuthRequest{Principal: u, Action: schema.ActionManageFunc, Function: name}
	if f := g.cfg.Catalog.Function(name); f != nil {
		r.FunctionBy, r.Invokers = f.Owner, f.Invokers
	}
	if d := g.decide(ctx, c, &r); !d.Allow {
		return schema.Errorf(schema.Conflict, "the function's name is taken, or the policy does not let you make it")
	}
	return nil
}

// onFunction does what the calls with a function's name in a JSON body have in common.
func (g *Gateway) onFunction(c *fiber.Ctx, body any, name *string, do func(ctx context.Context, f *schema.Function) error) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	if err := decode(c, body); err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	f, err := g.functionFor(ctx, c, u, 0, schema.ActionManageFunc, *name)
	if err != nil {
		return err
	}
	return do(ctx, f)
}

func (g *Gateway) updateFunction(c *fiber.Ctx) error {
	var w struct {
		Name string `json:"function_name"`
		wireFunctionTerms
	}
	return g.onFunction(c, &w, &w.Name, func(ctx context.Context, f *schema.Function) error {
		f, err := g.cfg.Catalog.PutFunction(ctx, f.Name, f.Owner, w.wireFunctionTerms.set)
		if err != nil {
			return err
		}
		return g.answerFunction(c, f)
	})
}

func (g *Gateway) rollbackFunction(c *fiber.Ctx) error {
	var w struct {
		Name    string `json:"function_name"`
		Version int    `json:"version"`
	}
	return g.onFunction(c, &w, &w.Name, func(ctx context.Context, f *schema.Function) error {
		f, err := g.cfg.Catalog.RollBack(ctx, f.Name, w.Version)
		if err != nil {
			return err
		}
		return g.answerFunction(c, f)
	})
}

func (g *Gateway) deleteFunction(c *fiber.Ctx) error {
	var w struct {
		Name string `json:"function_name"`
	}
	return g.onFunction(c, &w, &w.Name, func(ctx context.Context, f *schema.Function) error {
		if err := g.cfg.Catalog.DeleteFunction(ctx, f.Name); err != nil {
			return err
		}
		return ok(c, okay)
	})
}

func (g *Gateway) getFunction(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "function_name")
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	f, err := g.functionFor(ctx, c, u, 0, schema.ActionManageFunc, q["function_name"])
	if err != nil {
		return err
	}
	return g.answerFunction(c, f)
}

func (g *Gateway) listFunctions(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "after", "limit")
	if err != nil {
		return err
	}
	limit, err := queryInt(q, "limit", 100, 1, schema.ListMax)
	if err != nil {
		return err
	}
	ctx, cancel := call()
	defer cancel()
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	out := make([]wireFunction, 0, limit)
	for last := q["after"]; len(out) < limit; {
		page := g.cfg.Catalog.Functions(last, schema.ListMax, func(*schema.Function) bool { return true })
		for _, f := range page {
			last = f.Name
			if len(out) < limit && g.decide(ctx, c, &schema.AuthRequest{Principal: u, Action: schema.ActionManageFunc, Function: f.Name, FunctionBy: f.Owner, Invokers: f.Invokers}).Allow {
				out = append(out, wireFunctionOf(f))
			}
		}
		if len(page) < schema.ListMax {
			break
		}
	}
	return ok(c, struct {
		status
		Functions []wireFunction `json:"functions"`
	}{okay, out})
}

// functionLogs shows what a function's instances on this node wrote. With wait it is a long poll.
func (g *Gateway) functionLogs(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q, err := queries(c, "function_name", "after", "wait")
	if err != nil {
		return err
	}
	after, err := queryID(q, "after", false)
	if err != nil {
		return err
	}
	wait, err := queryInt(q, "wait", 0, 0, int(schema.PullWaitMax/time.Second))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout+time.Duration(wait)*time.Second)
	defer cancel()
	f, err := g.functionFor(ctx, c, u, 0, schema.ActionManageFunc, q["function_name"])
	if err != nil {
		return err
	}
	text, next, err := g.cfg.Functions.Logs(ctx, f, after, time.Duration(wait)*time.Second)
	if err != nil {
		return err
	}
	return ok(c, struct {
		status
		Log  string `json:"log"`
		Next int64  `json:"next"`
	}{okay, string(bytes.ToValidUTF8(text, []byte("\uFFFD"))), next})
}

// createAccessKey shows the key pair that goes with the caller's token, for clients that sign as for AWS.
func (g *Gateway) createAccessKey(c *fiber.Ctx) error {
	if _, err := g.user(c); err != nil {
		return err
	}
	if err := decode(c, &struct{}{}); err != nil {
		return err
	}
	token := g.cfg.Catalog.TokenOf(c.Request().Header.Peek(fiber.HeaderAuthorization)[len(bearer):], time.Now())
	if token == nil { // it ended this moment
		return schema.Errorf(schema.Unauthenticated, "the token is not valid")
	}
	id, secret := g.cfg.Catalog.AccessKey(token.ID)
	return ok(c, struct {
		status
		ID        string `json:"access_key_id"`
		Secret    string `json:"secret_access_key"`
		ExpiresAt string `json:"expires_at,omitempty"`
	}{okay, id, secret, stamp(token.ExpiresAt)})
}
