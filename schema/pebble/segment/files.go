package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// sparesMax bounds the dead files that are kept for reuse: writing over old blocks is faster than taking new ones.
	sparesMax = 4
	// handlesMax bounds the open read handles: far below the usual limit on open files.
	handlesMax = 128
	suffix     = ".log"
	sparePre   = "spare-"
	zeroBytes  = 1 << 20
)

type file = vfs.File

// category names the log's writes in Pebble's disk statistics.
const category vfs.DiskWriteCategory = "handfast-log"

// files are the segments in the directory, the spares, and open handles for reading.
type files struct {
	fs     vfs.FS
	dir    string
	bytes  int64
	logger *slog.Logger
	want   chan blocks // cap 1

	mu       sync.Mutex
	segments map[uint64]bool // true = sealed
	nextID   uint64
	spares   []string
	handles  map[uint64]*handle
	uses     int64
}

// blocks says how the blocks of a new file are made.
type blocks bool

const (
	// reserved blocks cost nothing now, and each first write of one its share of the file system's journal.
	reserved blocks = false
	// zeroed blocks were written once, which halves the bandwidth for the time being, and makes small syncs twice as fast afterwards.
	zeroed blocks = true
)

// handle is a read handle that is closed when nobody uses it any more.
type handle struct {
	file file
	refs int // the cache's own counts as one
	used int64
}

func openFiles(o Options) (*files, error) {
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	if err := syncDir(o.FS, o.FS.PathDir(o.Dir)); err != nil {
		return nil, fmt.Errorf("sync the log directory's parent: %w", err)
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("list log directory: %w", err)
	}
	fl := &files{fs: o.FS, dir: o.Dir, bytes: o.Bytes, logger: o.Logger, want: make(chan blocks, 1),
		segments: map[uint64]bool{}, handles: map[uint64]*handle{}, nextID: max(1, o.Mark.Indexed.Segment+1)}
	for _, n := range names {
		var id uint64
		switch {
		case strings.HasPrefix(n, sparePre):
			fl.spares = append(fl.spares, n)
		case strings.HasSuffix(n, suffix):
			if _, err := fmt.Sscanf(n, "%016x.log", &id); err != nil {
				return nil, fmt.Errorf("%q in the log directory is no log file", n)
			}
			fl.segments[id] = true
			fl.nextID = max(fl.nextID, id+1)
		}
	}
	return fl, nil
}

func (fl *files) path(id uint64) string {
	return fl.fs.PathJoin(fl.dir, fmt.Sprintf("%016x%s", id, suffix))
}

// ids returns all segments in order.
func (fl *files) ids() []uint64 {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	ids := make([]uint64, 0, len(fl.segments))
	for id := range fl.segments {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (fl *files) sealed(id uint64) {
	fl.mu.Lock()
	fl.segments[id] = true
	fl.mu.Unlock()
}

// next makes a new segment: from a spare when there is one, otherwise a new file with its room reserved.
func (fl *files) next() (uint64, file, error) {
	fl.mu.Lock()
	id := fl.nextID
	fl.nextID++ // never given twice, even after a failure half way
	spare := ""
	if n := len(fl.spares); n > 0 {
		spare = fl.spares[n-1]
		fl.spares = fl.spares[:n-1]
	}
	fl.mu.Unlock()
	f, err := fl.make(id, spare)
	if err != nil {
		return 0, nil, err
	}
	fl.mu.Lock()
	fl.segments[id] = false
	fl.mu.Unlock()
	return id, f, nil
}

func (fl *files) make(id uint64, spare string) (file, error) {
	if spare != "" {
		if err := fl.fs.Rename(fl.fs.PathJoin(fl.dir, spare), fl.path(id)); err != nil {
			return nil, err
		}
	}
	f, err := fl.fs.OpenReadWrite(fl.path(id), category)
	if err != nil {
		return nil, err
	}
	if spare == "" {
		err = reserve(f, fl.bytes)
	}
	if err == nil {
		err = syncDir(fl.fs, fl.dir)
	}
	if err != nil {
		_ = f.Close()
		_ = fl.fs.Remove(fl.path(id))
		return nil, err
	}
	return f, nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (fl *files) wantSpare(how blocks) {
	select {
	case fl.want <- how:
	default:
	}
}

// makeSpare makes a file for the next segment when there is none.
func (fl *files) makeSpare(ctx context.Context, how blocks) error {
	fl.mu.Lock()
	have := len(fl.spares) > 0
	name := fmt.Sprintf("%s%016x", sparePre, fl.nextID)
	fl.mu.Unlock()
	if have {
		return nil
	}
	path := fl.fs.PathJoin(fl.dir, name)
	f, err := fl.fs.Create(path, category)
	if err != nil {
		return err
	}
	if how == zeroed {
		err = fl.writeZeros(ctx, f)
	} else {
		err = reserve(f, fl.bytes)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = fl.fs.Remove(path)
		return err
	}
	fl.mu.Lock()
	fl.spares = append(fl.spares, name)
	fl.mu.Unlock()
	return nil
}

// reserve takes room for a file where the file system can. A full disk alone is an error.
func reserve(f file, bytes int64) error {
	if err := f.Preallocate(0, bytes); errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}

func (fl *files) writeZeros(ctx context.Context, f file) (err error) {
	zeros := make([]byte, min(zeroBytes, fl.bytes))
	for at := int64(0); at < fl.bytes && err == nil; at += int64(len(zeros)) {
		// Syncing each piece keeps the sync of a waiting commit from finding it all in the disk's queue.
		if err = ctx.Err(); err == nil {
			_, err = f.WriteAt(zeros, at)
		}
		if err == nil {
			err = f.SyncData()
		}
	}
	return err
}

// recycle makes a dead segment a spare, or removes it when there are enough.
func (fl *files) recycle(id uint64) error {
	fl.mu.Lock()
	name := fmt.Sprintf("%sold-%016x", sparePre, id)
	// A power cut may leave a file under its old name and its new one.
	keep := len(fl.spares) < sparesMax && !slices.Contains(fl.spares, name)
	delete(fl.segments, id)
	fl.dropHandle(id)
	fl.mu.Unlock()
	if !keep {
		return fl.fs.Remove(fl.path(id))
	}
	if err := fl.fs.Rename(fl.path(id), fl.fs.PathJoin(fl.dir, name)); err != nil {
		return err
	}
	fl.mu.Lock()
	fl.spares = append(fl.spares, name)
	fl.mu.Unlock()
	return nil
}

// readAt fills b from a segment.
func (fl *files) readAt(id uint64, b []byte, at int64) error {
	h, err := fl.acquire(id)
	if err != nil {
		return err
	}
	defer fl.release(h)
	_, err = h.file.ReadAt(b, at)
	return err
}

func (fl *files) acquire(id uint64) (*handle, error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.uses++
	if h := fl.handles[id]; h != nil {
		h.refs++
		h.used = fl.uses
		return h, nil
	}
	if _, ok := fl.segments[id]; !ok {
		return nil, os.ErrNotExist
	}
	f, err := fl.fs.Open(fl.path(id), vfs.RandomReadsOption)
	if err != nil {
		return nil, err
	}
	if len(fl.handles) >= handlesMax {
		fl.dropHandle(fl.oldestHandle())
	}
	h := &handle{file: f, refs: 2, used: fl.uses}
	fl.handles[id] = h
	return h, nil
}

func (fl *files) oldestHandle() (id uint64) {
	oldest := fl.uses + 1
	for i, h := range fl.handles {
		if h.used < oldest {
			id, oldest = i, h.used
		}
	}
	return id
}

func (fl *files) release(h *handle) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.unref(h)
}

func (fl *files) unref(h *handle) {
	if h.refs--; h.refs == 0 {
		_ = h.file.Close()
	}
}

// dropHandle takes a handle out of the cache. The mutex is held.
func (fl *files) dropHandle(id uint64) {
	if h := fl.handles[id]; h != nil {
		delete(fl.handles, id)
		fl.unref(h)
	}
}

func (fl *files) close() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for id := range fl.handles {
		fl.dropHandle(id)
	}
}
