package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Error is what a cluster answered instead of doing what it was asked: a problem document by RFC 9457. schema.KindOf tells its kind.
type Error struct {
	Kind       schema.Kind
	Status     int // of HTTP
	Title      string
	Detail     string        // one sentence
	RetryAfter time.Duration // 0 = no advice
}

func (e *Error) Error() string { return e.Detail }

// Unwrap gives the error as the cluster's own side knows it.
func (e *Error) Unwrap() error {
	return &schema.Error{Kind: e.Kind, Message: e.Detail, RetryAfter: e.RetryAfter}
}

// UnmarshalJSON reads a problem document.
func (e *Error) UnmarshalJSON(raw []byte) error {
	var wire struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Kind   string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	*e = Error{Kind: schema.ParseKind(wire.Kind), Status: wire.Status, Title: wire.Title, Detail: wire.Detail}
	return nil
}

// MarshalJSON writes a problem document.
func (e *Error) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"title": e.Title, "status": e.Status, "detail": e.Detail, "kind": e.Kind.String()})
}

// errorOf makes an Error of an answer. What did not come from a cluster, but from something before it, gets the kind that its status tells.
func errorOf(resp *http.Response, body []byte) *Error {
	e := &Error{}
	if json.Unmarshal(body, e) != nil || e.Detail == "" {
		e.Kind, e.Title = kindOf(resp.StatusCode), http.StatusText(resp.StatusCode)
		e.Detail = fmt.Sprintf("the server answered %s, and not as Handfast does", resp.Status)
	}
	e.Status = resp.StatusCode
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	return e
}

func kindOf(status int) schema.Kind {
	switch status {
	case http.StatusUnauthorized:
		return schema.Unauthenticated
	case http.StatusForbidden:
		return schema.Forbidden
	case http.StatusNotFound:
		return schema.NotFound
	case http.StatusRequestEntityTooLarge:
		return schema.TooLarge
	case http.StatusTooManyRequests:
		return schema.Busy
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return schema.Unknown // a proxy does not tell whether the request came through
	}
	if status >= 400 && status < 500 {
		return schema.Invalid
	}
	return schema.Internal
}

func asError(err error, e **Error) bool { return errors.As(err, e) }

// kindOfFailure is Unavailable when nobody was reached, and else Unknown.
func kindOfFailure(err error) schema.Kind {
	var e *net.OpError
	if errors.As(err, &e) && e.Op == "dial" {
		return schema.Unavailable
	}
	return schema.Unknown
}

// causeOf takes the URL off an error of net/http: it stands in the message already.
func causeOf(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
