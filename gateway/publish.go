package gateway

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cloudevents"
)

const (
	headerIdempotencyKey  = "Idempotency-Key"
	headerAttributePrefix = "Handfast-Attribute-"
	contentTypeText       = "text/plain; charset=utf-8"
)

// wireMessage is one message in a request.
type wireMessage struct {
	Content        *string           `json:"message_content"`
	ContentBase64  *string           `json:"message_content_base64"`
	ContentType    string            `json:"content_type"`
	Key            string            `json:"key"`
	Attributes     map[string]string `json:"attributes"`
	Delay          seconds           `json:"delay"`
	IdempotencyKey string            `json:"idempotency_key"`
}

// wirePublish is the body of POST /publish_message.
type wirePublish struct {
	Topic     schema.TopicID `json:"topic_id"`
	Publisher schema.UserID  `json:"publisher_id"`
	wireMessage
}

type wirePublishBatch struct {
	Topic          schema.TopicID `json:"topic_id"`
	Publisher      schema.UserID  `json:"publisher_id"`
	IdempotencyKey string         `json:"idempotency_key"`
	Messages       []wireMessage  `json:"messages"`
}

// intake is what a publish request asks for, in whichever form it came.
type intake struct {
	topic     schema.TopicID
	publisher schema.UserID
	messages  []schema.Publish
}

func (g *Gateway) publishMessage(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	in, err := g.readMessage(c)
	if err != nil {
		return err
	}
	results, err := g.publish(caller{c, u}, in)
	if err != nil {
		return err
	}
	if err := results[0].Err; err != nil {
		return err
	}
	out := make([]byte, 0, 80)
	out = append(out, `{"status":"ok","message_id":`...)
	out = strconv.AppendInt(out, int64(results[0].ID), 10)
	if results[0].Duplicate {
		out = append(out, `,"duplicate":true`...)
	}
	c.Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBody(append(out, '}'))
	return nil
}

type wirePublished struct {
	ID        schema.MessageID `json:"message_id,omitzero"`
	Duplicate bool             `json:"duplicate,omitzero"`
	Error     *problem         `json:"error,omitempty"`
}

type wireBatchResults struct {
	Results []wirePublished `json:"results"`
}

func (g *Gateway) publishMessages(c *fiber.Ctx) error {
	u, err := g.user(c)
	if err != nil {
		return err
	}
	in, err := g.readBatch(c)
	if err != nil {
		return err
	}
	results, err := g.publish(caller{c, u}, in)
	if err != nil {
		return err
	}
	status, out := "ok", wireBatchResults{make([]wirePublished, len(results))}
	for i, r := range results {
		if r.Err != nil {
			p, _ := problemOf(r.Err)
			out.Results[i].Error = &p
			status = "partial"
			continue
		}
		out.Results[i] = wirePublished{ID: r.ID, Duplicate: r.Duplicate}
	}
	return answer(c, status, out)
}

// publish asks whether the user may, and has the messages written.
func (g *Gateway) publish(by caller, in intake) ([]schema.Published, error) {
	ctx, cancel := call()
	defer cancel()
	if err := checkID("topic_id", in.topic); err != nil {
		return nil, err
	}
	publisher := by.or(in.publisher)
	topic, err := g.topicFor(ctx, by, publisher, schema.ActionPublish, in.topic)
	if err != nil {
		return nil, err
	}
	level, err := schema.ParseAckLevel(topic.pattern.AckLevel)
	if err != nil {
		return nil, err
	}
	if topic.limits != (schema.Limits{}) {
		if err := g.quotas.check(publisher, topic, in.messages); err != nil {
			return nil, err
		}
	}
	for i := range in.messages {
		in.messages[i].Publisher = publisher
	}
	results := g.cfg.Broker.Publish(ctx, topic.Topic, level, in.messages)
	g.metrics.publishedResults(results)
	return results, nil
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
		m, err := w.message()
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

// readBatch reads many messages: JSON, or a batch of CloudEvents.
func (g *Gateway) readBatch(c *fiber.Ctx) (intake, error) {
	if cloudevents.ModeOf(mediaType(c)) == cloudevents.Batch {
		return readEvents(c)
	}
	var w wirePublishBatch
	if err := decode(c, &w); err != nil {
		return intake{}, err
	}
	in := intake{topic: w.Topic, publisher: w.Publisher, messages: make([]schema.Publish, len(w.Messages))}
	for i := range w.Messages {
		m, err := w.Messages[i].message()
		if err != nil {
			return in, schema.WrapError(schema.KindOf(err), err, "messages/%d: %s", i, err.Error())
		}
		in.messages[i] = m
	}
	if err := headerKey(c, &w.IdempotencyKey); err != nil {
		return in, err
	}
	return in, cmp.Or(checkBatch(in.messages), ofOneBatch(in.messages, w.IdempotencyKey))
}

func readEvents(c *fiber.Ctx) (intake, error) {
	in, m, err := rawEnvelope(c)
	if err != nil {
		return in, err
	}
	events, err := cloudevents.DecodeBatch(c.Request().Body())
	if err != nil {
		return in, err
	}
	for i := range events {
		one := m
		one.IdempotencyKey = ""
		setEvent(&one, &events[i])
		if err := checkMessage(&one); err != nil {
			return in, err
		}
		in.messages = append(in.messages, one)
	}
	return in, cmp.Or(checkBatch(in.messages), ofOneBatch(in.messages, m.IdempotencyKey))
}

// ofOneBatch gives the messages of a batch that has an idempotency key their own, which are the batch's and their places. Those without
// an ordering key go to one partition, so that they share a commit.
func ofOneBatch(messages []schema.Publish, key string) error {
	if len(key) > schema.KeyBytesMax {
		return errKeyTooLong
	}
	for i := range messages {
		if m := &messages[i]; key != "" && m.IdempotencyKey == "" {
			m.Together, m.IdempotencyKey = key, key+"\x00"+strconv.Itoa(i)
		}
	}
	return nil
}

func checkBatch(messages []schema.Publish) error {
	if len(messages) == 0 {
		return schema.Errorf(schema.Invalid, "messages is empty")
	}
	if len(messages) > schema.BatchMessagesMax {
		return schema.Errorf(schema.TooLarge, "more than %d messages in a batch", schema.BatchMessagesMax)
	}
	bytes := 0
	for i := range messages {
		bytes += len(messages[i].Content)
	}
	if bytes > schema.BatchBytesMax {
		return schema.Errorf(schema.TooLarge, "more than %d bytes of content in a batch", schema.BatchBytesMax)
	}
	return nil
}

// message turns a wire message into one to publish.
func (w *wireMessage) message() (schema.Publish, error) {
	m := schema.Publish{Key: w.Key, IdempotencyKey: w.IdempotencyKey, Delay: time.Duration(w.Delay), ContentType: w.ContentType}
	switch {
	case w.Content != nil && w.ContentBase64 != nil:
		return m, schema.Errorf(schema.Invalid, "message_content and message_content_base64 exclude each other")
	case w.Content != nil:
		m.Content = bytesOf(*w.Content)
		if m.ContentType == "" {
			m.ContentType = contentTypeText
		}
	case w.ContentBase64 != nil:
		content, err := base64.StdEncoding.DecodeString(*w.ContentBase64)
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

// bytesOf shares a string's bytes. Nobody writes into a message's content.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

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

// headerKey takes the idempotency key from the header, where nothing else gave one.
func headerKey(c *fiber.Ctx, key *string) (err error) {
	fields := c.Request().Header.PeekAll(headerIdempotencyKey)
	switch {
	case len(fields) > 1:
		return schema.Errorf(schema.Invalid, "Idempotency-Key is there twice")
	case len(fields) == 1 && len(fields[0]) > 0 && *key == "":
		*key, err = idempotencyKey(string(fields[0]))
	}
	return err
}

// idempotencyKey reads the header: an sf-string, in quotes, or the bare key that many clients send.
func idempotencyKey(header string) (string, error) {
	bad := schema.Errorf(schema.Invalid, "Idempotency-Key must be one string of at most %d printable characters", schema.KeyBytesMax)
	key := strings.TrimSpace(header)
	if strings.HasPrefix(key, `"`) {
		if len(key) < 2 || !strings.HasSuffix(key, `"`) {
			return "", bad
		}
		key = key[1 : len(key)-1]
		var out strings.Builder
		for i := 0; i < len(key); i++ {
			switch {
			case key[i] == '\\' && i+1 < len(key) && (key[i+1] == '"' || key[i+1] == '\\'):
				i++
			case key[i] == '\\', key[i] == '"':
				return "", bad
			}
			out.WriteByte(key[i])
		}
		key = out.String()
	}
	if key == "" || len(key) > schema.KeyBytesMax || !printable(key) {
		return "", bad
	}
	return key, nil
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
