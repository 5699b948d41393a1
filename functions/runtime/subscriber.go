package runtime

import (
	"context"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/functions/event"
	"github.com/handfast-mq/handfast/schema"
)

// busyWait is how long a batch waits for an instance before it is held.
const busyWait = 5 * time.Second

// Subscriber is schema.Invoker for targets of type function.
type Subscriber struct {
	Host *Host
	// May tells whether a user may invoke a function now; its error is for the log of deliveries.
	May func(ctx context.Context, u schema.UserID, f *schema.Function) error
	// Events delivers asynchronous invocations, which come by a topic of their function's.
	Events interface {
		Deliver(ctx context.Context, s *schema.Subscription, f *schema.Function, d *schema.Delivery) schema.Result
	}
}

var _ schema.Invoker = (*Subscriber)(nil)

// Invoke delivers a batch as an event in the shape of SQS. That the function is busy uses up no attempt.
func (b *Subscriber) Invoke(ctx context.Context, s *schema.Subscription, batch []schema.Delivery) []schema.Result {
	name, qualifier, _ := strings.Cut(s.Target.Function, ":")
	f := b.Host.opts.Catalog.Function(name)
	if f != nil && f.Events != 0 && f.Events == s.Topic {
		results := make([]schema.Result, len(batch))
		for i := range batch {
			results[i] = b.Events.Deliver(ctx, s, f, &batch[i])
		}
		return results
	}
	return event.Deliver(ctx, s, batch, func(ctx context.Context, payload []byte) (*schema.Invoked, error) {
		if f == nil {
			return nil, schema.Errorf(schema.Gone, "the function is gone")
		}
		if err := b.May(ctx, s.Consumer, f); err != nil {
			return nil, err
		}
		return b.Host.Run(ctx, f, &schema.Invocation{Qualifier: qualifier, Payload: payload, Wait: busyWait})
	})
}
