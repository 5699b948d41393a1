package owner

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

// Open takes a partition over and begins to serve it. It returns when the idempotency window is back in memory.
func Open(ctx context.Context, cfg Config) (*Owner, error) {
	if cfg.TailBytes == 0 {
		cfg.TailBytes = 1 << 20
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	row, err := Takeover(ctx, cfg.Ownership, cfg.Log, cfg.Partition, cfg.Session, uuid.NewString())
	if err != nil {
		return nil, err
	}
	o := &Owner{cfg: cfg, row: row, window: newWindow()}
	o.epoch, _ = row.Open()
	o.next, o.reserved = o.epoch.Start, row.Reserved
	o.committed.Store(int64(o.epoch.Start))
	o.tail = newTail(o.epoch.Start, cfg.TailBytes)
	o.work.L = &o.mu
	if err := o.rebuildWindow(ctx, time.Now().Add(-schema.IdempotencyWindow)); err != nil {
		return nil, err
	}
	o.ctx, o.end = context.WithCancel(context.Background())
	o.loops = sync.WaitGroup{}
	o.loops.Add(1)
	go o.run()
	return o, nil
}

// rebuildWindow loads the idempotency keys of the epochs that reach into the window, and the time of the last message.
func (o *Owner) rebuildWindow(ctx context.Context, since time.Time) error {
	sealed := o.row.Epochs[:len(o.row.Epochs)-1]
	first := len(sealed)
	for first > 0 {
		e := sealed[first-1]
		first--
		if e.LastSeq == 0 {
			continue
		}
		c, ok, err := o.commitAt(ctx, e.Epoch, e.LastSeq)
		if err != nil {
			return err
		}
		if !ok || c.Time.Before(since) {
			o.time = c.Time
			break
		}
	}
	for _, e := range sealed[first:] {
		if err := o.loadWindow(ctx, e, since); err != nil {
			return err
		}
	}
	return nil
}

func (o *Owner) loadWindow(ctx context.Context, e schema.EpochRow, since time.Time) error {
	var failed error
	skip := sort.Search(int(e.LastSeq), func(i int) bool {
		c, ok, err := o.commitAt(ctx, e.Epoch, schema.Seq(i+1))
		if err != nil {
			failed = err
		}
		return ok && !c.Time.Before(since)
	})
	for from := schema.Seq(skip + 1); failed == nil && from <= e.LastSeq; {
		commits, err := o.cfg.Log.Commits(ctx, o.cfg.Partition, e.Epoch, from, 1000)
		if err != nil {
			return fmt.Errorf("read idempotency keys: %w", err)
		}
		if len(commits) == 0 {
			break
		}
		for i := range commits {
			if commits[i].Seq > e.LastSeq {
				break
			}
			if err := o.window.load(&commits[i]); err != nil {
				return err
			}
			o.time = commits[i].Time
		}
		from = commits[len(commits)-1].Seq + 1
	}
	return failed
}

func (o *Owner) commitAt(ctx context.Context, e schema.Epoch, s schema.Seq) (schema.Commit, bool, error) {
	commits, err := o.cfg.Log.Commits(ctx, o.cfg.Partition, e, s, 1)
	if err != nil || len(commits) == 0 {
		return schema.Commit{}, false, err
	}
	return commits[0], true, nil
}

// Checkpoint notes in the partition row how far the epoch is committed, and returns that offset. Retention may forget what lies before it.
func (o *Owner) Checkpoint(ctx context.Context) (schema.Offset, error) {
	o.rowing.Lock()
	defer o.rowing.Unlock()
	o.mu.Lock()
	seq, end := o.pipeline.Acked(), o.Committed()
	noted := o.row.Epochs[len(o.row.Epochs)-1]
	o.mu.Unlock()
	if seq == noted.LastSeq {
		return end, nil
	}
	err := o.changeRow(ctx, func(row *schema.Partition) {
		row.Epochs = slices.Clone(row.Epochs)
		row.Epochs[len(row.Epochs)-1].End, row.Epochs[len(row.Epochs)-1].LastSeq = end, seq
	})
	return end, err
}

// changeRow replaces the partition row, on which this owner alone writes while its epoch is open. o.rowing is held.
func (o *Owner) changeRow(ctx context.Context, change func(*schema.Partition)) error {
	o.mu.Lock()
	next := o.row
	o.mu.Unlock()
	next.Version, next.Attempt = next.Version+1, uuid.NewString()
	change(&next)
	row, err := swap(ctx, o.cfg.Ownership, next)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.row = row
	o.mu.Unlock()
	return nil
}

// reserve makes sure that n more offsets are this epoch's.
func (o *Owner) reserve(n schema.Offset) error {
	if o.next+n <= o.reserved {
		return nil
	}
	if o.next+n > schema.OffsetMax {
		return schema.Errorf(schema.Unavailable, "partition %d has used up its offsets", o.cfg.Partition)
	}
	ctx, cancel := context.WithTimeout(o.ctx, o.cfg.WriteTimeout)
	defer cancel()
	o.rowing.Lock()
	defer o.rowing.Unlock()
	reserved := o.next + n + offsetBlock
	if err := o.changeRow(ctx, func(row *schema.Partition) { row.Reserved = reserved }); err != nil {
		return fmt.Errorf("reserve offsets: %w", err)
	}
	o.reserved = reserved
	return nil
}
