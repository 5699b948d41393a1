package owner

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/handfast-mq/handfast/partitions/frame"
	"github.com/handfast-mq/handfast/schema"
)

// commit is a commit on its way: frozen bytes, and those who wait for it.
type commit struct {
	schema.Commit
	first   schema.Offset // where it begins
	level   schema.AckLevel
	bytes   int
	begun   time.Time
	waiting []*pending
}

// commit forms one commit of the batches and sends it off.
func (o *Owner) commit(batches []*pending) {
	messages := 0
	for _, p := range batches {
		messages += p.batch.Len()
	}
	if err := o.reserve(schema.Offset(messages)); err != nil {
		o.fail(err)
		for _, p := range batches {
			p.finish(notOwner(o.partition))
		}
		return
	}
	c := o.form(batches)
	if len(c.Frames) == 0 { // duplicates alone
		o.attach(batches)
		return
	}
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		for _, p := range batches {
			p.finish(notOwner(o.partition))
		}
		return
	}
	c.Committed = o.pipeline.Acked()
	c.waiting = batches
	o.inFlight = append(o.inFlight, c)
	o.writing++
	o.mu.Unlock()
	o.loops.Add(1)
	go o.write(c)
}

// form gives every message that is not a duplicate its offset and copies the records into one blob per topic.
func (o *Owner) form(batches []*pending) *commit {
	slices.SortStableFunc(batches, func(a, b *pending) int { return int(a.batch.Topic - b.batch.Topic) })
	now := time.Now()
	o.window.expire(now)
	if now = now.Truncate(time.Millisecond); now.After(o.time) {
		o.time = now
	}
	c := &commit{begun: time.Now(), first: o.next, level: schema.AckOne}
	c.Partition, c.Epoch, c.Seq, c.Time = o.partition, o.epoch.Epoch, o.seq+1, o.time
	for first := 0; first < len(batches); {
		last, size := first, 0
		for last < len(batches) && batches[last].batch.Topic == batches[first].batch.Topic {
			size += len(batches[last].batch.Records)
			last++
		}
		if f := o.formFrame(c, batches[first:last], size); f.Count > 0 {
			c.Frames = append(c.Frames, f)
			c.bytes += len(f.Blob)
		}
		first = last
	}
	if len(c.Frames) > 0 {
		o.seq++
	}
	return c
}

func (o *Owner) formFrame(c *commit, batches []*pending, size int) schema.Frame {
	f := schema.Frame{Topic: batches[0].batch.Topic, First: o.next, Time: o.time}
	blob := frame.NewBlob(size)
	for _, p := range batches {
		c.level = max(c.level, p.batch.Level)
		f.Retention = max(f.Retention, p.batch.Retention) // they differ while a change of the topic spreads
		p.results = make([]schema.Published, p.batch.Len())
		if len(p.batch.Keys) == 0 {
			blob = append(blob, p.batch.Records...)
			for i := range p.results {
				p.results[i].ID = schema.NewMessageID(o.partition, o.next)
				o.next++
			}
			p.until = c.Seq
			continue
		}
		blob = o.formKeyed(c, p, blob)
	}
	f.Count = int(o.next - f.First)
	f.Blob = blob
	frame.Seal(blob)
	return f
}

// formKeyed is formFrame's work for a batch with idempotency keys.
func (o *Owner) formKeyed(c *commit, p *pending, blob []byte) []byte {
	keys := p.batch.Keys
	for i := 0; i < len(p.results); {
		n := 1
		if len(keys) > 0 && keys[0].Index == i {
			key := &keys[0]
			keys, n = keys[1:], key.Count
			if o.answerSeen(p, key) {
				i += n
				continue
			}
			o.window.add(key.Digest, seen{offset: o.next, seq: c.Seq, fingerprint: key.Fingerprint}, o.time)
			c.Keys = appendDigest(c.Keys, o.next-c.first, *key)
		}
		blob = append(blob, p.batch.records(i, n)...)
		for ; n > 0; n-- {
			p.results[i].ID = schema.NewMessageID(o.partition, o.next)
			o.next++
			i++
		}
		p.until = c.Seq
	}
	return blob
}

// answerSeen fills in the results of the records whose key was seen, or cannot be remembered. It returns false for a new key.
func (o *Owner) answerSeen(p *pending, key *Key) bool {
	s, found := o.window.find(key.Digest)
	if !found && !o.window.full() {
		return false
	}
	var refused error
	switch {
	case !found:
		refused = schema.Errorf(schema.Busy, "too many idempotency keys within %v: a batch needs one for all its messages", schema.IdempotencyWindow).Retry(time.Minute)
	case s.fingerprint != key.Fingerprint:
		refused = schema.Errorf(schema.Mismatch, "this idempotency key came before with another message")
	default:
		p.until = max(p.until, s.seq)
	}
	for n := range key.Count {
		r := &p.results[key.Index+n]
		if r.Err = refused; refused == nil {
			*r = schema.Published{ID: schema.NewMessageID(o.partition, s.offset+schema.Offset(n)), Duplicate: true}
		}
	}
	return true
}

// attach lets batches of duplicates wait for the commits that hold the originals.
func (o *Owner) attach(batches []*pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range batches {
		i := slices.IndexFunc(o.inFlight, func(c *commit) bool { return c.Seq >= p.until })
		switch {
		case o.err != nil:
			p.finish(notOwner(o.partition))
		case p.until <= o.pipeline.Acked() || i < 0:
			p.finish(nil)
		default:
			o.inFlight[i].waiting = append(o.inFlight[i].waiting, p)
		}
	}
}

// write makes a commit durable, trying again with the same bytes until its time is over.
func (o *Owner) write(c *commit) {
	defer o.loops.Done()
	ctx, cancel := context.WithTimeout(o.ctx, o.cfg.WriteTimeout)
	defer cancel()
	err := o.cfg.Log.Append(ctx, &c.Commit, c.level)
	if err != nil {
		err = o.writeAgain(ctx, c, err)
	}
	if err != nil {
		if o.ctx.Err() == nil {
			o.cfg.Logger.Error("abandoning the epoch: a commit could not be written", "partition", c.Partition, "epoch", c.Epoch, "seq", c.Seq, "err", err)
		}
		o.fail(err)
		return
	}
	o.mu.Lock()
	o.writing--
	o.pipeline.Durable(c.Seq)
	covered, ok := o.pipeline.BeginCheck()
	if o.ready() {
		o.work.Signal()
	}
	o.mu.Unlock()
	if ok {
		o.cfg.Verifier.Verify(func(live bool) { o.verified(covered, live) })
	}
}

func (o *Owner) writeAgain(ctx context.Context, c *commit, err error) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, time.Second
	for err != nil && ctx.Err() == nil {
		o.cfg.Metrics.commitRetries.Inc()
		o.cfg.Logger.Warn("writing a commit again", "partition", c.Partition, "epoch", c.Epoch, "seq", c.Seq, "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause.NextBackOff()):
		}
		err = o.cfg.Log.Append(ctx, &c.Commit, c.level)
	}
	return err
}

// verified acknowledges the commits that a check of the session covered.
func (o *Owner) verified(covered schema.Seq, live bool) {
	if !live {
		o.fail(schema.Errorf(schema.NotOwner, "the node's session is fenced"))
		return
	}
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return
	}
	acked := o.pipeline.EndCheck(covered)
	n := 0
	for n < len(o.inFlight) && o.inFlight[n].Seq <= acked {
		o.tail.add(o.inFlight[n].Frames)
		o.committed.Store(int64(o.inFlight[n].End()))
		n++
	}
	done := slices.Clone(o.inFlight[:n])
	o.inFlight = slices.Delete(o.inFlight, 0, n)
	if n > 0 {
		o.took, o.expected = time.Since(done[n-1].begun), len(o.queue)
		for _, c := range done {
			o.expected += len(c.waiting)
		}
	}
	if o.ready() {
		o.work.Signal()
	}
	o.mu.Unlock()
	for _, c := range done {
		o.acknowledge(c)
	}
}

func (o *Owner) acknowledge(c *commit) {
	messages := 0
	for _, p := range c.waiting {
		p.finish(nil)
	}
	for i := range c.Frames {
		messages += c.Frames[i].Count
		o.cfg.Committed(c.Partition, c.Frames[i].Topic)
	}
	o.cfg.Metrics.committed(messages, c.bytes, time.Since(c.begun))
}
