package schema

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says what class of failure an error is. The gateway maps each kind to one HTTP status and the client
// maps it back; the peer transport carries it unchanged.
type Kind uint8

const (
	// Internal is a failure that is nobody's input: a bug, a broken disk.
	Internal Kind = iota
	// Invalid means that the input cannot be accepted as it stands.
	Invalid
	// Unauthenticated means that no valid token came with the request.
	Unauthenticated
	// Forbidden means that the policy refused, or could not decide.
	Forbidden
	// NotConsented means that the other party of a delivery has not agreed.
	NotConsented
	// NotFound means that the thing does not exist, or may not be seen.
	NotFound
	// Conflict means that the thing changed, exists already, or is in another state.
	Conflict
	// Mismatch means that an idempotency key came again with other content.
	Mismatch
	// TooLarge means that a limit on size was passed.
	TooLarge
	// Busy means that a queue is full or a rate is passed: try later.
	Busy
	// NotOwner means that this node does not own the partition: refresh and try elsewhere.
	NotOwner
	// Unavailable means that nothing was done and a later try may succeed.
	Unavailable
	// Unknown means that the outcome is not known: retry with the same idempotency key.
	Unknown
	// Unsupported means that the media type or the method is not understood.
	Unsupported
	// Gone means that the thing existed and is finished for good.
	Gone
)

var kindNames = [...]string{"internal", "invalid", "unauthenticated", "forbidden", "not_consented", "not_found",
	"conflict", "mismatch", "too_large", "busy", "not_owner", "unavailable", "unknown_outcome", "unsupported", "gone"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "internal"
}

// ParseKind is the inverse of String; an unknown word is Internal.
func ParseKind(s string) Kind {
	for i, n := range kindNames {
		if n == s {
			return Kind(i)
		}
	}
	return Internal
}

// Error is the one error type that crosses package borders. Message is for the caller and holds no secret and no
// detail of the machine; Err is for the log.
type Error struct {
	Kind       Kind
	Message    string
	RetryAfter time.Duration // 0 = no advice
	Err        error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of a kind with a message for the caller.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// WrapError keeps err for the log under a message for the caller.
func WrapError(k Kind, err error, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), Err: err}
}

// Retry returns a copy of e that advises the caller to wait for d.
func (e *Error) Retry(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// KindOf returns the kind of the first Error in err's chain. A passed deadline is Unavailable; anything else is Internal.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unavailable
	}
	return Internal
}
