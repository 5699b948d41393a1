package partitions

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/handfast-mq/handfast/schema"
)

// The attributes that a dead letter carries beside the message's own.
const (
	AttributeDeadMessage      = "handfast-dead-message-id"
	AttributeDeadTopic        = "handfast-dead-topic-id"
	AttributeDeadSubscription = "handfast-dead-subscription-id"
	AttributeDeadAttempts     = "handfast-dead-attempts"
	AttributeDeadReason       = "handfast-dead-reason"
	AttributeRedriven         = "handfast-redriven-message-id"

	deadReasonBytesMax = 512
)

// deadLetter publishes a message that a subscription gave up to the dead letter topic. Its idempotency key makes sure that a
// second try after an unknown outcome adds nothing. A topic that is gone takes nothing: the message is let go, as without one.
func (s *Service) deadLetter(ctx context.Context, sub *schema.Subscription, m *schema.Message, attempts int, reason string) error {
	if sub.DeadLetter == 0 {
		return nil
	}
	topic, _, _ := s.catalog.Topic(sub.DeadLetter)
	if topic == nil {
		s.logger.Warn("the dead letter topic is gone; the message stays in its own topic until retention", "subscription", sub.ID, "message", m.ID, "topic", sub.DeadLetter)
		return nil
	}
	dead := schema.Publish{
		Publisher: m.Publisher, Key: m.Key, ContentType: m.ContentType, Content: m.Content,
		IdempotencyKey: fmt.Sprintf("dead-%d-%d", sub.ID, m.ID),
		Attributes: append(withoutOurs(m.Attributes),
			schema.Attribute{Name: AttributeDeadMessage, Value: strconv.FormatInt(int64(m.ID), 10)},
			schema.Attribute{Name: AttributeDeadTopic, Value: strconv.FormatInt(int64(m.Topic), 10)},
			schema.Attribute{Name: AttributeDeadSubscription, Value: strconv.FormatInt(int64(sub.ID), 10)},
			schema.Attribute{Name: AttributeDeadAttempts, Value: strconv.Itoa(attempts)},
			schema.Attribute{Name: AttributeDeadReason, Value: reason[:min(len(reason), deadReasonBytesMax)]}),
	}
	return s.PublishOwn(ctx, topic.ID, dead)
}

// redriven makes a new message, for one subscription alone, of its dead letter.
func redriven(s schema.SubscriptionID, m *schema.Message) schema.Publish {
	return schema.Publish{
		Publisher: m.Publisher, Key: m.Key, ContentType: m.ContentType, Content: m.Content, Only: s,
		IdempotencyKey: fmt.Sprintf("redrive-%d-%d", s, m.ID),
		Attributes: append(withoutOurs(m.Attributes),
			schema.Attribute{Name: AttributeRedriven, Value: strconv.FormatInt(int64(m.ID), 10)}),
	}
}

// withoutOurs copies a message's attributes without those of an earlier dead letter.
func withoutOurs(attributes []schema.Attribute) []schema.Attribute {
	kept := make([]schema.Attribute, 0, len(attributes)+5)
	for _, a := range attributes {
		if !strings.HasPrefix(a.Name, "handfast-") {
			kept = append(kept, a)
		}
	}
	return kept
}
