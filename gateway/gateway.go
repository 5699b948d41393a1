// Package gateway is the public HTTP side of a node: it authenticates, asks the policies, checks limits, and turns requests into
// calls of the broker and the catalog, and their errors into problem documents.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
)

// Broker is what the gateway needs of the node that it stands before.
type Broker interface {
	Publish(ctx context.Context, t *schema.Topic, level schema.AckLevel, messages []schema.Publish) []schema.Published
	Pull(ctx context.Context, s *schema.Subscription, n, bytesMax int, wait time.Duration) ([]schema.Delivery, error)
	Settle(ctx context.Context, how schema.Settling, s *schema.Subscription, list []schema.Settlement, d time.Duration) ([]schema.Verdict, error)
	Message(ctx context.Context, id schema.MessageID) (schema.Message, []schema.Standing, bool, error)
	Progress(ctx context.Context, s *schema.Subscription) (schema.Progress, error)
	Redrive(ctx context.Context, s *schema.Subscription, limit int) (int, error)
	View(ctx context.Context) (schema.ClusterView, error)
	Ready() bool
}

// Config is what a gateway works with.
type Config struct {
	Catalog     *catalog.Catalog
	Broker      Broker
	Attempts    schema.Attempts
	Authorizer  schema.Authorizer
	Verifier    schema.Verifier              // asks webhook endpoints for their consent
	CheckURL    func(url string) error       // may a webhook have this address?
	NewSecret   func() string                // a signing secret for a new webhook
	CheckRule   func(rego string) error      // is this a rule that the policies can take?
	Targets     map[schema.TargetType]bool   // what push targets this cluster serves
	CheckLambda func(t *schema.Target) error // may a target on AWS Lambda be this one?
	Functions   Functions                    // nil = this cluster hosts none
	UserRate    int                          // requests a second and user; 0 = no bound
	// ReadTimeout is for a whole request, so that nobody holds a connection by dripping; 0 = 20 s.
	ReadTimeout time.Duration
	// IdleTimeout is for a connection between two requests; 0 = 120 s.
	IdleTimeout time.Duration
	Logger      *slog.Logger
	Registry    interface {
		prometheus.Registerer
		prometheus.Gatherer
	}
}

const (
	// bodyBytesMax bounds a request body: a batch at its limit, with JSON's escapes.
	bodyBytesMax = 8 << 20
	// headerBytesMax bounds the request line and headers.
	headerBytesMax = 32 << 10
	// connectionsMax bounds the connections at the same time; long polls hold theirs.
	connectionsMax = 64 << 10

	requestTimeout = 15 * time.Second // of everything but long polls
	readTimeout    = 20 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 120 * time.Second
)

// Gateway serves the API.
type Gateway struct {
	cfg       Config
	app       *fiber.App
	limits    *limiters
	quotas    *quotas
	deadlines deadlines
	metrics   *metrics
}

// New makes a gateway that does not listen yet.
func New(cfg Config) *Gateway {
	g := &Gateway{cfg: cfg, limits: newLimiters(cfg.UserRate), quotas: newQuotas(), metrics: newMetrics(cfg.Registry)}
	g.app = fiber.New(fiber.Config{
		AppName:               "handfast",
		ErrorHandler:          g.failUnread, // errors of handlers end in measure
		BodyLimit:             bodyBytesMax,
		ReadBufferSize:        headerBytesMax,
		Concurrency:           connectionsMax,
		ReadTimeout:           cmp.Or(cfg.ReadTimeout, readTimeout),
		WriteTimeout:          writeTimeout,
		IdleTimeout:           cmp.Or(cfg.IdleTimeout, idleTimeout),
		DisableStartupMessage: true,
		CaseSensitive:         true,
		StrictRouting:         true,
		// A multipart body is a content like any other: its bytes must not change.
		DisablePreParseMultipartForm: true,
	})
	g.app.Server().ExpectHandler = g.expect
	g.app.Server().HeaderReceived = g.requestConfig
	g.app.Use(g.measure)
	g.routes()
	g.app.Server().Handler = g.knownMethod(g.app.Handler())
	return g
}

// knownMethod answers methods that the framework does not know, which it would do in words of its own.
func (g *Gateway) knownMethod(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if slices.Contains(fiber.DefaultMethods, string(ctx.Method())) {
			next(ctx)
			return
		}
		c := g.app.AcquireCtx(ctx)
		defer g.app.ReleaseCtx(c)
		c.Set(fiber.HeaderAllow, "GET, HEAD, POST")
		g.fail(c, fiber.ErrMethodNotAllowed) // has no error
		g.metrics.count("none", fiber.StatusMethodNotAllowed)
	}
}

// Serve answers on a listener until Shutdown.
func (g *Gateway) Serve(l net.Listener) error { return g.app.Server().Serve(lingerListener{l}) }

// Shutdown takes no new connections and waits for the requests that are being answered, up to ctx.
func (g *Gateway) Shutdown(ctx context.Context) error {
	err := g.app.ShutdownWithContext(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
