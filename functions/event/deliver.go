package event

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Call invokes a function with a payload. An error says that the function did not run.
type Call func(ctx context.Context, payload []byte) (*schema.Invoked, error)

const (
	prefix, suffix = `{"Records":[`, `]}`

	busyPause    = time.Second // when nobody says how long to wait
	refusedPause = time.Minute // after the function's owner took the right to invoke away
)

// Deliver brings a batch to a function by as few calls as the payload limit allows, one after the other, and tells how it ended per message.
func Deliver(ctx context.Context, s *schema.Subscription, batch []schema.Delivery, call Call) []schema.Result {
	results := make([]schema.Result, len(batch))
	broken := map[string]bool{}
	for from := 0; from < len(batch); {
		payload, n, err := payloadOf(batch[from:], func(d *schema.Delivery) bool { return s.Ordered && d.Key != "" && broken[d.Key] })
		if err != nil {
			results[from] = schema.Result{Outcome: schema.Refused, Error: "the message cannot be written as an event"}
			from++
			continue
		}
		if n == 0 { // a key that failed in an earlier call: not sent
			results[from] = schema.Result{Outcome: schema.Held, Error: "an earlier message of the same key failed"}
			from++
			continue
		}
		copy(results[from:], invoke(ctx, payload, batch[from:from+n], s.Ordered, call))
		for i := from; i < from+n; i++ {
			broken[batch[i].Key] = broken[batch[i].Key] || results[i].Outcome != schema.Delivered
		}
		from += n
	}
	return results
}

// payloadOf writes as many records from the start of a batch as fit, up to the first that is to be left out.
func payloadOf(batch []schema.Delivery, leaveOut func(*schema.Delivery) bool) (payload []byte, n int, err error) {
	out := bytes.NewBufferString(prefix)
	for n < len(batch) && !leaveOut(&batch[n]) {
		r, err := Record(&batch[n], time.Now())
		if err != nil || len(prefix)+len(r)+len(suffix) > schema.InvokeBytesMax {
			if n == 0 {
				return nil, 0, schema.WrapError(schema.TooLarge, err, "too large for one event")
			}
			break // the next payload begins with it
		}
		if out.Len()+1+len(r)+len(suffix) > schema.InvokeBytesMax {
			break
		}
		if n > 0 {
			out.WriteByte(',')
		}
		out.Write(r)
		n++
	}
	out.WriteString(suffix)
	return out.Bytes(), n, nil
}

func invoke(ctx context.Context, payload []byte, batch []schema.Delivery, ordered bool, call Call) []schema.Result {
	answer, err := call(ctx, payload)
	if err == nil && answer.FunctionError == "" {
		return Judge(answer.Payload, batch, ordered)
	}
	r := FromError(ctx, err)
	if err == nil {
		r = FunctionError(answer)
	}
	results := make([]schema.Result, len(batch))
	for i := range results {
		results[i] = r
	}
	return results
}

// FunctionError is the result of an invocation that the function failed.
func FunctionError(answer *schema.Invoked) schema.Result {
	var document struct {
		Type    string `json:"errorType"`
		Message string `json:"errorMessage"`
	}
	words := "the function failed"
	if json.Unmarshal(answer.Payload, &document) == nil && document.Type+document.Message != "" {
		words = document.Type + ": " + document.Message
	}
	return failure(words[:min(len(words), 512)], answer.Payload)
}

// FromError is the result of an invocation that did not reach the function.
func FromError(ctx context.Context, err error) schema.Result {
	r := schema.Result{Outcome: schema.Held, Error: "the function could not be invoked", RetryAfter: busyPause}
	var ours *schema.Error
	if asError(err, &ours) {
		r.Error, r.RetryAfter = ours.Message, max(ours.RetryAfter, busyPause)
	}
	switch kind := schema.KindOf(err); {
	case ctx.Err() != nil, kind == schema.Busy, kind == schema.Unavailable, kind == schema.Internal:
	case kind == schema.Forbidden:
		r.RetryAfter = refusedPause
	case kind == schema.NotFound, kind == schema.Gone:
		r.Outcome = schema.EndpointGone
	case kind == schema.TooLarge, kind == schema.Invalid:
		r.Outcome = schema.Refused
	default:
		r.Outcome = schema.Failed
	}
	return r
}

func asError(err error, e **schema.Error) bool { return errors.As(err, e) }
