package owner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

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
	row, err := Takeover(ctx, cfg.Ownership, cfg.Log, cfg.Row, cfg.Session, uuid.NewString())
	if err != nil {
		return nil, err
	}
	o := &Owner{cfg: cfg, partition: row.ID, row: row, window: newWindow(cfg.Keys)}
	o.epoch, _ = row.Open()
	o.next, o.reserved = o.epoch.Start, row.Reserved
	o.committed.Store(int64(o.epoch.Start))
	o.tail = newTail(o.epoch.Start, cfg.TailBytes)
	o.work.L = &o.mu
	if err := o.rebuildWindow(ctx, time.Now().Add(-schema.IdempotencyWindow)); err != nil {
		o.window.close()
		return nil, err
	}
	o.ctx, o.end = context.WithCancel(context.Background())
	o.loops = sync.WaitGroup{}
	o.loops.Add(1)
	go o.run()
	return o, nil
}

const (
	windowPage  = 1000 // commits of one read of the window
	windowPages = 8    // reads side by side
)

// rebuildWindow loads the idempotency keys of the epochs that reach into the window, and the time of the last message.
func (o *Owner) rebuildWindow(ctx context.Context, since time.Time) error {
	var keyed []schema.Commit // newest first
	sealed := o.row.Epochs[:len(o.row.Epochs)-1]
	for i := len(sealed) - 1; i >= 0; i-- {
		older, err := o.readWindow(ctx, sealed[i], since, &keyed)
		if err != nil {
			return fmt.Errorf("read idempotency keys: %w", err)
		}
		if older {
			break
		}
	}
	for _, c := range slices.Backward(keyed) {
		if err := o.window.load(&c); err != nil {
			return err
		}
	}
	return nil
}

// readWindow appends the commits of an epoch that have keys, newest first, and tells whether the epoch begins before the window.
func (o *Owner) readWindow(ctx context.Context, e schema.EpochRow, since time.Time, keyed *[]schema.Commit) (older bool, err error) {
	for last := e.LastSeq; last > 0; last -= windowPages * windowPage {
		var pages [windowPages][]schema.Commit
		g, ctx := errgroup.WithContext(ctx)
		for i := range pages {
			end := last - schema.Seq(i*windowPage)
			if end < 1 {
				break
			}
			g.Go(func() (err error) {
				pages[i], err = o.cfg.Log.Kept(ctx, o.partition, e.Epoch, max(1, end-windowPage+1), end)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return false, err
		}
		for _, page := range pages {
			for _, c := range slices.Backward(page) {
				if c.Time.After(o.time) {
					o.time = c.Time
				}
				if c.Time.Before(since) {
					return true, nil
				}
				if len(c.Keys) > 0 {
					*keyed = append(*keyed, c)
				}
			}
		}
	}
	return false, nil
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

// Release seals the epoch of an owner that was drained and closed, so that the next one need not fence it. It is the owner itself that
// knows where its epoch ends; only when it could not be drained is the log read.
func (o *Owner) Release(ctx context.Context) error {
	o.rowing.Lock()
	defer o.rowing.Unlock()
	o.mu.Lock()
	sealed, drained := o.row.Epochs[len(o.row.Epochs)-1], o.drained
	o.mu.Unlock()
	if drained {
		sealed.Sealed, sealed.End, sealed.LastSeq = true, o.Committed(), o.pipeline.Acked()
	} else if settled, err := settle(ctx, o.cfg.Log, o.partition, sealed); err != nil {
		return err
	} else {
		sealed = settled
	}
	return o.changeRow(ctx, func(row *schema.Partition) {
		row.Epochs = slices.Clone(row.Epochs)
		row.Epochs[len(row.Epochs)-1] = sealed
	})
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
		return schema.Errorf(schema.Unavailable, "partition %d has used up its offsets", o.partition)
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
