package dispatch

import (
	"context"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/handfast-mq/handfast/schema"
)

// buryRetry is how long to wait after the dead letter topic did not take a message.
const buryRetry = 5 * time.Second

// bury writes dying messages to the dead letter topic, one after the other, and settles each after it was written. A message whose
// write fails stays outstanding and is tried again: it is never dropped.
func (f *feed) bury() {
	f.mu.Lock()
	if f.burying || f.stopped || len(f.graves) == 0 {
		f.mu.Unlock()
		return
	}
	f.burying = true
	f.mu.Unlock()
	f.sub.d.work.Add(1)
	go func() {
		defer f.sub.d.work.Done()
		for {
			e := f.nextGrave()
			if e == nil {
				return
			}
			f.buryOne(e)
		}
	}()
}

func (f *feed) nextGrave() *entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || len(f.graves) == 0 {
		f.burying = false
		return nil
	}
	e := f.graves[0]
	f.graves = f.graves[1:]
	return e
}

func (f *feed) buryOne(e *entry) {
	ctx := f.owner.Context()
	m, ok, err := f.load(ctx, e.offset)
	if err == nil && ok {
		err = f.sub.d.cfg.DeadLetter(ctx, f.sub.spec(), &m, e.attempts, e.reason)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[e.offset] != e {
		return
	}
	now := time.Now()
	if err != nil {
		f.sub.d.cfg.Logger.Warn("a dead letter could not be written and is kept", "subscription", f.sub.id, "message", schema.NewMessageID(f.owner.Partition(), e.offset), "err", err)
		f.sub.d.metrics.deadLetterErrors.Inc()
		e.at = now.Add(buryRetry)
		f.setTimer(e)
		return
	}
	f.sub.d.record(f, e, schema.DeadLettered, schema.Result{Error: e.reason}, 0)
	if f.cursor.dead.GetCardinality() >= deadMarksMax {
		oldest := f.cursor.dead.Minimum()
		f.cursor.dead.Remove(oldest)
		f.cursor.redriven.Remove(oldest)
	}
	f.cursor.dead.Add(uint64(e.offset))
	f.settle(e, now)
	f.sub.d.metrics.deadLettered.Inc()
	defer f.sub.wake()
}

// Redrive puts the dead letters of a subscription in the partitions of this node back: each becomes a new message, for this
// subscription alone, by way of publish. It returns how many went, and stops at limit.
func (d *Dispatcher) Redrive(ctx context.Context, id schema.SubscriptionID, limit int, publish func(ctx context.Context, m *schema.Message) error) (int, error) {
	s := d.subscription(id)
	if s == nil {
		return 0, nil
	}
	n := 0
	for _, f := range s.feedsNow() {
		f.mu.Lock()
		dead := roaring64.AndNot(f.cursor.dead, f.cursor.redriven).ToArray()
		f.mu.Unlock()
		for _, o := range dead {
			if n >= limit {
				return n, nil
			}
			m, ok, err := f.load(ctx, schema.Offset(o))
			if err == nil && ok {
				err = publish(ctx, &m)
				n++
			}
			if err != nil {
				return n, err
			}
			f.mu.Lock()
			f.cursor.redriven.Add(o)
			f.mu.Unlock()
			d.saver.mark(f)
		}
	}
	return n, d.saver.flush(ctx, false)
}
