package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/handfast-mq/handfast/partitions/frame"
	"github.com/handfast-mq/handfast/schema"
)

// readRetry is how long a feed waits after the log could not be read.
const readRetry = time.Second

// fill reads on until enough is ready, or nothing more is there, or the window is full.
func (f *feed) fill(ctx context.Context, enough int) {
	for {
		f.mu.Lock()
		if len(f.ready) >= enough || !f.mayRead() {
			f.mu.Unlock()
			return
		}
		if len(f.frames) > 0 {
			f.lookThrough(time.Now())
			f.mu.Unlock()
			continue
		}
		f.reading, f.woken = true, false
		from, seeks := f.read, f.cursor.seeks
		f.mu.Unlock()

		frames, next, err := f.owner.Read(ctx, f.sub.topic, from, readBytes)

		f.mu.Lock()
		f.reading = false
		switch {
		case f.stopped || f.cursor.seeks != seeks || f.read != from: // moved meanwhile
		case err != nil:
			f.mu.Unlock()
			f.readFailed(err)
			return
		case len(frames) == 0:
			f.read, f.behind = next, f.woken || next > from
			f.raiseFloor()
		default:
			f.frames = frames
		}
		f.mu.Unlock()
	}
}

// mayRead tells whether the window has room and more may be there. f.mu is held.
func (f *feed) mayRead() bool {
	window := f.sub.spec().MaxOutstanding
	return !f.stopped && !f.reading && (f.behind || len(f.frames) > 0) &&
		f.active < window && len(f.entries) < window*parkedFactor && f.held < heldBytesMax &&
		f.cursor.acked.GetCardinality() < ackedAheadMax
}

// lookThrough takes messages out of the frames that were read, while there is room. f.mu is held.
func (f *feed) lookThrough(now time.Time) {
	for len(f.frames) > 0 {
		fr := &f.frames[0]
		r := frame.Read(fr)
		r.Skip(f.read)
		var m schema.Message
		for f.mayRead() && r.Next(f.owner.Partition(), &m) {
			f.read = m.ID.Offset() + 1
			if f.wanted(&m) {
				f.add(&m, now)
			}
		}
		if err := r.Err(); err != nil {
			f.sub.d.cfg.Logger.Error("a stored frame cannot be read", "partition", f.owner.Partition(), "topic", fr.Topic, "offset", fr.First, "err", err)
			f.read = fr.End()
		}
		if f.read < fr.End() {
			return
		}
		f.frames = f.frames[1:]
	}
}

// wanted tells whether the subscription is to get a message that was read.
func (f *feed) wanted(m *schema.Message) bool {
	o := m.ID.Offset()
	return o >= f.cursor.start && !f.cursor.acked.Contains(uint64(o)) && f.sub.matches(m)
}

func (f *feed) readFailed(err error) {
	if f.owner.Context().Err() != nil {
		return
	}
	f.sub.d.cfg.Logger.Warn("reading for a subscription failed", "subscription", f.sub.id, "partition", f.owner.Partition(), "err", err)
	time.AfterFunc(readRetry, f.sub.wake)
}

// load reads the message of an entry whose content was let go. ok is false when retention took it.
func (f *feed) load(ctx context.Context, o schema.Offset) (m schema.Message, ok bool, err error) {
	frames, _, err := f.owner.Read(ctx, f.sub.topic, o, 1)
	if err != nil || len(frames) == 0 {
		return m, false, err
	}
	r := frame.Read(&frames[0])
	r.Skip(o)
	if !r.Next(f.owner.Partition(), &m) {
		return m, false, r.Err()
	}
	return m, m.ID.Offset() == o, nil
}

// take hands out up to n ready messages of up to bytesMax of content, and at least one when one is ready. A lease of 0 has no end: whoever takes, settles.
func (f *feed) take(ctx context.Context, n, bytesMax int, lease time.Duration) []schema.Delivery {
	f.fill(ctx, n)
	f.mu.Lock()
	var taken []*entry
	bytes := 0
	for len(taken) < n && !f.stopped && (len(taken) == 0 || bytes < bytesMax) {
		e := f.popReady()
		if e == nil {
			break
		}
		if e.loaded && !f.sub.spec().Accepts(e.message.Publisher) {
			f.settle(e, time.Now())
			continue
		}
		bytes += len(e.message.Content)
		f.leases++
		e.state, e.lease = leased, f.leases
		e.attempts++
		taken = append(taken, e)
	}
	f.mu.Unlock()
	if len(taken) == 0 {
		return nil
	}
	return f.handOut(ctx, taken, lease)
}

// handOut turns taken entries into deliveries. The lease begins now.
func (f *feed) handOut(ctx context.Context, taken []*entry, lease time.Duration) []schema.Delivery {
	out := make([]schema.Delivery, 0, len(taken))
	for _, e := range taken {
		m, ok, err := e.message, e.loaded, error(nil)
		if !ok {
			m, ok, err = f.load(ctx, e.offset)
		}
		f.mu.Lock()
		now := time.Now()
		switch {
		case f.entries[e.offset] != e: // the feed moved meanwhile
		case err != nil:
			e.attempts--
			f.retry(e, now.Add(readRetry), now)
		case !ok:
			f.cursor.lost++
			f.settle(e, now)
		default:
			f.drop(e)
			if lease > 0 {
				e.at = now.Add(lease)
				f.setTimer(e)
			}
			out = append(out, schema.Delivery{Message: m, Subscription: f.sub.id, Attempt: e.attempts, Lease: f.leaseName(e)})
		}
		f.mu.Unlock()
	}
	return out
}

// leaseName names one hand-out of one message by one owner.
func (f *feed) leaseName(e *entry) string {
	return fmt.Sprintf("%d.%d", f.owner.Epoch(), e.lease)
}

// consume settles messages before they are handed out: at most once. It returns nil when that could not be made durable.
func (f *feed) consume(ctx context.Context, taken []schema.Delivery) []schema.Delivery {
	if len(taken) == 0 {
		return nil
	}
	f.mu.Lock()
	now := time.Now()
	for i := range taken {
		if e := f.entries[taken[i].ID.Offset()]; e != nil {
			f.settle(e, now)
		}
	}
	f.mu.Unlock()
	// The record is durable before the session is checked, as with commits: a successor that fenced us sees it, or we see the fence.
	if err := f.sub.d.saver.flush(ctx, true); err != nil || !f.owner.Live(ctx) {
		f.sub.d.cfg.Logger.Error("messages of an at-most-once subscription are lost: consumption could not be recorded", "subscription", f.sub.id, "messages", len(taken), "err", err)
		return nil
	}
	return taken
}
