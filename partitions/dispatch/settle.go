package dispatch

import (
	"container/heap"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// ack settles a message for good.
func (f *feed) ack(s schema.Settlement) schema.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, verdict := f.find(s)
	if e == nil {
		return verdict
	}
	f.sub.d.record(f, e, schema.Delivered, schema.Result{}, 0)
	f.settle(e, time.Now())
	f.succeeded()
	return schema.Acknowledged
}

// nack gives a message back, due after a delay.
func (f *feed) nack(s schema.Settlement, delay time.Duration) schema.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, verdict := f.findLeased(s)
	if e == nil {
		return verdict
	}
	now := time.Now()
	f.sub.d.record(f, e, schema.Nacked, schema.Result{}, 0)
	f.release(e)
	f.failed(e, now, 0, "the consumer gave it back", now.Add(delay))
	return schema.Returned
}

// extend lets a lease end d from now.
func (f *feed) extend(s schema.Settlement, d time.Duration) schema.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, verdict := f.findLeased(s)
	if e == nil {
		return verdict
	}
	e.at = time.Now().Add(d)
	f.setTimer(e)
	return schema.Extended
}

// find returns the entry that a settlement speaks of; without one, the verdict says why. f.mu is held.
func (f *feed) find(s schema.Settlement) (*entry, schema.Verdict) {
	o := s.Message.Offset()
	e := f.entries[o]
	switch {
	case f.stopped:
		return nil, schema.NotDelivered
	case e == nil && (o < f.cursor.floor || f.cursor.acked.Contains(uint64(o))):
		return nil, schema.Acknowledged
	case e == nil, e.lease == 0, e.state == dying:
		return nil, schema.NotDelivered
	case s.Lease != "" && s.Lease != f.leaseName(e):
		return nil, schema.Stale
	}
	return e, ""
}

// findLeased is find for what needs the message to be out: one that is settled, or that nobody holds at this moment, is Stale. f.mu is held.
func (f *feed) findLeased(s schema.Settlement) (*entry, schema.Verdict) {
	e, verdict := f.find(s)
	switch {
	case e == nil && verdict == schema.Acknowledged:
		return nil, schema.Stale
	case e == nil:
		return nil, verdict
	case e.state != leased:
		return nil, schema.Stale
	}
	return e, ""
}

// release takes an entry off the timer. f.mu is held.
func (f *feed) release(e *entry) {
	if e.index >= 0 {
		heap.Remove(&f.timed, e.index)
	}
}

// finish notes how a push ended.
func (f *feed) finish(d *schema.Delivery, r schema.Result, took time.Duration) {
	f.mu.Lock()
	e := f.entries[d.ID.Offset()]
	if f.stopped || e == nil || e.state != leased || f.leaseName(e) != d.Lease {
		f.mu.Unlock()
		return
	}
	now := time.Now()
	f.sub.d.record(f, e, r.Outcome, r, took)
	switch r.Outcome {
	case schema.Delivered:
		f.settle(e, now)
		f.succeeded()
	case schema.Refused:
		f.kill(e, r.Error)
	case schema.Held, schema.EndpointGone:
		e.attempts--
		f.retry(e, now.Add(max(r.RetryAfter, heldPause)), now)
	default:
		if f.cursor.failing == 0 {
			f.cursor.failing = now.UnixMilli()
		}
		f.failed(e, now, r.RetryAfter, r.Error, time.Time{})
	}
	dying := len(f.graves) > 0
	f.mu.Unlock()
	if dying {
		f.bury()
	}
}

// succeeded notes that the subscriber lives. f.mu is held.
func (f *feed) succeeded() { f.cursor.failing = 0 }
