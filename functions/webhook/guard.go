package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Targets says where webhooks may go. The zero value allows public addresses only.
type Targets struct {
	// AllowPrivate admits loopback, private and other local addresses and plain http. For development.
	AllowPrivate bool
	// Allow names hosts and CIDRs that are admitted in spite of being special.
	Allow []string
	// OwnPorts are the node's own listeners; they are refused on every address of this machine.
	OwnPorts []int
}

// special are the ranges that no public endpoint lives in: the IANA special-purpose registries, and the ranges that
// embed or translate to IPv4, where the inner address could be any.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64",
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10",
	"fec0::/10", "ff00::/8")

// never are refused even where private targets are allowed, unless they are listed by name: cloud metadata services,
// and what is no unicast address of anybody.
var never = prefixes("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "100.100.100.200/32",
	"192.0.0.192/32", "fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128",
	"0.0.0.0/8", "::/128", "224.0.0.0/4", "240.0.0.0/4", "ff00::/8")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// refusedError is the guard's no. It holds words for the consumer.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

func refusef(format string, args ...any) error {
	return &refusedError{fmt.Sprintf(format, args...)}
}

func isRefused(err error) bool {
	var r *refusedError
	return errors.As(err, &r)
}

// guard decides on addresses. It is asked on the resolved address of every connection, so that neither a name that
// changes its mind nor an odd spelling gets past it.
type guard struct {
	private bool
	hosts   map[string]bool
	allow   []netip.Prefix
	ports   map[uint16]bool
	own     map[netip.Addr]bool // this machine's addresses
}

func newGuard(t Targets) (*guard, error) {
	g := &guard{private: t.AllowPrivate, hosts: map[string]bool{}, ports: map[uint16]bool{}, own: map[netip.Addr]bool{}}
	for _, s := range t.Allow {
		if err := g.admit(s); err != nil {
			return nil, err
		}
	}
	for _, p := range t.OwnPorts {
		g.ports[uint16(p)] = true
	}
	if len(g.ports) == 0 {
		return g, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			g.own[p.Addr().Unmap()] = true
		}
	}
	return g, nil
}

func (g *guard) admit(s string) error {
	if p, err := netip.ParsePrefix(s); err == nil {
		g.allow = append(g.allow, p.Masked())
		return nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		g.allow = append(g.allow, netip.PrefixFrom(a.WithZone(""), a.BitLen()))
		return nil
	}
	if s == "" || strings.ContainsAny(s, "/: *") {
		return schema.Errorf(schema.Invalid, "%q is neither a host name nor a CIDR", s)
	}
	g.hosts[hostName(s)] = true
	return nil
}

// hostName brings a host to the form in which hosts are compared.
func hostName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// check refuses an address that may not be connected to. host is the name that it was resolved from.
func (g *guard) check(host string, to netip.AddrPort) error {
	addr := to.Addr().WithZone("")
	inner := embedded(addr)
	if g.ports[to.Port()] && (inner.IsLoopback() || inner.IsUnspecified() || g.own[inner]) {
		return refusef("the target is this node itself")
	}
	if g.hosts[hostName(host)] || within(g.allow, addr) || within(g.allow, inner) {
		return nil
	}
	if within(never, inner) {
		return refusef("the target's address %s is never delivered to", addr)
	}
	if g.private {
		return nil
	}
	if within(special, addr) {
		return refusef("the target's address %s is not a public one", addr)
	}
	return nil
}

// embedded returns the IPv4 address inside of a mapped, compatible, NAT64 or 6to4 address, and any other as it is.
func embedded(a netip.Addr) netip.Addr {
	if a.Is4() || a.Is4In6() {
		return a.Unmap()
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), compatible.Contains(a) && a != netip.IPv6Unspecified() && a != netip.IPv6Loopback():
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	compatible = netip.MustParsePrefix("::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

type hostKey struct{}

// dialer returns the one way in which this package opens connections: the guard sees every address after resolution
// and before the first packet.
func (g *guard) dialer(resolver *net.Resolver) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{
		Timeout:   10 * time.Second,
		KeepAlive: 30 * time.Second,
		Resolver:  resolver,
		ControlContext: func(ctx context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return refusef("the target's address %q cannot be checked", address)
			}
			host, _ := ctx.Value(hostKey{}).(string)
			return g.check(host, to)
		},
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return d.DialContext(context.WithValue(ctx, hostKey{}, host), network, addr)
	}
}
