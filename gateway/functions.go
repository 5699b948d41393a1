package gateway

import (
	"bytes"
	"cmp"
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
	if bytes.HasPrefix(h.RequestURI(), []byte(deployPath)) && g.cfg.Catalog.Authenticate(bearerToken(h), time.Now()) != nil {
		return schema.ArtifactBytesMax
	}
	return bodyBytesMax
}

// functionFor finds a function that the user may do something with. One that is not there and one that is not the user's to use answer alike.
func (g *Gateway) functionFor(ctx context.Context, by caller, as schema.UserID, action schema.Action, name string) (*schema.Function, error) {
	if g.cfg.Functions == nil {
		return nil, schema.Errorf(schema.Invalid, "this cluster hosts no functions")
	}
	f := g.cfg.Catalog.Function(name)
	if f == nil && g.cfg.Catalog.Sync(ctx) == nil { // maybe another node made it a moment ago
		f = g.cfg.Catalog.Function(name)
	}
	if f == nil {
		return nil, errNoFunction
	}
	r := functionRequest(action, f)
	if r.As = as; !g.decide(ctx, by, r).Allow {
		return nil, errNoFunction
	}
	return f, nil
}

// mayTarget refuses targets whose function the consumer may not invoke: its owner's permission is the consumer's side of the agreement.
func (g *Gateway) mayTarget(ctx context.Context, by caller, s *schema.Subscription) error {
	if s.Target.Type != schema.TargetFunction {
		return nil
	}
	name, _, err := parseFunction(s.Target.Function)
	if err != nil {
		return err
	}
	_, err = g.functionFor(ctx, by, s.Consumer, schema.ActionInvokeFunc, name)
	return err
}

// deployFunction takes code as its body: the first makes a function, another one makes its next version, which is live at once.
func (g *Gateway) deployFunction(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	by, q := caller{c, u}, paramsOf(c, "function_name", "settings")
	if err := cmp.Or(q.err, wantPlain(c)); err != nil {
		return err
	}
	var terms wireFunctionTerms
	if q.has("settings") {
		if err := decodeJSON([]byte(q.text("settings")), &terms); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name := q.text("function_name")
	if err := g.mayDeploy(ctx, by, name); err != nil {
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
	return answer(c, "ok", wireFunctionOf(made))
}

func (g *Gateway) mayDeploy(ctx context.Context, by caller, name string) error {
	if g.cfg.Functions == nil {
		return schema.Errorf(schema.Invalid, "this cluster hosts no functions")
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return err
	}
	r := &schema.AuthRequest{Action: schema.ActionManageFunc, Function: name}
	if f := g.cfg.Catalog.Function(name); f != nil {
		r = functionRequest(schema.ActionManageFunc, f)
	}
	if !g.decide(ctx, by, r).Allow {
		return schema.Errorf(schema.Conflict, "the function's name is taken, or the policy does not let you make it")
	}
	return nil
}

// ownFunction finds a function that the caller may manage, as it is now.
func (g *Gateway) ownFunction(ctx context.Context, by caller, name string) (*schema.Function, error) {
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return nil, err
	}
	return g.functionFor(ctx, by, 0, schema.ActionManageFunc, name)
}

type wireFunctionChange struct {
	Name string `json:"function_name"`
	wireFunctionTerms
}

func (g *Gateway) updateFunction(ctx context.Context, by caller, in *wireFunctionChange) (out wireFunction, err error) {
	f, err := g.ownFunction(ctx, by, in.Name)
	if err != nil {
		return out, err
	}
	return shownFunction(g.cfg.Catalog.PutFunction(ctx, f.Name, f.Owner, in.wireFunctionTerms.set))
}

type wireRollback struct {
	Name    string `json:"function_name"`
	Version int    `json:"version"`
}

func (g *Gateway) rollbackFunction(ctx context.Context, by caller, in *wireRollback) (out wireFunction, err error) {
	f, err := g.ownFunction(ctx, by, in.Name)
	if err != nil {
		return out, err
	}
	return shownFunction(g.cfg.Catalog.RollBack(ctx, f.Name, in.Version))
}

type wireFunctionOnly struct {
	Name string `json:"function_name"`
}

func (g *Gateway) deleteFunction(ctx context.Context, by caller, in *wireFunctionOnly) (nothing, error) {
	f, err := g.ownFunction(ctx, by, in.Name)
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, g.cfg.Catalog.DeleteFunction(ctx, f.Name)
}

func (g *Gateway) getFunction(ctx context.Context, by caller, q *params) (out wireFunction, err error) {
	return shownFunction(g.ownFunction(ctx, by, q.text("function_name")))
}

func shownFunction(f *schema.Function, err error) (wireFunction, error) {
	if err != nil {
		return wireFunction{}, err
	}
	return wireFunctionOf(f), nil
}

type wireFunctions struct {
	Functions []wireFunction `json:"functions"`
}

func (g *Gateway) listFunctions(ctx context.Context, by caller, q *params) (out wireFunctions, err error) {
	limit := q.limit()
	if q.err != nil {
		return out, q.err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	page := func(after string, limit int) []*schema.Function {
		return g.cfg.Catalog.Functions(after, limit, func(*schema.Function) bool { return true })
	}
	out.Functions, err = list(ctx, q.text("after"), limit, page, func(f *schema.Function) string { return f.Name }, func(f *schema.Function) (wireFunction, bool) {
		return wireFunctionOf(f), g.decide(ctx, by, functionRequest(schema.ActionManageFunc, f)).Allow
	})
	return out, err
}

// functionRequest asks the policies for an action on a function.
func functionRequest(action schema.Action, f *schema.Function) *schema.AuthRequest {
	return &schema.AuthRequest{Action: action, Function: f.Name, FunctionBy: f.Owner, Invokers: f.Invokers}
}

type wireLogs struct {
	Log  string `json:"log"`
	Next int64  `json:"next"`
}

// functionLogs shows what a function's instances on this node wrote. With wait it is a long poll.
func (g *Gateway) functionLogs(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	q := paramsOf(c, "function_name", "after", "wait")
	after, wait := optionalID[int64](q, "after"), time.Duration(q.number("wait", 0, 0, int(schema.PullWaitMax/time.Second)))*time.Second
	if q.err != nil {
		return q.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout+wait)
	defer cancel()
	f, err := g.functionFor(ctx, caller{c, u}, 0, schema.ActionManageFunc, q.text("function_name"))
	if err != nil {
		return err
	}
	text, next, err := g.cfg.Functions.Logs(ctx, f, after, wait)
	if err != nil {
		return err
	}
	return answer(c, "ok", wireLogs{string(bytes.ToValidUTF8(text, []byte("\uFFFD"))), next})
}
