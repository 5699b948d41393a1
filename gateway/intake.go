package gateway

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cloudevents"
)

const headerAttributePrefix = "Handfast-Attribute-"

// intake is what a publish request asks for, in whichever form it came.
type intake struct {
	topic     schema.TopicID
	publisher schema.UserID
	messages  []schema.Publish
}

// wirePublish is the body of POST /publish_message.
type wirePublish struct {
	Topic     schema.TopicID `json:"topic_id"`
	Publisher schema.UserID  `json:"publisher_id"`
	wireMessage
}

// readMessage reads one message: a JSON envelope, a CloudEvent, or the content as the body.
func (g *Gateway) readMessage(c *fiber.Ctx) (intake, error) {
	media := mediaType(c)
	if isEnvelope(c, media) {
		var w wirePublish
		if err := decode(c, &w); err != nil {
			return intake{}, err
		}
		if err := headerKey(c, &w.IdempotencyKey); err != nil {
			return intake{}, err
		}
		m, err := w.message(jsonBody(c))
		return intake{w.Topic, w.Publisher, []schema.Publish{m}}, err
	}
	in, m, err := rawEnvelope(c)
	if err != nil {
		return in, err
	}
	switch cloudevents.ModeOf(media) {
	case cloudevents.Batch:
		return in, schema.Errorf(schema.Unsupported, "batches of CloudEvents go to /publish_messages")
	case cloudevents.Structured:
		event, err := cloudevents.DecodeStructured(c.Request().Body())
		if err != nil {
			return in, err
		}
		setEvent(&m, &event)
	default:
		if err := binaryContent(c, &m); err != nil {
			return in, err
		}
	}
	in.messages = []schema.Publish{m}
	return in, checkMessage(&m)
}

// isEnvelope tells a JSON envelope from a body that is the content. Where the media type says nothing, the query does: it has to
// name the topic of a content.
func isEnvelope(c *fiber.Ctx, media string) bool {
	if len(c.Request().Header.Peek("Ce-Specversion")) > 0 {
		return false
	}
	switch media {
	case fiber.MIMEApplicationJSON:
		return true
	case "", fiber.MIMEApplicationForm:
		return !c.Context().QueryArgs().Has("topic_id")
	}
	return false
}

// rawEnvelope reads from query and headers what a JSON body would say beside the content.
func rawEnvelope(c *fiber.Ctx) (intake, schema.Publish, error) {
	var in intake
	var m schema.Publish
	if err := wantPlain(c); err != nil {
		return in, m, err
	}
	q := paramsOf(c, "topic_id", "publisher_id", "key", "delay", "idempotency_key")
	in.topic, in.publisher = neededID[schema.TopicID](q, "topic_id"), optionalID[schema.UserID](q, "publisher_id")
	m.Key, m.IdempotencyKey = q.text("key"), q.text("idempotency_key")
	if q.err != nil {
		return in, m, q.err
	}
	var err error
	if raw := q.text("delay"); raw != "" {
		if m.Delay, err = parseSeconds(raw); err != nil {
			return in, m, err
		}
	}
	return in, m, headerKey(c, &m.IdempotencyKey)
}

// binaryContent takes the body as the content: of a CloudEvent in binary mode, or of a message that is nothing but bytes.
func binaryContent(c *fiber.Ctx, m *schema.Publish) error {
	if len(c.Request().Header.Peek("Ce-Specversion")) > 0 {
		event, err := cloudevents.DecodeBinary(func(yield func(string, string) bool) {
			for k, v := range c.Request().Header.All() {
				if !yield(string(k), string(v)) {
					return
				}
			}
		}, c.Request().Body())
		if err != nil {
			return err
		}
		setEvent(m, &event)
		return nil
	}
	for k, v := range c.Request().Header.All() {
		if name, found := strings.CutPrefix(string(k), headerAttributePrefix); found {
			value, err := cloudevents.DecodeHeader(string(v))
			if err != nil {
				return err
			}
			name = strings.ToLower(name)
			if slices.ContainsFunc(m.Attributes, func(a schema.Attribute) bool { return a.Name == name }) {
				return schema.Errorf(schema.Invalid, "the attribute %q is there twice", clip(name))
			}
			m.Attributes = append(m.Attributes, schema.Attribute{Name: name, Value: value})
		}
	}
	m.ContentType = string(c.Request().Header.ContentType())
	m.Content = c.Request().Body() // valid until the handler returns, and encoded before that
	return nil
}

// setEvent makes a message of a CloudEvent: its attributes become the message's, its data the content.
func setEvent(m *schema.Publish, e *cloudevents.Event) {
	m.ContentType, m.Content = e.ContentType, e.Data
	for _, a := range e.Attributes {
		if a.Name != "specversion" {
			m.Attributes = append(m.Attributes, a)
		}
	}
}
