package gateway

import (
	_ "embed"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/handfast-mq/handfast/schema"
)

//go:embed openapi.yaml
var openapiYAML []byte

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	serve    fiber.Handler
}

func newMetrics(r interface {
	prometheus.Registerer
	prometheus.Gatherer
}) *metrics {
	f := promauto.With(r)
	handler := fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{Name: "handfast_http_requests_total", Help: "Requests by route and status."}, []string{"route", "status"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{Name: "handfast_http_request_seconds", Help: "Duration of requests by route.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2.5, 14)}, []string{"route"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{Name: "handfast_publish_refused_total", Help: "Messages that were not accepted, by the kind of error."}, []string{"kind"}),
		serve:   func(c *fiber.Ctx) error { handler(c.Context()); return nil },
	}
	return m
}

func (m *metrics) publishedResults(results []schema.Published) {
	for i := range results {
		if err := results[i].Err; err != nil {
			m.refused.WithLabelValues(schema.KindOf(err).String()).Inc()
		}
	}
}

func (m *metrics) count(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// measure counts every request, those of the error handler included.
func (g *Gateway) measure(c *fiber.Ctx) error {
	begun := time.Now()
	err := c.Next()
	if err != nil {
		if failed := g.fail(c, err); failed != nil {
			return failed
		}
	}
	route := c.Route().Path
	if route == "/" { // nothing but this handler
		route = "none"
	}
	g.metrics.count(route, c.Response().StatusCode())
	g.metrics.seconds.WithLabelValues(route).Observe(time.Since(begun).Seconds())
	return nil
}

// healthz says that the process answers.
func (g *Gateway) healthz(c *fiber.Ctx) error { return answer(c, "ok", nothing{}) }

// readyz says whether requests should come here.
func (g *Gateway) readyz(c *fiber.Ctx) error {
	if !g.cfg.Broker.Ready() {
		return schema.Errorf(schema.Unavailable, "not every partition of this node is served").Retry(time.Second)
	}
	return answer(c, "ok", nothing{})
}

func (g *Gateway) serveMetrics(c *fiber.Ctx) error { return g.metrics.serve(c) }

func (g *Gateway) openapi(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "application/yaml")
	return c.Send(openapiYAML)
}
