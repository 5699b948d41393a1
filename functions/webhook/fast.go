package webhook

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
)

// fastTransport posts over plain HTTP/1.1 with fasthttp's reader and writer of messages. net/http passes every exchange
// through two goroutines per connection; here the caller writes and reads itself, which costs about half. fasthttp's
// own client has no way to end an exchange early and cannot tell a stale connection from a failed delivery, so the
// connections are kept here.
type fastTransport struct {
	dial    dialFunc
	reused  *atomic.Int64
	idle    *idleConns
	readers sync.Pool
	writers sync.Pool
}

const (
	fastHeaderBytesMax = 16 << 10
	fastWriteBytes     = 4 << 10
)

var errUnanswered = errors.New("the connection was closed before an answer")

func newFastTransport(dial dialFunc, reused *atomic.Int64) *fastTransport {
	return &fastTransport{dial: dial, reused: reused, idle: newIdleConns(),
		readers: sync.Pool{New: func() any { return bufio.NewReaderSize(nil, fastHeaderBytesMax) }},
		writers: sync.Pool{New: func() any { return bufio.NewWriterSize(nil, fastWriteBytes) }}}
}

func (f *fastTransport) close() { f.idle.close() }

func (f *fastTransport) exchange(ctx context.Context, r *request) (*response, error) {
	u, err := url.Parse(r.url)
	if err != nil {
		return nil, err
	}
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	fill(req, u, r)
	host := strings.ToLower(u.Host)
	if u.Port() == "" {
		host = net.JoinHostPort(u.Hostname(), "80")
	}
	if conn := f.idle.take(host, r.once); conn != nil {
		f.reused.Add(1)
		resp, err := f.try(ctx, host, conn, req)
		if !errors.Is(err, errUnanswered) || r.once || ctx.Err() != nil {
			return resp, err
		}
	}
	conn, err := f.dial(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return f.try(ctx, host, conn, req)
}

// fill writes the request. The path goes out as it was given: nothing is normalized.
func fill(req *fasthttp.Request, u *url.URL, r *request) {
	req.Header.SetMethod(r.method)
	req.Header.SetHost(u.Host)
	req.Header.SetRequestURI(u.RequestURI())
	for _, h := range r.header {
		req.Header.Set(h.name, h.value)
	}
	req.SetBodyRaw(r.body)
}

// try makes the exchange on one connection, which it keeps for the next one or closes.
func (f *fastTransport) try(ctx context.Context, host string, conn net.Conn, req *fasthttp.Request) (*response, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, errors.Join(errUnanswered, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	resp, keep, err := f.roundTrip(conn, req)
	if !stop() || !keep {
		conn.Close()
	} else {
		f.idle.put(host, conn)
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return resp, err
}

func (f *fastTransport) roundTrip(conn net.Conn, req *fasthttp.Request) (_ *response, keep bool, err error) {
	if err := f.write(conn, req); err != nil {
		return nil, false, err
	}
	r := f.readers.Get().(*bufio.Reader)
	r.Reset(conn)
	defer func() {
		keep = keep && r.Buffered() == 0 // more than was asked for: not to be trusted
		r.Reset(nil)
		f.readers.Put(r)
	}()
	if _, err := r.Peek(1); err != nil {
		return nil, false, unanswered(err)
	}
	return read(r)
}

func (f *fastTransport) write(conn net.Conn, req *fasthttp.Request) error {
	w := f.writers.Get().(*bufio.Writer)
	w.Reset(conn)
	defer func() {
		w.Reset(nil)
		f.writers.Put(w)
	}()
	err := req.Write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return unanswered(err)
	}
	return nil
}

// unanswered marks an error that came before the first byte of an answer. Running out of time is none.
func unanswered(err error) error {
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		return err
	}
	return errors.Join(errUnanswered, err)
}

func read(r *bufio.Reader) (*response, bool, error) {
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	err := resp.ReadLimitBody(r, schema.ResponseBytesMax+drainBytesMax)
	tooLarge := errors.Is(err, fasthttp.ErrBodyTooLarge)
	if err != nil && !tooLarge {
		return nil, false, err
	}
	body := bytes.Clone(resp.Body())
	if tooLarge && len(body) == 0 {
		body = make([]byte, schema.ResponseBytesMax)
		n, err := io.ReadFull(r, body)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, false, err
		}
		body = body[:n]
	}
	out := &response{status: resp.StatusCode(), retryAfter: string(resp.Header.Peek("Retry-After")),
		body: body[:min(len(body), schema.ResponseBytesMax)]}
	keep := !tooLarge && !resp.ConnectionClose() && out.status != fasthttp.StatusSwitchingProtocols
	return out, keep, nil
}
