// Package async runs invocations that nobody waits for: each is a message on an internal topic of its function's, durable before the caller
// hears of it, tried again after errors, and told of to the destinations that the function names.
package async

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/handfast-mq/handfast/functions/event"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
)

// The attributes of an event's message.
const (
	attributeRequest   = "request-id"
	attributeQualifier = "qualifier"
	attributeTrace     = "trace-id"
)

const (
	instanceWait = 5 * time.Second
	// throttledMax bounds the pause between tries of an event that found its function at its limit. The pauses grow with the age of the event.
	throttledMax = 5 * time.Minute
	// unreportedMax bounds the ends that could not be told to their destination yet.
	unreportedMax = 1000
)

// Options say what an Async works with.
type Options struct {
	Catalog *catalog.Catalog
	Run     func(ctx context.Context, f *schema.Function, call *schema.Invocation) (*schema.Invoked, error)
	// Publish writes one message to a topic, durably; the error says that it is not known to be there.
	Publish func(ctx context.Context, t schema.TopicID, m schema.Publish) error
}

// Async takes events and delivers them.
type Async struct {
	opts Options
	// unreported keeps the ends of invocations whose destination could not be reached, so that a function does not run again for that.
	unreported *lru.Cache[schema.MessageID, *end]
}

// end is how an event ended.
type end struct {
	answer    *schema.Invoked // nil = it never ran to an end
	condition string
	result    schema.Result
}

// New makes an Async.
func New(o Options) *Async {
	unreported, err := lru.New[schema.MessageID, *end](unreportedMax)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &Async{o, unreported}
}

// Enqueue accepts an event: it is durable when this returns nil.
func (a *Async) Enqueue(ctx context.Context, f *schema.Function, call *schema.Invocation) error {
	if len(call.Payload) > schema.EventBytesMax {
		return schema.Errorf(schema.TooLarge, "the payload of an asynchronous invocation has more than %d bytes", schema.EventBytesMax)
	}
	t, err := a.opts.Catalog.EventTopic(ctx, f.Name)
	if err != nil {
		return err
	}
	m := schema.Publish{Publisher: f.Owner, IdempotencyKey: call.RequestID, ContentType: "application/json", Content: call.Payload,
		Attributes: []schema.Attribute{{Name: attributeRequest, Value: call.RequestID}}}
	for name, value := range map[string]string{attributeQualifier: call.Qualifier, attributeTrace: call.TraceID} {
		if value != "" {
			m.Attributes = append(m.Attributes, schema.Attribute{Name: name, Value: value})
		}
	}
	return a.opts.Publish(ctx, t.ID, m)
}

func callOf(d *schema.Delivery) *schema.Invocation {
	call := &schema.Invocation{Payload: d.Content, Wait: instanceWait}
	for _, at := range d.Attributes {
		switch at.Name {
		case attributeRequest:
			call.RequestID = at.Value
		case attributeQualifier:
			call.Qualifier = at.Value
		case attributeTrace:
			call.TraceID = at.Value
		}
	}
	return call
}

// The conditions of a record.
const (
	conditionSuccess = "Success"
	conditionRetries = "RetriesExhausted"
	conditionAge     = "EventAgeExceeded"
)

// Deliver tries an event once. A function's own error counts as an attempt; that the function is at its limit does not.
func (a *Async) Deliver(ctx context.Context, s *schema.Subscription, f *schema.Function, d *schema.Delivery) schema.Result {
	call := callOf(d)
	e, ok := a.unreported.Get(d.ID)
	if !ok {
		var wait *schema.Result
		if e, wait = a.try(ctx, s, f, d, call); wait != nil {
			return *wait
		}
	}
	if err := a.report(ctx, f, d, call, e); err != nil {
		a.unreported.Add(d.ID, e)
		return schema.Result{Outcome: schema.Held, Error: "the destination cannot be reached; the function does not run again for that"}
	}
	a.unreported.Remove(d.ID)
	return e.result
}

// try runs the function and returns the event's end, or else what to do next.
func (a *Async) try(ctx context.Context, s *schema.Subscription, f *schema.Function, d *schema.Delivery, call *schema.Invocation) (*end, *schema.Result) {
	age := time.Since(d.Time)
	if age > f.Async.MaxAge {
		return givenUp(conditionAge, "the event is older than its function allows"), nil
	}
	if f.Reserved != nil && *f.Reserved == 0 {
		return givenUp(conditionRetries, "the function's reserved concurrency is 0"), nil
	}
	answer, err := a.opts.Run(ctx, f, call)
	if err != nil {
		r := event.FromError(ctx, err)
		switch r.Outcome {
		case schema.Held:
			r.RetryAfter = max(r.RetryAfter, min(age, throttledMax))
			return nil, &r
		default: // its version is gone
			return givenUp(conditionRetries, r.Error), nil
		}
	}
	if answer.FunctionError == "" {
		return &end{answer, conditionSuccess, schema.Result{Outcome: schema.Delivered, Status: 200}}, nil
	}
	r := event.FunctionError(answer)
	if d.Attempt < s.Attempts() {
		return nil, &r
	}
	return &end{answer, conditionRetries, r}, nil
}

func givenUp(condition, words string) *end {
	return &end{nil, condition, schema.Result{Outcome: schema.Refused, Error: words}}
}

// record is what destinations get, as AWS Lambda writes it.
type record struct {
	Version         string          `json:"version"`
	Timestamp       string          `json:"timestamp"`
	RequestContext  requestContext  `json:"requestContext"`
	RequestPayload  json.RawMessage `json:"requestPayload"`
	ResponseContext responseContext `json:"responseContext"`
	ResponsePayload json.RawMessage `json:"responsePayload"`
}

type requestContext struct {
	RequestID   string `json:"requestId"`
	FunctionARN string `json:"functionArn"`
	Condition   string `json:"condition"`
	Invoked     int    `json:"approximateInvokeCount"`
}

type responseContext struct {
	Status  int    `json:"statusCode"`
	Version string `json:"executedVersion"`
	Error   string `json:"functionError,omitempty"`
}

// report tells the function's destination of an end, when it names one that is still there.
func (a *Async) report(ctx context.Context, f *schema.Function, d *schema.Delivery, call *schema.Invocation, e *end) error {
	to := f.Async.OnFailure
	if e.condition == conditionSuccess {
		to = f.Async.OnSuccess
	}
	if t, _, _ := a.opts.Catalog.Topic(to); to == 0 || t == nil {
		return nil
	}
	r := record{Version: "1.0", Timestamp: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		RequestContext: requestContext{call.RequestID, f.ARN() + ":" + qualified(call.Qualifier), e.condition, d.Attempt}, RequestPayload: asJSON(d.Content)}
	if e.answer != nil {
		r.ResponseContext = responseContext{200, fmt.Sprint(e.answer.Version), e.answer.FunctionError}
		r.ResponsePayload = asJSON(e.answer.Payload)
	}
	content, err := json.Marshal(r)
	for _, long := range []*json.RawMessage{&r.ResponsePayload, &r.RequestPayload} { // what a message cannot hold is left out
		if err == nil && len(content) > schema.ContentBytesMax {
			*long = nil
			content, err = json.Marshal(r)
		}
	}
	if err != nil {
		return err
	}
	return a.opts.Publish(ctx, to, schema.Publish{Publisher: f.Owner, ContentType: "application/json", Content: content,
		IdempotencyKey: fmt.Sprintf("event-%d-%s", d.ID, e.condition), Attributes: []schema.Attribute{{Name: attributeRequest, Value: call.RequestID}}})
}

func qualified(q string) string {
	if q == "" {
		return schema.QualifierLive
	}
	return q
}

// asJSON returns bytes that are JSON as they are, and others as a string.
func asJSON(b []byte) json.RawMessage {
	if json.Valid(b) {
		return b
	}
	quoted, _ := json.Marshal(string(b)) // a string always encodes
	return quoted
}
