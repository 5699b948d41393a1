package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "120.5": 120500 * time.Millisecond, "-1": 0, "+5": 0,
		"soon": 0, "NaN": 0, "Inf": 0, "-Inf": 0, "1e3": 1000 * time.Second, "0x10": 0, "1_0": 0, "9999999999999999999999": 24 * time.Hour, "1e300": 24 * time.Hour,
		"86401": 24 * time.Hour, now.Add(time.Minute).Format(http.TimeFormat): time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0, now.AddDate(5, 0, 0).Format(http.TimeFormat): 24 * time.Hour, "Fri, 99 Jan 2026": 0,
	} {
		if got := retryAfter(s, now); got != want {
			t.Errorf("%q: %s, not %s", s, got, want)
		}
	}
}

func TestFromError(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)}
	}
	for name, c := range map[string]struct {
		err  error
		want schema.Outcome
	}{
		"no route":        {op(syscall.ENETUNREACH), schema.Held},
		"descriptors":     {op(syscall.EMFILE), schema.Held},
		"ports":           {op(syscall.EADDRNOTAVAIL), schema.Held},
		"resolver":        {fmt.Errorf("dial: %w", &net.DNSError{Err: "read: connection refused", IsTemporary: true}), schema.Held},
		"no such host":    {&net.DNSError{Err: "no such host", IsNotFound: true}, schema.Failed},
		"broken zone":     {&net.DNSError{Err: "server misbehaving", IsTemporary: true}, schema.Failed},
		"refused":         {op(syscall.ECONNREFUSED), schema.Failed},
		"host down":       {op(syscall.EHOSTUNREACH), schema.Failed},
		"guard":           {&net.OpError{Op: "dial", Err: refusef("no")}, schema.Failed},
		"timeout":         {context.DeadlineExceeded, schema.Failed},
		"unknown, long":   {errors.New(strings.Repeat("é\n", 1000)), schema.Failed},
		"unknown, binary": {errors.New("\xff\x00"), schema.Failed},
	} {
		r := fromError(t.Context(), c.err, time.Second)
		if r.Outcome != c.want || r.Error == "" || len(r.Error) > 300 || strings.ContainsAny(r.Error, "\n\x00") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := fromError(ctx, op(syscall.ECONNREFUSED), time.Second); r.Outcome != schema.Held {
		t.Errorf("%+v", r)
	}
}
