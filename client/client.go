// Package client calls a Handfast cluster. A Client is safe for concurrent use; every call takes a context and returns an *Error for
// what the cluster refused.
package client

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Options say where a cluster is and who calls.
type Options struct {
	Server string // base URL, such as https://queue.example.com
	Token  string // bearer token of the user that calls
	// Retries bounds how often a call is made again after the first try; 0 = 4, negative = never.
	Retries int
	// HTTP makes the requests; nil = a client of its own, with connections enough for hundreds of calls at the same time.
	HTTP *http.Client
}

const (
	retriesDefault = 4
	// connectionsMax bounds the idle connections that are kept: net/http's default of 2 would open one for nearly each of many
	// calls at the same time.
	connectionsMax = 256
	// callTimeout bounds one try, beside what a long poll waits for.
	callTimeout = 30 * time.Second
	// answerBytesMax bounds an answer: a full pull, with JSON's escapes.
	answerBytesMax = 64 << 20
)

// Client calls one cluster as one user.
type Client struct {
	base    *url.URL
	token   string
	retries int
	http    *http.Client
}

// New makes a client. It makes no request.
func New(o Options) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(o.Server, "/"))
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, schema.Errorf(schema.Invalid, "the server's address must begin with http:// or https://, not %q", o.Server)
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, schema.Errorf(schema.Invalid, "the token has a space or another character that no token has")
	}
	c := &Client{base: base, token: o.Token, retries: o.Retries, http: o.HTTP}
	if c.retries == 0 {
		c.retries = retriesDefault
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return c, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          connectionsMax,
		MaxIdleConnsPerHost:   connectionsMax,
		IdleConnTimeout:       90 * time.Second, // below the server's 120 s, so that it is not the server who closes
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// Close closes the connections that are idle. The client can be used on.
func (c *Client) Close() { c.http.CloseIdleConnections() }
