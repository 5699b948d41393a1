package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// ownFaultPause is how long a delivery waits that failed through a fault of this node.
const ownFaultPause = 5 * time.Second

// fromResponse tells how a delivery ended by what the endpoint answered.
func fromResponse(r *response, now time.Time) schema.Result {
	res := schema.Result{Outcome: schema.Failed, Status: r.status, Response: r.body}
	switch {
	case r.status >= 200 && r.status < 300:
		res.Outcome = schema.Delivered
		return res
	case r.status == http.StatusGone:
		res.Outcome = schema.EndpointGone
	case r.status == http.StatusTooManyRequests:
		res.Outcome = schema.Held
		res.RetryAfter = retryAfter(r.retryAfter, now)
	case r.status == http.StatusServiceUnavailable:
		res.RetryAfter = retryAfter(r.retryAfter, now)
	}
	res.Error = "the endpoint answered " + strconv.Itoa(r.status)
	if text := http.StatusText(r.status); text != "" {
		res.Error += " " + text
	}
	if r.status >= 300 && r.status < 400 {
		res.Error += "; redirects are not followed"
	}
	return res
}

// retryAfter reads seconds, with decimals too, or an HTTP date. Garbage and the past are 0; the far future is cut.
func retryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0
	}
	var d time.Duration
	if seconds, err := strconv.ParseFloat(s, 64); err == nil && s[0] != '+' {
		if math.IsNaN(seconds) || math.IsInf(seconds, 0) || strings.ContainsAny(s, "xXpP_") {
			return 0
		}
		d = time.Duration(min(seconds, schema.RetryDelayMax.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(s); err == nil {
		d = at.Sub(now)
	}
	return max(0, min(d, schema.RetryDelayMax))
}

// fromError tells how a delivery ended that got no answer. ctx is the caller's own: when it was cancelled the node
// is going down and the attempt does not count.
func fromError(ctx context.Context, err error, timeout time.Duration) schema.Result {
	if errors.Is(ctx.Err(), context.Canceled) {
		return schema.Result{Outcome: schema.Held, Error: "the node is shutting down"}
	}
	if ownFault(err) {
		return schema.Result{Outcome: schema.Held, RetryAfter: ownFaultPause, Error: describe(err, timeout)}
	}
	return schema.Result{Outcome: schema.Failed, Error: describe(err, timeout)}
}

// ownFault tells whether the node and not the endpoint is to blame: no route at all, no descriptors or ports left, no
// answer from the resolver. A resolver that answered with an error speaks about the endpoint's own zone.
func ownFault(err error) bool {
	for _, e := range [...]error{syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	var dns *net.DNSError
	return errors.As(err, &dns) && !dns.IsNotFound && !strings.Contains(dns.Err, "misbehaving")
}

// describe gives an error's words for the subscriber: no address of this machine, no more than one line.
func describe(err error, timeout time.Duration) string {
	var (
		refused *refusedError
		dns     *net.DNSError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		netErr  net.Error
	)
	switch {
	case errors.As(err, &refused):
		return refused.message
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "the target's host name does not exist"
		}
		return "the target's host name cannot be resolved"
	case errors.As(err, &unknown):
		return "the target's certificate is signed by an unknown authority"
	case errors.As(err, &host):
		return "the target's certificate is for another host"
	case errors.As(err, &invalid):
		return "the target's certificate is not valid: " + clip(invalid.Error())
	case errors.As(err, &record), errors.As(err, &alert):
		return "the target does not speak TLS as needed"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "the target did not answer within " + timeout.String()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the target refused the connection"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the target reset the connection"
	case errors.Is(err, syscall.ENETUNREACH):
		return "no network reaches the target"
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return "the exchange failed: " + clip(op.Op+": "+op.Err.Error()) // without the addresses
	}
	return "the exchange failed: " + clip(err.Error())
}

// clip keeps one short line of printable text of what others may have written.
func clip(s string) string {
	const max = 200
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > max {
		s = strings.ToValidUTF8(s[:max], "") + "…"
	}
	return s
}
