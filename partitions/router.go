package partitions

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/peer"
	"github.com/handfast-mq/handfast/schema"
)

const (
	batchBytesMax = 1 << 20                // of one owner batch: what one commit holds
	stickFor      = 250 * time.Millisecond // how long messages without a key go to the same partition of a topic
)

// Publish writes messages to a topic and returns one result each, in their order. Errors of single messages are in the results.
func (s *Service) Publish(ctx context.Context, t *schema.Topic, level schema.AckLevel, messages []schema.Publish) []schema.Published {
	if len(messages) == 1 || !slices.ContainsFunc(messages, func(m schema.Publish) bool { return named(&m) }) {
		return s.publishTo(ctx, s.partitionOf(t, &messages[0]), t, level, messages)
	}
	results := make([]schema.Published, len(messages))
	groups := map[schema.PartitionID][]int{}
	rest := s.partitionOf(t, &schema.Publish{})
	for i := range messages {
		p := rest
		if m := &messages[i]; named(m) {
			p = s.partitionOf(t, m)
		}
		groups[p] = append(groups[p], i)
	}
	var parts sync.WaitGroup
	for p, indexes := range groups {
		parts.Go(func() {
			some := make([]schema.Publish, len(indexes))
			for j, i := range indexes {
				some[j] = messages[i]
			}
			for j, r := range s.publishTo(ctx, p, t, level, some) {
				results[indexes[j]] = r
			}
		})
	}
	parts.Wait()
	return results
}

// named tells whether something of a message names its partition.
func named(m *schema.Publish) bool { return m.Key != "" || m.Batch != "" || m.IdempotencyKey != "" }

// partitionOf chooses a message's partition: by its ordering key, else by its batch's idempotency key, else by its own, else one of this
// node's that many messages share for a moment, so that they share commits.
func (s *Service) partitionOf(t *schema.Topic, m *schema.Publish) schema.PartitionID {
	if key := cmp.Or(m.Key, m.Batch, m.IdempotencyKey); key != "" {
		return schema.TopicPartition(t.ID, schema.KeyPartition(key, t.Partitions), s.total)
	}
	first := int(time.Now().UnixNano() / int64(stickFor) % int64(t.Partitions))
	for i := range t.Partitions {
		if p := schema.TopicPartition(t.ID, (first+i)%t.Partitions, s.total); s.local.owns(p) {
			return p
		}
	}
	return schema.TopicPartition(t.ID, first, s.total)
}

var batchPool = sync.Pool{New: func() any { return new(owner.Batch) }}

// publishTo writes messages to one partition, at whichever node owns it.
func (s *Service) publishTo(ctx context.Context, p schema.PartitionID, t *schema.Topic, level schema.AckLevel, messages []schema.Publish) []schema.Published {
	var batches []*owner.Batch
	var b *owner.Batch
	for i := range messages {
		if b == nil || len(b.Records)+len(messages[i].Content) > batchBytesMax {
			b = batchPool.Get().(*owner.Batch)
			b.Reset()
			b.Topic, b.Level, b.Retention = t.ID, level, t.RetentionTime
			batches = append(batches, b)
		}
		b.Add(&messages[i], i)
	}
	var results []schema.Published
	err := s.atOwner(ctx, p, func(node peer.Node) (err error) {
		results, err = node.Publish(ctx, p, batches...)
		return err
	})
	if err != nil {
		results = make([]schema.Published, len(messages))
		for i := range results {
			results[i].Err = err
		}
	}
	if schema.KindOf(err) != schema.Unknown || err == nil {
		for _, b := range batches {
			if cap(b.Records) <= batchBytesMax {
				batchPool.Put(b)
			}
		}
	}
	return results
}

// PublishOwn publishes a message of the system's own, within the time of a request. It is durable at the topic's ack level when this
// returns without an error.
func (s *Service) PublishOwn(ctx context.Context, id schema.TopicID, m schema.Publish) error {
	topic, _, pattern := s.catalog.Topic(id)
	if topic == nil {
		return schema.Errorf(schema.NotFound, "there is no topic %d", id)
	}
	level, err := schema.ParseAckLevel(pattern.AckLevel)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.Publish(ctx, topic, level, []schema.Publish{m})[0].Err
}

// atOwner calls do with the node that owns a partition. A node that says NotOwner makes it look again, until ctx ends.
func (s *Service) atOwner(ctx context.Context, p schema.PartitionID, do func(peer.Node) error) error {
	var pause *backoff.ExponentialBackOff
	for {
		node, err := s.nodeOf(p)
		if err == nil {
			err = do(node)
		}
		if err == nil || schema.KindOf(err) != schema.NotOwner {
			return err
		}
		s.lookAround(ctx)
		if pause == nil {
			pause = backoff.NewExponentialBackOff()
			pause.InitialInterval, pause.MaxInterval = 5*time.Millisecond, 50*time.Millisecond
		}
		select {
		case <-ctx.Done():
			return schema.WrapError(schema.Unavailable, err, "the partition has no owner at this moment").Retry(time.Second)
		case <-time.After(pause.NextBackOff()):
		}
	}
}

// lookAgain is how long a long poll relies on being woken. A wake that went to somebody who had just left is made good by it.
const lookAgain = time.Second

// Pull hands out up to n messages of a subscription, waiting up to wait for the first one.
func (s *Service) Pull(ctx context.Context, sub *schema.Subscription, n, bytesMax int, wait time.Duration) ([]schema.Delivery, error) {
	until := time.Now().Add(wait)
	for {
		peers, err := s.nodesOf(sub.Topic)
		if len(peers) == 0 {
			return nil, err
		}
		out, err := s.pullNow(ctx, peers, sub, n, bytesMax)
		if err != nil || len(out) > 0 || time.Until(until) <= 0 {
			return out, err
		}
		w := s.watch(ctx, peers, sub.ID)
		out, err = s.pullNow(ctx, peers, sub, n, bytesMax) // what came before the watch began
		if err != nil || len(out) > 0 {
			w.end()
			return out, err
		}
		w.wait(ctx, min(time.Until(until), lookAgain))
		w.end()
		if ctx.Err() != nil {
			return nil, nil
		}
	}
}

// pullNow asks the peers in turn, beginning with another one each time.
func (s *Service) pullNow(ctx context.Context, peers []peer.Node, sub *schema.Subscription, n, bytesMax int) (out []schema.Delivery, err error) {
	first := int(s.turn.Add(1))
	bytes := 0
	for i := range peers {
		if len(out) >= n || bytes >= bytesMax {
			break
		}
		some, failed := peers[(first+i)%len(peers)].Pull(ctx, sub.ID, n-len(out), bytesMax-bytes)
		if failed != nil {
			err = failed
			continue
		}
		for j := range some {
			bytes += len(some[j].Content)
		}
		out = append(out, some...)
	}
	if len(out) > 0 {
		err = nil
	}
	return out, err
}

// watching waits for the first of several peers to have something ready. Nothing is leased by waiting.
type watching struct {
	ready  chan struct{}
	cancel context.CancelFunc
	peers  sync.WaitGroup
}

func (s *Service) watch(ctx context.Context, peers []peer.Node, id schema.SubscriptionID) *watching {
	w := &watching{ready: make(chan struct{}, len(peers))}
	ctx, w.cancel = context.WithCancel(ctx)
	for _, p := range peers {
		w.peers.Go(func() {
			if p.Wait(ctx, id) == nil {
				w.ready <- struct{}{}
			}
		})
	}
	return w
}

func (w *watching) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *watching) end() {
	w.cancel()
	w.peers.Wait()
}

// Settle acknowledges, gives back or extends messages, wherever their partitions are. One verdict each, in their order.
func (s *Service) Settle(ctx context.Context, how schema.Settling, sub *schema.Subscription, list []schema.Settlement, d time.Duration) ([]schema.Verdict, error) {
	verdicts := make([]schema.Verdict, len(list))
	groups := map[schema.PartitionID][]int{}
	for i := range list {
		p := list[i].Message.Partition()
		if int(p) >= s.total {
			verdicts[i] = schema.NotDelivered
			continue
		}
		groups[p] = append(groups[p], i)
	}
	for p, indexes := range groups {
		some := make([]schema.Settlement, len(indexes))
		for j, i := range indexes {
			some[j] = list[i]
		}
		err := s.atOwner(ctx, p, func(node peer.Node) error {
			got, err := node.Settle(ctx, how, sub.ID, some, d)
			for j := range got {
				verdicts[indexes[j]] = got[j]
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// Message returns a message and where it stands with the subscriptions that are to get it.
func (s *Service) Message(ctx context.Context, id schema.MessageID) (m schema.Message, standings []schema.Standing, ok bool, err error) {
	if int(id.Partition()) >= s.total {
		return m, nil, false, nil
	}
	err = s.atOwner(ctx, id.Partition(), func(node peer.Node) (err error) {
		m, standings, ok, err = node.Message(ctx, id)
		return err
	})
	return m, standings, ok, err
}

// Progress sums up a subscription's progress over all partitions of its topic.
func (s *Service) Progress(ctx context.Context, sub *schema.Subscription) (schema.Progress, error) {
	sum := schema.Progress{CaughtUp: true}
	peers, err := s.nodesOf(sub.Topic)
	for _, node := range peers {
		p, err := node.Progress(ctx, sub.ID)
		if err != nil {
			return sum, err
		}
		sum.Outstanding += p.Outstanding
		sum.Lost += p.Lost
		sum.CaughtUp = sum.CaughtUp && p.CaughtUp
	}
	return sum, err
}

// Redrive puts up to limit dead letters of a subscription back and returns how many.
func (s *Service) Redrive(ctx context.Context, sub *schema.Subscription, limit int) (int, error) {
	n := 0
	peers, err := s.nodesOf(sub.Topic)
	for _, node := range peers {
		some, err := node.Redrive(ctx, sub.ID, limit-n)
		n += some
		if err != nil || n >= limit {
			return n, err
		}
	}
	return n, err
}
