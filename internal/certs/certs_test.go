package certs

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// talk lets two sides shake hands and returns what the client saw.
func talk(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = io.ReadAll(tls.Client(c, client))
	return err
}

func mutual(t *testing.T, ca Pair, of Pair) *tls.Config {
	t.Helper()
	node, err := of.Issue()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Mutual(ca.Cert, node)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestNodesOfOneClusterTrustEachOther(t *testing.T) {
	ca, err := NewCA()
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCA()
	if err != nil {
		t.Fatal(err)
	}
	if err := talk(t, mutual(t, ca, ca), mutual(t, ca, ca)); err != nil {
		t.Fatal(err)
	}
	if talk(t, mutual(t, ca, ca), mutual(t, ca, other)) == nil {
		t.Fatal("a client of another cluster was let in")
	}
	if talk(t, mutual(t, ca, other), mutual(t, ca, ca)) == nil {
		t.Fatal("a server of another cluster was believed")
	}
	anonymous := mutual(t, ca, ca)
	anonymous.Certificates = nil
	if talk(t, mutual(t, ca, ca), anonymous) == nil {
		t.Fatal("a client without a certificate was let in")
	}
}
