package cloudevents

import (
	"bytes"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

// HeaderPrefix is what every attribute's header begins with in binary mode.
const HeaderPrefix = "ce-"

// DecodeBinary reads an event from a request's headers and body. It keeps neither.
func DecodeBinary(header iter.Seq2[string, string], body []byte) (Event, error) {
	var e Event
	for name, value := range header {
		name = strings.ToLower(name)
		if name == "content-type" {
			e.ContentType = value
			continue
		}
		attribute, ok := strings.CutPrefix(name, HeaderPrefix)
		if !ok {
			continue
		}
		if err := e.addHeader(attribute, value); err != nil {
			return Event{}, err
		}
	}
	if len(body) > 0 {
		e.Data = bytes.Clone(body)
	}
	return e, e.check()
}

func (e *Event) addHeader(name, value string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if name == "datacontenttype" || name == "data" {
		return invalid("ce-%s is not allowed: the Content-Type and the body carry it", name)
	}
	if len(e.Attributes) >= schema.AttributesMax {
		return schema.Errorf(schema.TooLarge, "cloudevent: more than %d attributes", schema.AttributesMax)
	}
	for _, a := range e.Attributes {
		if a.Name == name {
			return invalid("the attribute %q came twice", clip(name))
		}
	}
	decoded, err := DecodeHeader(value)
	if err != nil {
		return err
	}
	if err := checkValue(name, decoded); err != nil {
		return err
	}
	e.Attributes = append(e.Attributes, schema.Attribute{Name: name, Value: decoded})
	return nil
}

// Headers yields the headers of the event in binary mode, without the Content-Type.
func (e *Event) Headers() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, a := range e.Attributes {
			if !yield(HeaderPrefix+a.Name, EncodeHeader(a.Value)) {
				return
			}
		}
	}
}

const upperHex = "0123456789ABCDEF"

// EncodeHeader writes an attribute's value for a header: space, double quote, percent and everything outside of
// U+0021 to U+007E as percent-encoded UTF-8. Broken UTF-8 becomes U+FFFD, so that what is sent can always be read.
func EncodeHeader(s string) string {
	if !needsEncoding(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for _, r := range s {
		if r > ' ' && r < 0x7f && r != '"' && r != '%' {
			b.WriteByte(byte(r))
			continue
		}
		var buf [utf8.UTFMax]byte
		for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

func needsEncoding(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			return true
		}
	}
	return false
}

// DecodeHeader reads an attribute's value from a header: a quoted string is unquoted first, then percent-decoded once.
func DecodeHeader(s string) (string, error) {
	s, err := unquote(strings.Trim(s, " \t"))
	if err != nil {
		return "", err
	}
	if strings.IndexByte(s, '%') >= 0 {
		if s, err = percentDecode(s); err != nil {
			return "", err
		}
	}
	if !utf8.ValidString(s) {
		return "", invalid("a header value is not valid UTF-8")
	}
	return s, nil
}

// unquote undoes RFC 7230's quoted-string; other values pass as they are.
func unquote(s string) (string, error) {
	if len(s) == 0 || s[0] != '"' {
		return s, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			if i != len(s)-1 {
				return "", invalid("a quoted header value goes on after its end")
			}
			return b.String(), nil
		case '\\':
			if i++; i == len(s) {
				return "", invalid("a quoted header value does not end")
			}
		}
		b.WriteByte(s[i])
	}
	return "", invalid("a quoted header value does not end")
}

func percentDecode(s string) (string, error) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return "", invalid("%q has a percent sign without two hexadecimal digits", clip(s))
		}
		b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
		i += 2
	}
	return string(b), nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}
