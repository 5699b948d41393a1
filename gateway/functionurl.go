package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

// A function URL turns a request into an event of payload format 2.0 and the answer back, as AWS does:
// https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html
const (
	functionURLPath = "/functions/:name/url/*"
	account         = "000000000000"
	// streamType is the answer of handlers that stream: a JSON prelude, eight NULs, the body.
	streamType = "application/vnd.awslambda.http-integration-response"
)

var streamDelimiter = make([]byte, 8)

type urlEvent struct {
	Version         string            `json:"version"`
	RouteKey        string            `json:"routeKey"`
	RawPath         string            `json:"rawPath"`
	RawQuery        string            `json:"rawQueryString"`
	Cookies         []string          `json:"cookies,omitempty"`
	Headers         map[string]string `json:"headers"`
	Query           map[string]string `json:"queryStringParameters,omitempty"`
	Context         urlContext        `json:"requestContext"`
	Body            string            `json:"body,omitempty"`
	PathParameters  *struct{}         `json:"pathParameters"`
	StageVariables  *struct{}         `json:"stageVariables"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
}

type urlContext struct {
	AccountID      string    `json:"accountId"`
	APIID          string    `json:"apiId"`
	Authentication *struct{} `json:"authentication"`
	DomainName     string    `json:"domainName"`
	DomainPrefix   string    `json:"domainPrefix"`
	HTTP           urlHTTP   `json:"http"`
	RequestID      string    `json:"requestId"`
	RouteKey       string    `json:"routeKey"`
	Stage          string    `json:"stage"`
	Time           string    `json:"time"`
	TimeEpoch      int64     `json:"timeEpoch"`
}

type urlHTTP struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Protocol  string `json:"protocol"`
	SourceIP  string `json:"sourceIp"`
	UserAgent string `json:"userAgent"`
}

type urlResponse struct {
	Status  int               `json:"statusCode"`
	Headers map[string]string `json:"headers"`
	Cookies []string          `json:"cookies"`
	Body    string            `json:"body"`
	Base64  bool              `json:"isBase64Encoded"`
}

// callFunctionURL lets a function answer a request.
func (g *Gateway) callFunctionURL(c *fiber.Ctx) error {
	if g.cfg.Functions == nil {
		return errNoFunction
	}
	ctx, cancel := context.WithTimeout(context.Background(), invokeTimeout)
	defer cancel()
	f, err := g.functionAtURL(ctx, c)
	if err != nil {
		return err
	}
	id := uuid.NewString()
	payload, err := json.Marshal(urlEventOf(c, f, id, time.Now()))
	if err != nil {
		return err
	}
	answer, err := g.cfg.Functions.Run(ctx, f, &schema.Invocation{RequestID: id, Payload: payload, TraceID: "", Wait: invokeWait})
	if err != nil {
		return err
	}
	c.Set(headerRequestID, id)
	if answer.FunctionError != "" {
		c.Set(headerFunctionError, answer.FunctionError)
		return fiber.NewError(http.StatusBadGateway, "the function failed")
	}
	return answerURL(c, answer)
}

// functionAtURL finds the function of a URL, and asks for a token where its owner wants one.
func (g *Gateway) functionAtURL(ctx context.Context, c *fiber.Ctx) (*schema.Function, error) {
	f := g.cfg.Catalog.Function(c.Params("name"))
	if f == nil && g.cfg.Catalog.Sync(ctx) == nil {
		f = g.cfg.Catalog.Function(c.Params("name"))
	}
	switch {
	case f == nil || f.URLAuth == "":
		return nil, errNoFunction
	case f.URLAuth == schema.URLAuthNone:
		return f, nil
	}
	u, err := g.user(c)
	if err != nil {
		return nil, err
	}
	return g.functionFor(ctx, caller{c, u}, 0, schema.ActionInvokeFunc, f.Name)
}

func urlEventOf(c *fiber.Ctx, f *schema.Function, id string, now time.Time) urlEvent {
	uri := c.Request().URI()
	path := strings.TrimPrefix(string(uri.PathOriginal()), "/functions/"+c.Params("name")+"/url")
	host := string(c.Request().Host())
	prefix, _, _ := strings.Cut(host, ".")
	e := urlEvent{Version: "2.0", RouteKey: "$default", RawPath: path, RawQuery: string(uri.QueryString()), Headers: map[string]string{}, Query: map[string]string{},
		Context: urlContext{AccountID: account, APIID: f.Name, DomainName: host, DomainPrefix: prefix, RequestID: id, RouteKey: "$default", Stage: "$default",
			Time: now.UTC().Format("02/Jan/2006:15:04:05 +0000"), TimeEpoch: now.UnixMilli(),
			HTTP: urlHTTP{c.Method(), path, string(c.Request().Header.Protocol()), c.Context().RemoteIP().String(), string(c.Request().Header.UserAgent())}}}
	for name, value := range c.Request().Header.All() {
		switch key := strings.ToLower(string(name)); {
		case key == "cookie":
			for cookie := range strings.SplitSeq(string(value), ";") {
				e.Cookies = append(e.Cookies, strings.TrimSpace(cookie))
			}
		case key == "authorization" && f.URLAuth == schema.URLAuthToken: // the caller's secret is not the function's
		default:
			join(e.Headers, key, string(value))
		}
	}
	for name, value := range uri.QueryArgs().All() {
		join(e.Query, string(name), string(value))
	}
	body := c.Request().Body()
	if e.IsBase64Encoded = !utf8.Valid(body) || binaryType(string(c.Request().Header.ContentType())) && len(body) > 0; e.IsBase64Encoded {
		e.Body = base64.StdEncoding.EncodeToString(body)
	} else {
		e.Body = string(body)
	}
	return e
}

// binaryType tells whether a media type is no text.
func binaryType(t string) bool {
	return strings.HasPrefix(t, "image/") || strings.HasPrefix(t, "audio/") || strings.HasPrefix(t, "video/") || strings.HasPrefix(t, "application/octet-stream") ||
		strings.HasPrefix(t, "application/zip") || strings.HasPrefix(t, "application/gzip") || strings.HasPrefix(t, "multipart/form-data")
}

func join(m map[string]string, key, value string) {
	if old, there := m[key]; there {
		value = old + "," + value
	}
	m[key] = value
}

// answerURL sends what a function answered.
func answerURL(c *fiber.Ctx, answer *schema.Invoked) error {
	r, body, contentType, err := urlResponseOf(answer)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, contentType)
	for name, value := range r.Headers {
		if !ownHeaders[strings.ToLower(name)] && !strings.ContainsAny(name+value, "\r\n\x00") {
			c.Set(name, value)
		}
	}
	for _, cookie := range r.Cookies {
		if !strings.ContainsAny(cookie, "\r\n\x00") {
			c.Response().Header.Add(fiber.HeaderSetCookie, cookie)
		}
	}
	return c.Status(r.Status).Send(body)
}

var errNoResponse = fiber.NewError(http.StatusBadGateway, "the function's answer is not a response")

// urlResponseOf reads an answer: a stream behind its prelude, a document with a status code, or the body as it stands. contentType is for
// when no header says another.
func urlResponseOf(answer *schema.Invoked) (r urlResponse, body []byte, contentType string, err error) {
	r.Status = http.StatusOK
	var fields map[string]json.RawMessage
	switch streamed := strings.HasPrefix(answer.ContentType, streamType); {
	case streamed:
		prelude, body, _ := bytes.Cut(answer.Payload, streamDelimiter)
		err := r.read(prelude)
		return r, body, fiber.MIMEOctetStream, err
	case !json.Valid(answer.Payload):
		return r, answer.Payload, cmp.Or(answer.ContentType, fiber.MIMEOctetStream), nil
	case json.Unmarshal(answer.Payload, &fields) != nil || fields["statusCode"] == nil:
		return r, answer.Payload, fiber.MIMEApplicationJSON, nil
	}
	if err := r.read(answer.Payload); err != nil {
		return r, nil, "", err
	}
	if !r.Base64 {
		return r, []byte(r.Body), fiber.MIMEApplicationJSON, nil
	}
	if body, err = base64.StdEncoding.DecodeString(r.Body); err != nil {
		return r, nil, "", fiber.NewError(http.StatusBadGateway, "the function's answer is not in base64 as it says")
	}
	return r, body, fiber.MIMEApplicationJSON, nil
}

func (r *urlResponse) read(document []byte) error {
	if json.Unmarshal(document, r) != nil || r.Status < 200 || r.Status > 599 {
		return errNoResponse
	}
	return nil
}

// ownHeaders are of the connection, and not a function's to set.
var ownHeaders = map[string]bool{"connection": true, "content-length": true, "transfer-encoding": true, "keep-alive": true, "upgrade": true, "trailer": true, "te": true, "server": true, "date": true}
