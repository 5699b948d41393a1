package dispatch

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	saveEvery = 100 * time.Millisecond // how much progress a killed process may forget where nobody waits for it
	syncEvery = time.Second            // how much a power cut may take back: those messages come again
)

// saver writes the cursors of a node, many at once. Who needs certainty waits for a flush.
type saver struct {
	store schema.Cursors
	err   func(error)

	mu      sync.Mutex
	dirty   map[*feed]struct{}
	waiting []waiter
	stopped bool
	changed chan struct{} // something is dirty that was not
	asked   chan struct{} // somebody waits

	// Of run alone.
	loose  map[*feed]struct{} // saved since the last sync
	synced time.Time
}

type waiter struct {
	sync bool
	done chan error
}

func newSaver(store schema.Cursors, onError func(error)) *saver {
	return &saver{store: store, err: onError, dirty: map[*feed]struct{}{}, loose: map[*feed]struct{}{},
		changed: make(chan struct{}, 1), asked: make(chan struct{}, 1)}
}

// mark notes that a feed's cursor changed. The feed's lock may be held.
func (s *saver) mark(f *feed) {
	s.mu.Lock()
	s.dirty[f] = struct{}{}
	first := len(s.dirty) == 1
	s.mu.Unlock()
	if first {
		signal(s.changed)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flush waits until all that was marked before the call is stored.
func (s *saver) flush(ctx context.Context, sync bool) error {
	w := waiter{sync: sync, done: make(chan error, 1)}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return schema.Errorf(schema.Unavailable, "the node is stopping")
	}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	signal(s.asked)
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run saves until ctx ends, and once more then. It sleeps while nothing changes.
func (s *saver) run(ctx context.Context) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.stopped = true
			s.mu.Unlock()
			s.save(context.WithoutCancel(ctx), true)
			return
		case <-s.changed:
			due = time.After(saveEvery)
			continue
		case <-due:
		case <-s.asked:
		}
		s.save(ctx, false)
		due = nil
		if len(s.loose) > 0 {
			due = time.After(syncEvery)
		}
	}
}

func (s *saver) save(ctx context.Context, sync bool) {
	s.mu.Lock()
	dirty, waiting := s.dirty, s.waiting
	if len(dirty)+len(waiting)+len(s.loose) == 0 {
		s.mu.Unlock()
		return
	}
	s.dirty, s.waiting = make(map[*feed]struct{}, len(dirty)), nil
	s.mu.Unlock()
	for _, w := range waiting {
		sync = sync || w.sync
	}
	if now := time.Now(); sync || now.Sub(s.synced) > syncEvery {
		sync, s.synced = true, now
		maps.Copy(dirty, s.loose)
	}
	rows := make([]schema.CursorRow, 0, len(dirty))
	for f := range dirty {
		rows = append(rows, f.row())
	}
	err := s.store.SaveCursors(ctx, rows, sync)
	switch {
	case err == nil && sync:
		clear(s.loose)
	case err == nil:
		maps.Copy(s.loose, dirty)
	default:
		s.err(err)
		s.mu.Lock()
		for f := range dirty {
			s.dirty[f] = struct{}{}
		}
		s.mu.Unlock()
		signal(s.changed)
	}
	for _, w := range waiting {
		w.done <- err
	}
}

// row encodes the feed's cursor.
func (f *feed) row() schema.CursorRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return schema.CursorRow{Subscription: f.sub.id, Partition: f.owner.Partition(), Epoch: f.owner.Epoch(), State: f.cursor.encode()}
}
