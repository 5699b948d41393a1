package webhook

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/handfast-mq/handfast/schema"
)

const urlBytesMax = 2048

// refusedPorts are services that a webhook could be abused to talk to; none of them speaks HTTP.
var refusedPorts = map[int]bool{22: true, 23: true, 25: true, 53: true, 110: true, 143: true, 465: true, 587: true, 6379: true, 11211: true}

// CheckURL refuses, with words for the consumer, what cannot be a webhook's target. It looks at the text only: what a
// name resolves to is checked on every connection.
func CheckURL(raw string, t Targets) error {
	if len(raw) > urlBytesMax {
		return schema.Errorf(schema.TooLarge, "the url has more than %d bytes", urlBytesMax)
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f || raw[i] == '\\' {
			return schema.Errorf(schema.Invalid, "the url has a character that must be escaped at byte %d; write hosts in punycode", i)
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return schema.WrapError(schema.Invalid, err, "the url cannot be read")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return schema.Errorf(schema.Invalid, "the url must begin with https://")
	case u.Scheme == "http" && !t.AllowPrivate:
		return schema.Errorf(schema.Invalid, "the url must be https: plain http is for development only")
	case u.User != nil:
		return schema.Errorf(schema.Invalid, "the url must not hold a user name or password")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return schema.Errorf(schema.Invalid, "the url must not have a fragment")
	}
	port, err := checkPort(u, t)
	if err != nil {
		return err
	}
	return checkHost(u.Hostname(), port, t)
}

func checkPort(u *url.URL, t Targets) (uint16, error) {
	s := u.Port()
	if s == "" {
		if strings.HasSuffix(u.Host, ":") {
			return 0, schema.Errorf(schema.Invalid, "the url has a colon without a port")
		}
		if u.Scheme == "http" {
			return 80, nil
		}
		return 443, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, schema.Errorf(schema.Invalid, "the url's port must be a number from 1 to 65535")
	}
	if refusedPorts[int(n)] && !t.AllowPrivate {
		return 0, schema.Errorf(schema.Invalid, "webhooks are not delivered to port %d", n)
	}
	return uint16(n), nil
}

func checkHost(host string, port uint16, t Targets) error {
	if host == "" {
		return schema.Errorf(schema.Invalid, "the url has no host")
	}
	g, err := newGuard(t)
	if err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return schema.Errorf(schema.Invalid, "the url's address must not have a zone")
		}
		if err := g.check(host, netip.AddrPortFrom(addr, port)); err != nil {
			return schema.Errorf(schema.Invalid, "%v", err)
		}
		return nil
	}
	return checkName(hostName(host), g)
}

// checkName refuses names that some resolver reads as an address: a last label that is a number (decimal, octal or
// hexadecimal), after the URL standard's host parser.
func checkName(name string, g *guard) error {
	if strings.ContainsAny(name, "%[]:") || len(name) > 253 {
		return schema.Errorf(schema.Invalid, "the url's host is not a host name")
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return schema.Errorf(schema.Invalid, "the url's host has an empty or too long label")
		}
	}
	if isNumber(labels[len(labels)-1]) {
		return schema.Errorf(schema.Invalid, "the url's host is an address in an unusual form: write it as four decimal numbers")
	}
	local := labels[len(labels)-1] == "localhost"
	if local && !g.private && !g.hosts[name] {
		return schema.Errorf(schema.Invalid, "the url's host is this machine")
	}
	return nil
}

func isNumber(label string) bool {
	digits := "0123456789"
	if l, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = l, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}
