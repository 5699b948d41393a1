package schema

import (
	"context"
	"time"
)

// Result is how the delivery of one message ended.
type Result struct {
	Outcome    Outcome
	RetryAfter time.Duration // the subscriber's wish; 0 = none
	Status     int           // HTTP status; 0 = none
	Error      string
	Response   []byte // cut at ResponseBytesMax
}

// Invoker delivers a batch to a push target and tells how it ended per message, in the batch's order. It returns
// within the target's timeout, holds no message past its return, and never panics on what an endpoint says.
// Webhooks get batches of one.
type Invoker interface {
	Invoke(ctx context.Context, s *Subscription, batch []Delivery) []Result
}

// Verifier asks an endpoint whether it consents to be delivered to.
type Verifier interface {
	// Verify returns ConsentGiven when the endpoint agreed, ConsentPending when it may do so later, by echoing the
	// challenge to the callback, and an error with words for the consumer when it could not be asked.
	Verify(ctx context.Context, s *Subscription) (Consent, error)
}
