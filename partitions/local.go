package partitions

import (
	"context"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/partitions/dispatch"
	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/schema"
)

// Peer is a node as the router sees it: what it does for the partitions that it owns. A partition that it does not own is a NotOwner
// error. This node and, over the peer transport, every other one implement it.
type Peer interface {
	// Publish writes batches, in their order, to one partition; see owner.Publish.
	Publish(ctx context.Context, p schema.PartitionID, batches ...*owner.Batch) ([]schema.Published, error)
	// Pull hands out up to n messages of a subscription, of up to bytesMax of content and at least one when one is ready.
	Pull(ctx context.Context, s schema.SubscriptionID, n, bytesMax int) ([]schema.Delivery, error)
	// Wait returns when a message of the subscription may have become ready since the call, or when ctx ends. It leases nothing.
	Wait(ctx context.Context, s schema.SubscriptionID) error
	// Settle acknowledges, gives back (due after d) or extends (by d) messages, one verdict each.
	Settle(ctx context.Context, how schema.Settling, s schema.SubscriptionID, list []schema.Settlement, d time.Duration) ([]schema.Verdict, error)
	// Message returns a message and where it stands with the topic's subscriptions; ok is false when there is none.
	Message(ctx context.Context, id schema.MessageID) (m schema.Message, standings []schema.Standing, ok bool, err error)
	// Progress sums up a subscription's progress in the node's partitions.
	Progress(ctx context.Context, s schema.SubscriptionID) (schema.Progress, error)
	// Redrive puts up to limit dead letters of a subscription back.
	Redrive(ctx context.Context, s schema.SubscriptionID, limit int) (int, error)
}

// local is this node as a Peer.
type local struct {
	dispatcher *dispatch.Dispatcher
	republish  func(ctx context.Context, t schema.TopicID, m schema.Publish) error

	mu     sync.RWMutex
	owners map[schema.PartitionID]*owner.Owner
}

func (l *local) owner(p schema.PartitionID) (*owner.Owner, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if o := l.owners[p]; o != nil {
		return o, nil
	}
	return nil, schema.Errorf(schema.NotOwner, "partition %d is not on this node", p).Retry(time.Second)
}

func (l *local) owns(p schema.PartitionID) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.owners[p] != nil
}

func (l *local) set(p schema.PartitionID, o *owner.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o == nil {
		delete(l.owners, p)
		return
	}
	l.owners[p] = o
}

func (l *local) all() []*owner.Owner {
	l.mu.RLock()
	defer l.mu.RUnlock()
	all := make([]*owner.Owner, 0, len(l.owners))
	for _, o := range l.owners {
		all = append(all, o)
	}
	return all
}

func (l *local) Publish(ctx context.Context, p schema.PartitionID, batches ...*owner.Batch) ([]schema.Published, error) {
	o, err := l.owner(p)
	if err != nil {
		return nil, err
	}
	return o.Publish(ctx, batches...)
}

func (l *local) Pull(ctx context.Context, s schema.SubscriptionID, n, bytesMax int) ([]schema.Delivery, error) {
	return l.dispatcher.Pull(ctx, s, n, bytesMax)
}

func (l *local) Wait(ctx context.Context, s schema.SubscriptionID) error {
	ready, forget := l.dispatcher.Watch(s)
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		forget()
		return ctx.Err()
	}
}

func (l *local) Settle(ctx context.Context, how schema.Settling, s schema.SubscriptionID, list []schema.Settlement, d time.Duration) ([]schema.Verdict, error) {
	for i := range list {
		if _, err := l.owner(list[i].Message.Partition()); err != nil {
			return nil, err
		}
	}
	switch how {
	case schema.SettleAck:
		return l.dispatcher.Ack(ctx, s, list)
	case schema.SettleNack:
		return l.dispatcher.Nack(s, list, d)
	default:
		return l.dispatcher.Extend(s, list, d)
	}
}

func (l *local) Message(ctx context.Context, id schema.MessageID) (schema.Message, []schema.Standing, bool, error) {
	o, err := l.owner(id.Partition())
	if err != nil {
		return schema.Message{}, nil, false, err
	}
	m, ok, err := o.Message(ctx, id.Offset())
	if err != nil || !ok {
		return m, nil, false, err
	}
	return m, l.dispatcher.Standings(&m), true, nil
}

func (l *local) Progress(_ context.Context, s schema.SubscriptionID) (schema.Progress, error) {
	return l.dispatcher.Progress(s), nil
}

func (l *local) Redrive(ctx context.Context, s schema.SubscriptionID, limit int) (int, error) {
	return l.dispatcher.Redrive(ctx, s, limit, func(ctx context.Context, m *schema.Message) error {
		return l.republish(ctx, m.Topic, redriven(s, m))
	})
}
