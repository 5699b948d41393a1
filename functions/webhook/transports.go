package webhook

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"sync/atomic"
)

// transports chooses between the ways to make an exchange: posts over plain HTTP take the fast one, TLS the one that
// speaks HTTP/2.
type transports struct {
	net  *netTransport
	fast *fastTransport
}

// newTransports counts the connections that are taken again in reused.
func newTransports(dial dialFunc, conf *tls.Config, reused *atomic.Int64) *transports {
	return &transports{net: newNetTransport(dial, conf, reused), fast: newFastTransport(dial, reused)}
}

func (t *transports) exchange(ctx context.Context, r *request) (*response, error) {
	if r.method == http.MethodPost && strings.HasPrefix(r.url, "http:") {
		return t.fast.exchange(ctx, r)
	}
	return t.net.exchange(ctx, r)
}

func (t *transports) close() {
	t.net.close()
	t.fast.close()
}
