package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cloudevents"
)

const attributePrefix = "Handfast-Attribute-"

// messageID is the webhook-id: the same on every retry, another one for every subscription and message, and without
// the dot that the signed content is joined with. Digits and underscores only; nobody outside has a say in it.
func messageID(m schema.MessageID, s schema.SubscriptionID) string {
	return "msg_" + strconv.FormatInt(int64(m), 10) + "_" + strconv.FormatInt(int64(s), 10)
}

// newDelivery makes the request that delivers d to s at a time.
func (w *Webhook) newDelivery(s *schema.Subscription, d *schema.Delivery, at time.Time) (*request, error) {
	r := &request{method: http.MethodPost, url: s.Target.URL, once: s.Guarantee == schema.AtMostOnce}
	r.header = make([]header, 0, 12+len(d.Attributes)+4)
	switch s.Target.Format {
	case "":
		r.body = d.Content
		r.add("Content-Type", contentType(d.ContentType))
		for _, a := range d.Attributes {
			r.add(attributePrefix+headerName(a.Name), cloudevents.EncodeHeader(a.Value))
		}
	case "binary":
		e := cloudevents.FromMessage(&d.Message)
		r.body = d.Content
		r.add("Content-Type", contentType(d.ContentType))
		for name, value := range e.Headers() {
			r.add(name, value)
		}
	case "structured":
		e := cloudevents.FromMessage(&d.Message)
		r.body = e.EncodeStructured()
		r.add("Content-Type", cloudevents.StructuredType)
	default:
		return nil, schema.Errorf(schema.Invalid, "the target's format is unknown")
	}
	r.add("Handfast-Topic-Id", strconv.FormatInt(int64(d.Topic), 10))
	r.add("Handfast-Message-Id", strconv.FormatInt(int64(d.ID), 10))
	r.add("Handfast-Subscription-Id", strconv.FormatInt(int64(s.ID), 10))
	r.add("Handfast-Attempt", strconv.Itoa(d.Attempt))
	w.addCommon(r)
	return r, r.sign(s.Secrets, messageID(d.ID, s.ID), at)
}

// addCommon adds what every request of this node carries.
func (w *Webhook) addCommon(r *request) {
	r.add("Webhook-Request-Origin", w.opts.Origin)
	r.add("User-Agent", "Handfast")
	r.add("Accept-Encoding", "identity")
}

func (r *request) add(name, value string) {
	r.header = append(r.header, header{name, value})
}

func (r *request) sign(secrets []schema.Secret, id string, at time.Time) error {
	sig, err := signature(secrets, id, at, r.body)
	if err != nil {
		return err
	}
	r.add("Webhook-Id", id)
	r.add("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	r.add("Webhook-Signature", sig)
	return nil
}

// contentType keeps a stored media type as it is, if it can stand in a header at all.
func contentType(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return "application/octet-stream"
		}
	}
	if s == "" {
		return "application/octet-stream"
	}
	return s
}

// headerName brings an attribute's name into what a header name can be: other characters than letters, digits, dash,
// dot and underscore are percent-encoded, the percent sign too, so that different names stay different.
func headerName(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}
