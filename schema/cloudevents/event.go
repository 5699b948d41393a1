// Package cloudevents reads and writes CloudEvents 1.0.2 over HTTP: binary, structured and batched content modes, after
// the HTTP protocol binding and the JSON event format. It is a pure codec: no network, no clock.
package cloudevents

import (
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

// SpecVersion is the only version that is read and written.
const SpecVersion = "1.0"

// Event is one CloudEvent. Attributes holds every context attribute and extension by its lower-case name but
// datacontenttype, which is ContentType. Data is nil when the event has none.
type Event struct {
	Attributes  []schema.Attribute
	ContentType string
	Data        []byte
}

// Get returns an attribute's value, "" when it is not set.
func (e *Event) Get(name string) string {
	for _, a := range e.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// Mode is how an event travels in a request.
type Mode uint8

const (
	Binary Mode = iota
	Structured
	Batch
)

// ModeOf tells the content mode by a Content-Type. Anything that is not CloudEvents' own media type is Binary, if the
// request carries a ce-specversion at all.
func ModeOf(contentType string) Mode {
	t := strings.ToLower(strings.TrimSpace(contentType))
	switch {
	case strings.HasPrefix(t, "application/cloudevents-batch"): // before its own prefix
		return Batch
	case strings.HasPrefix(t, "application/cloudevents"):
		return Structured
	}
	return Binary
}

// check says what an event lacks to be one.
func (e *Event) check() error {
	if v := e.Get("specversion"); v != SpecVersion {
		return invalid("specversion must be %q, not %q", SpecVersion, clip(v))
	}
	for _, name := range [...]string{"id", "source", "type"} {
		if e.Get(name) == "" {
			return invalid("the attribute %q is required", name)
		}
	}
	return nil
}

// checkName refuses what cannot name an attribute.
func checkName(name string) error {
	if name == "" || len(name) > schema.AttributeNameBytesMax {
		return invalid("attribute names have 1 to %d characters", schema.AttributeNameBytesMax)
	}
	for i := range len(name) {
		if c := name[i]; !nameByte(c) {
			return invalid("the attribute name %q may only have the characters a-z and 0-9", clip(name))
		}
	}
	return nil
}

func nameByte(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// checkValue refuses what CloudEvents' String type excludes: control characters and broken UTF-8.
func checkValue(name, value string) error {
	if !utf8.ValidString(value) {
		return invalid("the attribute %q is not valid UTF-8", clip(name))
	}
	for _, r := range value {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return invalid("the attribute %q has a control character", clip(name))
		}
	}
	return nil
}

// isJSON tells whether a media type declares JSON; no media type does so too.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json")
}

func isText(contentType string) bool {
	t, params, err := mime.ParseMediaType(contentType)
	if err != nil || !(strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+xml") || t == "application/xml") {
		return false
	}
	charset := strings.ToLower(params["charset"])
	return charset == "" || charset == "utf-8" || charset == "us-ascii"
}

func invalid(format string, args ...any) error {
	return schema.Errorf(schema.Invalid, "cloudevent: "+format, args...)
}

func clip(s string) string {
	const max = 40
	if len(s) > max {
		return s[:max] + "…"
	}
	return s
}
