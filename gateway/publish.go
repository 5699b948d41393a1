package gateway

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// publishMessage is the path that everything else must not slow down: it has no wrapper, and writes its answer itself.
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
	ctx := g.deadlines.call()
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
