package webhook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/handfast-mq/handfast/schema"
)

func TestGuardRefuses(t *testing.T) {
	g, err := newGuard(Targets{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
		"198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
		"64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2001:10::1", "2002:7f00:1::", "2002:808:808::",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "3fff::1", "5f00::1"} {
		if err := g.check("x", netip.AddrPortFrom(netip.MustParseAddr(s), 443)); err == nil || !isRefused(err) {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.32.0.1", "198.20.0.1", "2606:4700::1111", "2a00:1450:4001::1"} {
		if err := g.check("x", netip.AddrPortFrom(netip.MustParseAddr(s), 443)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestGuardAdmits(t *testing.T) {
	for _, c := range []struct {
		targets Targets
		host    string
		to      string
		ok      bool
	}{
		{Targets{AllowPrivate: true}, "x", "127.0.0.1:80", true},
		{Targets{AllowPrivate: true}, "x", "[::1]:80", true},
		{Targets{AllowPrivate: true}, "x", "169.254.169.254:80", false},
		{Targets{AllowPrivate: true}, "x", "[::ffff:169.254.169.254]:80", false},
		{Targets{AllowPrivate: true}, "x", "[64:ff9b::a9fe:a9fe]:80", false},
		{Targets{AllowPrivate: true}, "x", "[2002:a9fe:a9fe::1]:80", false},
		{Targets{AllowPrivate: true}, "x", "0.0.0.0:80", false},
		{Targets{AllowPrivate: true}, "x", "224.0.0.1:80", false},
		{Targets{Allow: []string{"10.1.0.0/16"}}, "x", "10.1.2.3:80", true},
		{Targets{Allow: []string{"10.1.0.0/16"}}, "x", "[::ffff:10.1.2.3]:80", true},
		{Targets{Allow: []string{"10.1.0.0/16"}}, "x", "10.2.2.3:80", false},
		{Targets{Allow: []string{"10.1.2.3"}}, "x", "10.1.2.3:80", true},
		{Targets{Allow: []string{"Hooks.internal"}}, "hooks.Internal.", "10.2.2.3:80", true},
		{Targets{Allow: []string{"hooks.internal"}}, "other.internal", "10.2.2.3:80", false},
		{Targets{AllowPrivate: true, OwnPorts: []int{8080}}, "x", "127.0.0.1:8080", false},
		{Targets{AllowPrivate: true, OwnPorts: []int{8080}}, "x", "127.0.0.1:8081", true},
		{Targets{Allow: []string{"127.0.0.0/8"}, OwnPorts: []int{8080}}, "x", "127.0.0.9:8080", false},
		{Targets{OwnPorts: []int{8080}}, "x", "8.8.8.8:8080", true},
	} {
		g, err := newGuard(c.targets)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.check(c.host, netip.MustParseAddrPort(c.to)); (err == nil) != c.ok {
			t.Errorf("%+v %s %s: %v", c.targets, c.host, c.to, err)
		}
	}
	if _, err := newGuard(Targets{Allow: []string{"10.0.0.0/99"}}); schema.KindOf(err) != schema.Invalid {
		t.Error(err)
	}
}

// nameServer answers every question for an IPv4 address with what next returns.
func nameServer(t *testing.T, next func() [4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable = true, true
			m.Additionals = nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body: &dnsmessage.AResource{A: next()}}}
			}
			if out, err := m.Pack(); err == nil {
				conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// A name that changes from a good address to a private one is refused when the connection is made.
func TestRebinding(t *testing.T) {
	var hits, asked atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		w.Header().Set("Connection", "close") // the next delivery resolves again
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	resolver := nameServer(t, func() [4]byte {
		if asked.Add(1) == 1 {
			return [4]byte{127, 0, 0, 1}
		}
		return [4]byte{127, 0, 0, 2}
	})
	w := newTest(t, Options{Resolver: resolver, Targets: Targets{Allow: []string{"127.0.0.1/32"}}})
	sub := subscription("http://rebind.example.com.:" + port)
	if r := invoke(t, w, sub, delivery("{}")); r.Outcome != schema.Delivered {
		t.Fatalf("%+v", r)
	}
	r := invoke(t, w, sub, delivery("{}"))
	if r.Outcome != schema.Failed || !strings.Contains(r.Error, "127.0.0.2") || hits.Load() != 1 {
		t.Errorf("%+v, %d requests", r, hits.Load())
	}
}

// An admitted endpoint cannot send a delivery on to one that is not.
func TestRedirectToPrivate(t *testing.T) {
	var inner atomic.Int64
	secret := serve(t, func(w http.ResponseWriter, r *http.Request) { inner.Add(1) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, secret.URL, code) })
		if r := invoke(t, newLocal(t), subscription(s.URL), delivery("{}")); r.Outcome != schema.Failed || r.Status != code {
			t.Errorf("%+v", r)
		}
	}
	if inner.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestRefusedTarget(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	w := newTest(t, Options{})
	for _, url := range []string{s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), strings.Replace(s.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		"http://169.254.169.254/latest/meta-data"} {
		r := invoke(t, w, subscription(url), delivery("{}"))
		if r.Outcome != schema.Failed || !strings.Contains(r.Error, "not a public one") && !strings.Contains(r.Error, "never") {
			t.Errorf("%s: %+v", url, r)
		}
	}
}
