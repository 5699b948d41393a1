package dispatch

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// pushBatchBytesMax bounds the content of one invocation: the payload limit of a function, less the envelope.
const pushBatchBytesMax = 4 << 20

// lingerFor is how long a worker that has nothing to do waits for more before it ends. Under load that saves a new goroutine, with a
// stack to grow, for every message.
const lingerFor = 10 * time.Millisecond

// work is one worker: it delivers as long as there is something to deliver.
func (s *subscription) work() {
	for {
		if f, batch := s.nextPush(); len(batch) > 0 {
			s.deliver(f, batch)
			continue
		}
		if s.looksAgain() {
			continue
		}
		if !s.linger() {
			return
		}
	}
}

// looksAgain tells a worker that something came while it looked. Otherwise it is not at work any more.
func (s *subscription) looksAgain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signal && s.active() && !time.Now().Before(s.held) {
		s.signal = false
		return true
	}
	s.workers--
	s.lingering++
	s.running.Done()
	return false
}

// linger waits to be called back to work.
func (s *subscription) linger() bool {
	timer := time.NewTimer(lingerFor)
	defer timer.Stop()
	select {
	case <-s.calls:
		return true
	case <-timer.C:
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.calls: // at the last moment
		return true
	default:
		s.lingering--
		return false
	}
}

// start puts one worker more to work. s.mu is held.
func (s *subscription) start() {
	s.workers++
	s.running.Add(1)
	if s.lingering == 0 {
		go s.work()
		return
	}
	s.lingering--
	s.calls <- struct{}{}
}

func (s *subscription) nextPush() (*feed, []schema.Delivery) {
	spec := s.spec()
	s.mu.Lock()
	s.signal = false
	held := time.Now().Before(s.held)
	s.mu.Unlock()
	if held || !s.active() {
		return nil, nil
	}
	if s.limiter.Wait(s.ctx) != nil {
		return nil, nil
	}
	f, batch, more := s.next(s.ctx, max(spec.Target.BatchSize, 1), pushBatchBytesMax, 0)
	if len(batch) > 0 && len(batch) < spec.Target.BatchSize && spec.Target.BatchWindow > 0 {
		batch = s.gather(f, batch, spec)
	}
	if more {
		s.wake()
	}
	return f, batch
}

// gather waits for more messages of a feed until the batch is full or the batch window is over.
func (s *subscription) gather(f *feed, batch []schema.Delivery, spec *schema.Subscription) []schema.Delivery {
	bytes := 0
	for i := range batch {
		bytes += len(batch[i].Content)
	}
	over := time.After(spec.Target.BatchWindow)
	look := time.NewTicker(max(spec.Target.BatchWindow/20, time.Millisecond))
	defer look.Stop()
	for len(batch) < spec.Target.BatchSize && bytes < pushBatchBytesMax {
		for _, d := range f.take(s.ctx, spec.Target.BatchSize-len(batch), pushBatchBytesMax-bytes, 0) {
			bytes += len(d.Content)
			batch = append(batch, d)
		}
		select {
		case <-over:
			return batch
		case <-s.ctx.Done():
			return batch
		case <-look.C:
		}
	}
	return batch
}

// deliver invokes the target with a batch and settles each message by its result.
func (s *subscription) deliver(f *feed, batch []schema.Delivery) {
	spec := s.spec()
	once := spec.Guarantee == schema.AtMostOnce
	if once {
		if batch = f.consume(s.ctx, batch); batch == nil {
			return
		}
	}
	if !s.d.cfg.Fresh(s.ctx) || !s.active() { // fenced, or withdrawn since it was taken
		s.giveBack(f, batch)
		return
	}
	begun := time.Now()
	results := s.invoke(spec, batch)
	took := time.Since(begun)
	hold := time.Duration(0)
	for i := range batch {
		r := schema.Result{Outcome: schema.Failed, Error: "the target gave no result"}
		if i < len(results) {
			r = results[i]
		}
		s.d.metrics.pushed(spec.Target.Type, r.Outcome, took, begun.Sub(batch[i].Time))
		if once {
			s.d.recordOnce(&batch[i], r, took)
		} else {
			f.finish(&batch[i], r, took)
		}
		switch r.Outcome {
		case schema.EndpointGone:
			s.d.change(s.id, schema.Ended, "the endpoint answered that it is gone")
		case schema.Held:
			hold = max(hold, r.RetryAfter, heldPause)
		case schema.Failed:
			s.pauseIfDead(f)
		}
	}
	if hold > 0 {
		s.hold(min(hold, schema.RetryDelayMax))
	}
}

func (s *subscription) invoke(spec *schema.Subscription, batch []schema.Delivery) []schema.Result {
	invoker := s.d.cfg.Invokers[spec.Target.Type]
	if invoker == nil {
		held := make([]schema.Result, len(batch))
		for i := range held {
			held[i] = schema.Result{Outcome: schema.Held, RetryAfter: time.Minute, Error: "this node has no invoker for " + string(spec.Target.Type)}
		}
		return held
	}
	return invoker.Invoke(s.ctx, spec, batch)
}

func (s *subscription) giveBack(f *feed, batch []schema.Delivery) {
	for i := range batch {
		f.finish(&batch[i], schema.Result{Outcome: schema.Held}, 0)
	}
}

// hold stops the workers for a while: the subscriber asked for it, or its breaker is open.
func (s *subscription) hold(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(d)
	if until.Before(s.held) || s.ctx.Err() != nil {
		return
	}
	s.held = until
	if s.heldWake != nil {
		s.heldWake.Stop()
	}
	s.heldWake = time.AfterFunc(d, s.wake)
}

// pauseIfDead pauses a subscription whose endpoint has not succeeded once for failingMax.
func (s *subscription) pauseIfDead(f *feed) {
	f.mu.Lock()
	since := f.cursor.failing
	f.mu.Unlock()
	if since > 0 && time.Since(time.UnixMilli(since)) > failingMax {
		s.d.change(s.id, schema.Paused, "the endpoint has failed for "+failingMax.String()+" without one success")
	}
}

// change asks the metadata to end or pause the subscription. It returns at once: the change comes back through Apply, which waits for workers.
func (d *Dispatcher) change(id schema.SubscriptionID, state schema.State, reason string) {
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
		defer cancel()
		if err := d.cfg.Change(ctx, id, state, reason); err != nil {
			d.cfg.Logger.Warn("a subscription could not be changed", "subscription", id, "state", state, "err", err)
		}
	}()
}
