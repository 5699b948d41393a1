package dispatch

import (
	"time"

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
		f.cursor.dead.Remove(f.cursor.dead.Minimum())
	}
	f.cursor.dead.Add(uint64(e.offset))
	f.settle(e, now)
	f.sub.d.metrics.deadLettered.Inc()
	defer f.sub.wake()
}
