package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const pullersMax = 10_000 // long polls that wait on one subscription at a node

// Pull hands out up to n messages of a subscription from the partitions of this node; none when none is ready.
func (d *Dispatcher) Pull(ctx context.Context, id schema.SubscriptionID, n, bytesMax int) ([]schema.Delivery, error) {
	s := d.subscription(id)
	if s == nil {
		return nil, nil
	}
	if !s.active() {
		return nil, schema.Errorf(schema.NotConsented, "the subscription is %s", s.spec().State)
	}
	if !d.cfg.Fresh(ctx) {
		return nil, schema.Errorf(schema.Unavailable, "the node cannot tell whether it still owns its partitions").Retry(time.Second)
	}
	var out []schema.Delivery
	bytes, spec := 0, s.spec()
	for len(out) < n && bytes < bytesMax {
		f, batch, more := s.next(ctx, n-len(out), bytesMax-bytes, spec.AckDeadline)
		if spec.Guarantee == schema.AtMostOnce && f != nil {
			batch = f.consume(ctx, batch)
		}
		for i := range batch {
			bytes += len(batch[i].Content)
		}
		out = append(out, batch...)
		if !more || f == nil {
			break
		}
	}
	if len(out) >= n || bytes >= bytesMax { // maybe another puller finds the rest
		s.wake()
	}
	d.metrics.pulled(out)
	return out, nil
}

// Watch returns a channel that is closed when a message of the subscription may have become ready at this node. Who gives up waiting
// calls forget, which hands a wake that came meanwhile on to the next one.
func (d *Dispatcher) Watch(id schema.SubscriptionID) (ready <-chan struct{}, forget func()) {
	c := make(chan struct{})
	s := d.subscription(id)
	if s == nil {
		return c, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pullers) >= pullersMax || s.ctx.Err() != nil {
		return c, func() {}
	}
	s.pullers = append(s.pullers, c)
	return c, func() {
		s.mu.Lock()
		i := slices.Index(s.pullers, c)
		if i >= 0 {
			s.pullers = slices.Delete(s.pullers, i, i+1)
		}
		s.mu.Unlock()
		if i < 0 {
			s.wake()
		}
	}
}

// Ack settles messages of partitions of this node; the answer is durable against the end of the process. One verdict per settlement.
func (d *Dispatcher) Ack(ctx context.Context, id schema.SubscriptionID, list []schema.Settlement) ([]schema.Verdict, error) {
	verdicts, err := d.each(id, list, (*feed).ack)
	if err != nil {
		return nil, err
	}
	if err := d.saver.flush(ctx, false); err != nil {
		return nil, schema.WrapError(schema.Unavailable, err, "the acknowledgement could not be stored: send it again")
	}
	return verdicts, nil
}

// Nack gives messages back, due after a delay.
func (d *Dispatcher) Nack(id schema.SubscriptionID, list []schema.Settlement, delay time.Duration) ([]schema.Verdict, error) {
	verdicts, err := d.each(id, list, func(f *feed, s schema.Settlement) schema.Verdict { return f.nack(s, delay) })
	if s := d.subscription(id); s != nil {
		s.wake()
		for _, f := range s.feedsNow() {
			f.bury()
		}
	}
	return verdicts, err
}

// Extend lets leases end after another while.
func (d *Dispatcher) Extend(id schema.SubscriptionID, list []schema.Settlement, by time.Duration) ([]schema.Verdict, error) {
	return d.each(id, list, func(f *feed, s schema.Settlement) schema.Verdict { return f.extend(s, by) })
}

func (d *Dispatcher) each(id schema.SubscriptionID, list []schema.Settlement, do func(*feed, schema.Settlement) schema.Verdict) ([]schema.Verdict, error) {
	s := d.subscription(id)
	if s == nil {
		return nil, schema.Errorf(schema.NotFound, "there is no such subscription")
	}
	verdicts := make([]schema.Verdict, len(list))
	for i, item := range list {
		f := s.feedOf(item.Message.Partition())
		if f == nil {
			verdicts[i] = schema.NotDelivered
			continue
		}
		verdicts[i] = do(f, item)
	}
	return verdicts, nil
}

func (s *subscription) feedsNow() []*feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.feeds)
}

func (s *subscription) feedOf(p schema.PartitionID) *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds {
		if f.owner.Partition() == p {
			return f
		}
	}
	return nil
}
