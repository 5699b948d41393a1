package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// header is one line of a request. Names are in canonical form.
type header struct{ name, value string }

// request is one exchange to be made.
type request struct {
	method string
	url    string
	header []header
	body   []byte // unchanged until the exchange ended
	// once forbids to send the request a second time by any chance.
	once bool
}

// response is what came back; it is the caller's own.
type response struct {
	status     int
	retryAfter string
	header     http.Header // of an answer to OPTIONS
	body       []byte      // cut at schema.ResponseBytesMax
}

// transport makes exchanges. ctx bounds the whole exchange, body included. Redirects are not followed. A kept
// connection that the endpoint had closed is replaced and the request sent again at once.
type transport interface {
	exchange(ctx context.Context, r *request) (*response, error)
	close()
}

const (
	headerBytesMax   = 64 << 10
	drainBytesMax    = 64 << 10
	idleConnsMax     = 4096
	idleConnsPerHost = 64
	idleTimeout      = 90 * time.Second
)

// dialFunc opens a connection that the guard has approved.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// counted counts the connections that a dialFunc opens.
func counted(dial dialFunc, n *atomic.Int64) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			n.Add(1)
		}
		return c, err
	}
}

// netTransport speaks HTTP/1.1 and HTTP/2 through net/http.
type netTransport struct {
	t     *http.Transport
	trace *httptrace.ClientTrace
}

func newNetTransport(dial dialFunc, conf *tls.Config, reused *atomic.Int64) *netTransport {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if info.Reused {
			reused.Add(1)
		}
	}}
	return &netTransport{trace: trace, t: &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a compressed answer stays as it is: nothing to inflate
		MaxIdleConns:           idleConnsMax,
		MaxIdleConnsPerHost:    idleConnsPerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: headerBytesMax,
	}}
}

func (n *netTransport) close() { n.t.CloseIdleConnections() }

func (n *netTransport) exchange(ctx context.Context, r *request) (*response, error) {
	req, err := newHTTPRequest(httptrace.WithClientTrace(ctx, n.trace), r)
	if err != nil {
		return nil, err
	}
	resp, err := n.t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, schema.ResponseBytesMax))
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, drainBytesMax)
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return &response{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After"), header: resp.Header, body: body}, nil
}

func newHTTPRequest(ctx context.Context, r *request) (*http.Request, error) {
	// bytes.Reader gives the request its length and GetBody, which lets the transport send it again.
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for _, h := range r.header {
		if strings.EqualFold(h.name, "host") {
			continue
		}
		req.Header[http.CanonicalHeaderKey(h.name)] = []string{h.value}
	}
	if !r.once {
		// Present but empty: the transport takes the request as one that can be repeated, and sends no such header.
		req.Header["Idempotency-Key"] = nil
	}
	return req, nil
}
