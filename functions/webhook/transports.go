package webhook

import (
	"context"
	"crypto/tls"
)

// transports chooses between the ways to make an exchange.
type transports struct {
	net *netTransport
}

func newTransports(dial dialFunc, conf *tls.Config) *transports {
	return &transports{net: newNetTransport(dial, conf)}
}

func (t *transports) exchange(ctx context.Context, r *request) (*response, error) {
	return t.net.exchange(ctx, r)
}

func (t *transports) close() { t.net.close() }
