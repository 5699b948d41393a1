// Package pebble is the embedded store: one node, one directory, no other process. Commits go to a segmented log,
// everything else, and the index of the log, to Pebble. docs/decisions/0001-segmented-log.md says why.
package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	cockroach "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

const (
	// segmentBytes: smaller files cost a sync of the directory more often, larger ones keep dead bytes longer.
	segmentBytes = 64 << 20
	// cacheBytes and memTableBytes: the index is small and its newest rows are read from the memtable.
	cacheBytes    = 32 << 20
	memTableBytes = 16 << 20
)

// Options of the embedded store. The zero value is complete.
type Options struct {
	Logger       *slog.Logger // nil = slog.Default
	FS           vfs.FS       // nil = the disk; tests bring one that fails
	SegmentBytes int64        // of one log file; 0 = 64 MiB
}

// Store is an open store. It implements schema.Store; its methods may be called from many goroutines.
type Store struct {
	db     *cockroach.DB
	cache  *cockroach.Cache
	lock   io.Closer
	index  *index
	log    *segment.Log
	logger *slog.Logger
	bytes  int64

	open     sync.RWMutex // held for writing by Close alone
	closed   bool
	meta     metadata
	sessions sessions
	swaps    [64]sync.Mutex // by partition
	attempts attempts

	stop  context.CancelFunc
	done  context.Context
	dirty chan struct{} // cap 1: something was forgotten
	wg    sync.WaitGroup
}

var _ schema.Store = (*Store)(nil)

// Open opens the store in dir, or makes one. It fails with words when another process has it, when it was written
// by a newer version, and when a record that was on stable storage cannot be read.
func Open(dir string, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FS == nil {
		o.FS = privateFS{vfs.Default}
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = segmentBytes
	}
	s := &Store{logger: o.Logger, bytes: o.SegmentBytes, dirty: make(chan struct{}, 1)}
	s.done, s.stop = context.WithCancel(context.Background())
	if err := s.start(dir, o); err != nil {
		s.stop()
		return nil, errors.Join(err, s.release())
	}
	s.wg.Add(1)
	go s.tidy()
	return s, nil
}

func (s *Store) start(dir string, o Options) (err error) {
	if err := o.FS.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make data directory %s: %w", dir, err)
	}
	if err := syncParents(o.FS, dir); err != nil {
		return fmt.Errorf("sync the parent of %s: %w", dir, err)
	}
	if s.lock, err = o.FS.Lock(o.FS.PathJoin(dir, "lock")); err != nil {
		return fmt.Errorf("data directory %s is in use by another process: %w", dir, err)
	}
	if err := checkFormat(o.FS, dir); err != nil {
		return err
	}
	s.cache = cockroach.NewCache(cacheBytes)
	if s.db, err = cockroach.Open(o.FS.PathJoin(dir, "index"), s.pebbleOptions(o)); err != nil {
		return fmt.Errorf("open index in %s: %w", dir, err)
	}
	if s.index, err = openIndex(s.db); err != nil {
		return err
	}
	s.log, err = segment.Open(segment.Options{FS: o.FS, Dir: o.FS.PathJoin(dir, "log"), Bytes: o.SegmentBytes,
		Logger: o.Logger, Mark: s.index.mark, Index: s.index})
	if err != nil {
		return fmt.Errorf("open log in %s: %w", dir, err)
	}
	if err := s.loadMetadata(); err != nil {
		return err
	}
	return s.fenceFormer()
}

func (s *Store) pebbleOptions(o Options) *cockroach.Options {
	p := &cockroach.Options{
		FS: o.FS, Cache: s.cache, MemTableSize: memTableBytes, Logger: logger{o.Logger},
		FormatMajorVersion:          cockroach.FormatNewest,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		MemTableStopWritesThreshold: 4,
	}
	for i := range p.Levels {
		// Most looks are for commits that are not there: filters answer them without reading.
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return p
}

// Close waits for what runs, makes everything durable and gives the directory up. A second Close does nothing.
func (s *Store) Close() error {
	s.stop()
	s.wg.Wait()
	s.open.Lock()
	defer s.open.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.release()
}

// release closes what is open, in the order that keeps the index behind the log.
func (s *Store) release() error {
	var errs []error
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.LogData(nil, cockroach.Sync), s.db.Close())
	}
	if s.cache != nil {
		s.cache.Unref()
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// enter keeps the store open until leave.
func (s *Store) enter() error {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return schema.Errorf(schema.Unavailable, "the store is closed")
	}
	return nil
}

func (s *Store) leave() { s.open.RUnlock() }

// Stats are plain numbers for metrics.
type Stats struct {
	Syncs      int64 // of the log, since Open
	Commits    int64 // indexed since Open
	Segments   int
	Spares     int
	LogBytes   int64 // that the log takes on disk
	LiveBytes  int64 // of frames that are not forgotten
	IndexBytes int64 // that Pebble takes on disk
}

// Stats returns the current numbers.
func (s *Store) Stats() Stats {
	if s.enter() != nil {
		return Stats{}
	}
	defer s.leave()
	l := s.log.Stats()
	st := Stats{Syncs: l.Syncs, Commits: l.Commits, Segments: l.Segments, Spares: l.Spares, LogBytes: l.Bytes,
		IndexBytes: int64(s.db.Metrics().DiskSpaceUsage())}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	for _, n := range s.index.live {
		st.LiveBytes += n
	}
	return st
}

// internal keeps the detail of a failure of the disk for the log.
func internal(err error, doing string) error {
	if err == nil {
		return nil
	}
	return schema.WrapError(schema.Internal, err, "the store cannot %s", doing)
}
