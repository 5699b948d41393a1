package gateway

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

const contentTypeText = "text/plain; charset=utf-8"

// wireMessage is one message in a request.
type wireMessage struct {
	Content        span              `json:"message_content"`
	ContentBase64  span              `json:"message_content_base64"`
	ContentType    string            `json:"content_type"`
	Key            string            `json:"key"`
	Attributes     map[string]string `json:"attributes"`
	Delay          seconds           `json:"delay"`
	IdempotencyKey string            `json:"idempotency_key"`
}

// message turns a wire message into one to publish. Its content may be a part of the body that it came in.
func (w *wireMessage) message(body []byte) (schema.Publish, error) {
	m := schema.Publish{Key: w.Key, IdempotencyKey: w.IdempotencyKey, Delay: time.Duration(w.Delay), ContentType: w.ContentType}
	switch {
	case w.Content.given() && w.ContentBase64.given():
		return m, schema.Errorf(schema.Invalid, "message_content and message_content_base64 exclude each other")
	case w.Content.given():
		m.Content = w.Content.in(body)
		if m.ContentType == "" {
			m.ContentType = contentTypeText
		}
	case w.ContentBase64.given():
		content, err := base64.StdEncoding.AppendDecode(nil, w.ContentBase64.in(body))
		if err != nil {
			return m, schema.Errorf(schema.Invalid, "message_content_base64 is not base64")
		}
		m.Content = content
	default:
		return m, schema.Errorf(schema.Invalid, "message_content is missing")
	}
	for name, value := range w.Attributes {
		m.Attributes = append(m.Attributes, schema.Attribute{Name: name, Value: value})
	}
	return m, checkMessage(&m)
}

var errKeyTooLong = schema.Errorf(schema.Invalid, "keys have at most %d bytes", schema.KeyBytesMax)

// checkMessage holds a message against the limits.
func checkMessage(m *schema.Publish) error {
	switch {
	case len(m.Content) > schema.ContentBytesMax:
		return schema.Errorf(schema.TooLarge, "the content has more than %d bytes", schema.ContentBytesMax)
	case len(m.Key) > schema.KeyBytesMax, len(m.IdempotencyKey) > schema.KeyBytesMax:
		return errKeyTooLong
	case m.Delay < 0 || m.Delay > schema.DelayMax:
		return schema.Errorf(schema.Invalid, "delay must be between 0 and %v", schema.DelayMax)
	case len(m.Attributes) > schema.AttributesMax:
		return schema.Errorf(schema.Invalid, "more than %d attributes", schema.AttributesMax)
	case len(m.ContentType) > schema.ContentTypeBytesMax || !printable(m.ContentType):
		return schema.Errorf(schema.Invalid, "content_type must be printable ASCII of at most %d bytes", schema.ContentTypeBytesMax)
	}
	bytes := 0
	for _, a := range m.Attributes {
		bytes += len(a.Name) + len(a.Value)
		if err := checkAttribute(a); err != nil {
			return err
		}
	}
	if bytes > schema.AttributesBytesMax {
		return schema.Errorf(schema.Invalid, "the attributes have more than %d bytes together", schema.AttributesBytesMax)
	}
	return nil
}

func checkAttribute(a schema.Attribute) error {
	if a.Name == "" || len(a.Name) > schema.AttributeNameBytesMax || !token(a.Name) {
		return schema.Errorf(schema.Invalid, "attribute names have 1 to %d letters, digits, '-', '_' or '.'", schema.AttributeNameBytesMax)
	}
	if strings.HasPrefix(strings.ToLower(a.Name), "handfast-") {
		return schema.Errorf(schema.Invalid, "attribute names that begin with handfast- are the system's own")
	}
	if len(a.Value) > schema.AttributeValueBytesMax || !utf8.ValidString(a.Value) {
		return schema.Errorf(schema.Invalid, "attribute values are UTF-8 of at most %d bytes", schema.AttributeValueBytesMax)
	}
	return nil
}

func token(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
