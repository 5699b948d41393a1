package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

// The Lambda Invoke API, https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
const (
	invokePath = "/2015-03-31/functions/:name/invocations"

	headerInvocationType  = "X-Amz-Invocation-Type"
	headerLogType         = "X-Amz-Log-Type"
	headerClientContext   = "X-Amz-Client-Context"
	headerFunctionError   = "X-Amz-Function-Error"
	headerLogResult       = "X-Amz-Log-Result"
	headerExecutedVersion = "X-Amz-Executed-Version"
	headerRequestID       = "X-Amzn-Requestid"
	headerErrorType       = "X-Amzn-Errortype"
	headerTraceID         = "X-Amzn-Trace-Id"

	clientContextBytesMax = 3583
	arnBytesMax           = 170

	// invokeWait bounds how long an invocation queues for an instance.
	invokeWait = 15 * time.Second
	// invokeTimeout is above the longest invocation and its queueing.
	invokeTimeout = schema.FunctionTimeoutMax + time.Minute
)

// functionReference reads name, name:qualifier, account:function:name and whole ARNs.
var functionReference = regexp.MustCompile(`^(?:(?:arn:[a-z-]+:lambda:[a-z0-9-]+:)?[0-9]{12}:function:)?([A-Za-z0-9_-]{1,64})(?::(\$LATEST|[A-Za-z0-9_-]{1,128}))?$`)

func parseFunction(reference string) (name, qualifier string, err error) {
	m := functionReference.FindStringSubmatch(reference)
	if m == nil || len(reference) > arnBytesMax+schema.NameBytesMax {
		return "", "", schema.Errorf(schema.Invalid, "%q is not a function's name or ARN", clip(reference))
	}
	return m[1], m[2], nil
}

// lambdaProblem is a problem document that Lambda's clients understand as well.
type lambdaProblem struct {
	problem
	Message string `json:"message"`
	Reason  string `json:"Reason,omitempty"`
}

type lambdaError struct {
	status int
	name   string
}

var lambdaErrors = map[schema.Kind]lambdaError{
	schema.Invalid:         {400, "InvalidParameterValueException"},
	schema.Unauthenticated: {401, "UnrecognizedClientException"},
	schema.Forbidden:       {403, "AccessDeniedException"},
	schema.NotFound:        {404, "ResourceNotFoundException"},
	schema.Gone:            {404, "ResourceNotFoundException"},
	schema.Conflict:        {409, "ResourceConflictException"},
	schema.TooLarge:        {413, "RequestTooLargeException"},
	schema.Unsupported:     {415, "UnsupportedMediaTypeException"},
	schema.Busy:            {429, "TooManyRequestsException"},
	schema.Unavailable:     {503, "ServiceException"},
	schema.Unknown:         {503, "ServiceException"},
}

// errNotJSON is the error of a payload that is no JSON.
var errNotJSON = schema.Errorf(schema.Invalid, "the payload is not valid JSON")

// invoke answers one call of the Invoke API, errors included.
func (g *Gateway) invoke(c *fiber.Ctx) error {
	id := uuid.NewString()
	c.Set(headerRequestID, id)
	err := g.invokeFunction(c, id)
	if err == nil {
		return nil
	}
	p, retryAfter := problemOf(err)
	e, known := lambdaErrors[schema.KindOf(err)]
	if !known {
		e = lambdaError{http.StatusInternalServerError, "ServiceException"}
		g.cfg.Logger.Error("an invocation failed", "request", id, "err", err)
	}
	doc := lambdaProblem{problem: p, Message: p.Detail}
	doc.Status, doc.Title = e.status, http.StatusText(e.status)
	switch {
	case err == errNotJSON:
		e.name = "InvalidRequestContentException"
	case e.status == http.StatusTooManyRequests && strings.Contains(p.Detail, "reserved concurrency"):
		doc.Reason = "ReservedFunctionConcurrentInvocationLimitExceeded"
	case e.status == http.StatusTooManyRequests:
		doc.Reason = "ConcurrentInvocationLimitExceeded"
	case e.status == http.StatusUnauthorized:
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="handfast"`)
	}
	if retryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(int((retryAfter+time.Second-1)/time.Second)))
	}
	body, _ := json.Marshal(doc) // strings and a number
	c.Set(headerErrorType, e.name)
	c.Set(fiber.HeaderContentType, "application/problem+json")
	return c.Status(e.status).Send(body)
}

// invoker authenticates by a bearer token or by a signature.
func (g *Gateway) invoker(c *fiber.Ctx) (*schema.User, error) {
	if strings.HasPrefix(c.Get(fiber.HeaderAuthorization), signatureAlgorithm+" ") {
		return g.signer(c, time.Now())
	}
	return g.user(c)
}

func (g *Gateway) invokeFunction(c *fiber.Ctx, id string) error {
	u, err := g.invoker(c)
	if err != nil {
		return err
	}
	q := paramsOf(c, "Qualifier")
	if q.err != nil {
		return q.err
	}
	reference, err := url.PathUnescape(strings.Clone(c.Params("name")))
	if err != nil {
		return schema.Errorf(schema.Invalid, "the function's name is not well escaped")
	}
	name, qualifier, err := parseFunction(reference)
	switch {
	case err != nil:
		return err
	case q.text("Qualifier") != "" && qualifier != "" && qualifier != q.text("Qualifier"):
		return schema.Errorf(schema.Invalid, "the name has another qualifier than the query")
	case q.text("Qualifier") != "":
		qualifier = q.text("Qualifier")
	}
	ctx, cancel := context.WithTimeout(context.Background(), invokeTimeout)
	defer cancel()
	f, err := g.functionFor(ctx, caller{c, u}, 0, schema.ActionInvokeFunc, name)
	if err != nil {
		return err
	}
	if f.Version(qualifier) == nil {
		return schema.Errorf(schema.NotFound, "the function has no version %q", clip(qualifier))
	}
	call, err := readInvocation(c, id, qualifier)
	if err != nil {
		return err
	}
	return g.invokeAs(ctx, c, f, call)
}

// readInvocation copies what it takes of the request: the server uses its buffers again.
func readInvocation(c *fiber.Ctx, id, qualifier string) (*schema.Invocation, error) {
	if err := wantPlain(c); err != nil {
		return nil, err
	}
	call := &schema.Invocation{RequestID: id, Qualifier: qualifier, Payload: bytes.Clone(c.Request().Body()), TraceID: strings.Clone(c.Get(headerTraceID)), Wait: invokeWait}
	if len(call.TraceID) > schema.KeyBytesMax || !printable(call.TraceID) {
		call.TraceID = ""
	}
	if len(call.Payload) == 0 {
		call.Payload = []byte("{}")
	}
	if len(call.Payload) > schema.InvokeBytesMax {
		return nil, schema.Errorf(schema.TooLarge, "the payload has more than %d bytes", schema.InvokeBytesMax)
	}
	if !json.Valid(call.Payload) {
		return nil, errNotJSON
	}
	if raw := c.Get(headerClientContext); raw != "" {
		decoded, err := base64.StdEncoding.DecodeString(raw)
		if err != nil || len(raw) > clientContextBytesMax || !json.Valid(decoded) {
			return nil, schema.Errorf(schema.Invalid, "%s must be JSON in base64, of at most %d bytes", headerClientContext, clientContextBytesMax)
		}
		call.ClientContext = string(decoded)
	}
	if t := c.Get(headerLogType); t != "" && t != "None" && t != "Tail" {
		return nil, schema.Errorf(schema.Invalid, "%s must be None or Tail", headerLogType)
	}
	return call, nil
}

func (g *Gateway) invokeAs(ctx context.Context, c *fiber.Ctx, f *schema.Function, call *schema.Invocation) error {
	switch c.Get(headerInvocationType, "RequestResponse") {
	case "DryRun":
		c.Status(http.StatusNoContent)
		return nil
	case "Event":
		if err := g.cfg.Functions.Enqueue(ctx, f, call); err != nil {
			return err
		}
		c.Status(http.StatusAccepted)
		return nil
	case "RequestResponse":
		return g.invokeAndWait(ctx, c, f, call)
	}
	return schema.Errorf(schema.Invalid, "%s must be RequestResponse, Event or DryRun", headerInvocationType)
}

func (g *Gateway) invokeAndWait(ctx context.Context, c *fiber.Ctx, f *schema.Function, call *schema.Invocation) error {
	answer, err := g.cfg.Functions.Run(ctx, f, call)
	if err != nil {
		return err
	}
	version := strconv.Itoa(answer.Version)
	if call.Qualifier == schema.QualifierLatest {
		version = schema.QualifierLatest
	}
	c.Set(headerExecutedVersion, version)
	if answer.FunctionError != "" {
		c.Set(headerFunctionError, answer.FunctionError)
	}
	if c.Get(headerLogType) == "Tail" {
		c.Set(headerLogResult, base64.StdEncoding.EncodeToString(answer.Log))
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	if answer.ContentType == fiber.MIMEOctetStream || answer.ContentType == streamType { // as runtimes say of what they stream
		c.Set(fiber.HeaderContentType, answer.ContentType)
	}
	return c.Send(answer.Payload)
}
