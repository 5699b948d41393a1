package partitions

import (
	"context"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/partitions/dispatch"
	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
)

// local is this node as a peer.Node.
type local struct {
	dispatcher *dispatch.Dispatcher
	republish  func(ctx context.Context, t schema.TopicID, m schema.Publish) error
	catalog    *catalog.Catalog
	free       func(p schema.PartitionID) // a partition of ours is free to take

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

func (l *local) set(o *owner.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners[o.Partition()] = o
}

func (l *local) unset(o *owner.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[o.Partition()] == o {
		delete(l.owners, o.Partition())
	}
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

func (l *local) Sync(ctx context.Context, r schema.Revision) error {
	for l.catalog.Revision() < r {
		if err := l.catalog.CatchUp(ctx); err != nil {
			return err
		}
		if l.catalog.Revision() < r {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

func (l *local) Claim(_ context.Context, p schema.PartitionID) error {
	l.free(p)
	return nil
}
