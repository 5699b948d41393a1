package gateway

import (
	"cmp"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cloudevents"
)

type wirePublishBatch struct {
	Topic          schema.TopicID `json:"topic_id"`
	Publisher      schema.UserID  `json:"publisher_id"`
	IdempotencyKey string         `json:"idempotency_key"`
	Messages       []wireMessage  `json:"messages"`
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
	body := jsonBody(c)
	for i := range w.Messages {
		m, err := w.Messages[i].message(body)
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

// ofOneBatch notes a batch's idempotency key with the messages that have none of their own.
func ofOneBatch(messages []schema.Publish, key string) error {
	if len(key) > schema.KeyBytesMax {
		return errKeyTooLong
	}
	for i := range messages {
		if m := &messages[i]; m.IdempotencyKey == "" {
			m.Batch = key
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
