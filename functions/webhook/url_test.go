package webhook

import (
	"strings"
	"testing"
)

func TestCheckURL(t *testing.T) {
	development := Targets{AllowPrivate: true}
	for _, c := range []struct {
		url     string
		targets Targets
		ok      bool
	}{
		{"https://example.com", Targets{}, true},
		{"https://example.com:8443/a/b?c=d&e=%20", Targets{}, true},
		{"HTTPS://EXAMPLE.com./x", Targets{}, true},
		{"https://8.8.8.8/", Targets{}, true},
		{"https://[2606:4700::1111]/", Targets{}, true},
		{"https://xn--bcher-kva.example/", Targets{}, true},
		{"http://example.com", Targets{}, false},
		{"http://example.com", development, true},
		{"http://127.0.0.1:8080/x", development, true},
		{"http://localhost:8080/x", development, true},
		{"https://localhost/x", Targets{}, false},
		{"https://a.localhost/x", Targets{}, false},
		{"https://localhost/x", Targets{Allow: []string{"localhost"}}, true},
		{"", Targets{}, false},
		{"example.com", Targets{}, false},
		{"//example.com", Targets{}, false},
		{"ftp://example.com", development, false},
		{"file:///etc/passwd", development, false},
		{"https:///x", Targets{}, false},
		{"https:example.com", Targets{}, false},
		{"https://user@example.com", Targets{}, false},
		{"https://user:pass@example.com", Targets{}, false},
		{"https://@example.com", Targets{}, false},
		{"https://example.com/#x", Targets{}, false},
		{"https://example.com/#", Targets{}, false},
		{"https://example.com:/", Targets{}, false},
		{"https://example.com:0/", Targets{}, false},
		{"https://example.com:65536/", Targets{}, false},
		{"https://example.com:25/", Targets{}, false},
		{"https://10.0.0.1/", Targets{}, false},
		{"https://169.254.169.254/", development, false},
		{"https://[::1]/", Targets{}, false},
		{"https://[::ffff:10.0.0.1]/", Targets{}, false},
		{"https://[64:ff9b::a00:1]/", Targets{}, false},
		{"https://[fe80::1%25eth0]/", development, false},
		{"https://2130706433/", development, false},
		{"https://0x7f000001/", development, false},
		{"https://0X7F.1/", development, false},
		{"https://0177.0.0.1/", development, false},
		{"https://127.1/", development, false},
		{"https://127.0.0.1./", Targets{}, false},
		{"https://1.2.3.4.5/", development, false},
		{"https://0x/", development, false},
		{"https://１２７.0.0.1/", development, false},
		{"https://exämple.com/", Targets{}, false},
		{"https://example..com/", Targets{}, false},
		{"https://exa mple.com/", Targets{}, false},
		{"https://example.com/a b", Targets{}, false},
		{"https://example.com\\@evil.com/", Targets{}, false},
		{"https://example.com/\r\nX: y", Targets{}, false},
		{"https://example.com/" + strings.Repeat("x", urlBytesMax), Targets{}, false},
	} {
		if err := CheckURL(c.url, c.targets); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.url, err)
		}
	}
}
