package gateway

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
)

// statusOf is the one table from error kinds to HTTP statuses.
var statusOf = map[schema.Kind]int{
	schema.Internal:        http.StatusInternalServerError,
	schema.Invalid:         http.StatusUnprocessableEntity,
	schema.Unauthenticated: http.StatusUnauthorized,
	schema.Forbidden:       http.StatusForbidden,
	schema.NotConsented:    http.StatusForbidden,
	schema.NotFound:        http.StatusNotFound,
	schema.Conflict:        http.StatusConflict,
	schema.Mismatch:        http.StatusUnprocessableEntity,
	schema.TooLarge:        http.StatusRequestEntityTooLarge,
	schema.Busy:            http.StatusTooManyRequests,
	schema.NotOwner:        http.StatusServiceUnavailable,
	schema.Unavailable:     http.StatusServiceUnavailable,
	schema.Unknown:         http.StatusServiceUnavailable,
	schema.Unsupported:     http.StatusUnsupportedMediaType,
	schema.Gone:            http.StatusGone,
}

// problem is the body of every error, by RFC 9457. Kind is the machine-readable name.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Kind   string `json:"kind"`
}

// fail answers with a problem document. Every error of every route, the framework's own included, comes through here.
func (g *Gateway) fail(c *fiber.Ctx, err error) error {
	p, retryAfter := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		g.cfg.Logger.Error("request failed", "method", c.Method(), "path", c.Path(), "status", p.Status, "err", err)
	}
	if retryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="handfast"`)
	}
	body, _ := json.Marshal(p) // plain strings and a number
	c.Set(fiber.HeaderContentType, "application/problem+json")
	return c.Status(p.Status).Send(body)
}

// problemOf says what a caller is told of an error: the message of one of ours, and never the cause behind it.
func problemOf(err error) (problem, time.Duration) {
	var ours *schema.Error
	if errors.As(err, &ours) {
		status := statusOf[ours.Kind]
		return problem{"about:blank", http.StatusText(status), status, ours.Message, ours.Kind.String()}, ours.RetryAfter
	}
	status := http.StatusInternalServerError
	var framework *fiber.Error
	var buffer *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &framework):
		status = framework.Code
	case errors.As(err, &buffer):
		status = http.StatusRequestHeaderFieldsTooLarge
	case schema.KindOf(err) == schema.Unavailable:
		status = http.StatusServiceUnavailable
	}
	p, known := frameworkProblems[status]
	if !known {
		p.kind, p.detail = schema.Invalid, http.StatusText(status)
	}
	return problem{"about:blank", http.StatusText(status), status, p.detail, p.kind.String()}, 0
}

// frameworkProblems are what is told of errors that are not of ours, by status.
var frameworkProblems = map[int]struct {
	kind   schema.Kind
	detail string
}{
	http.StatusBadRequest:                  {schema.Invalid, "the request is not well-formed HTTP"},
	http.StatusNotFound:                    {schema.NotFound, "there is no such path; /openapi.yaml describes those there are"},
	http.StatusMethodNotAllowed:            {schema.Invalid, "this path does not take this method; see the Allow header"},
	http.StatusRequestTimeout:              {schema.Unavailable, "the request did not arrive in time"},
	http.StatusRequestEntityTooLarge:       {schema.TooLarge, "the body has more than 8 MiB"},
	http.StatusRequestHeaderFieldsTooLarge: {schema.TooLarge, "the request line and headers have more than 32 KiB"},
	http.StatusInternalServerError:         {schema.Internal, "something went wrong here; the log has the cause"},
	http.StatusBadGateway:                  {schema.Internal, "the function failed, or its answer is not a response"},
	http.StatusServiceUnavailable:          {schema.Unavailable, "not done in time"},
}
