package pebble

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// bareDisk is the least that group commit can do: the benchmarks' yardstick.
type bareDisk struct {
	f       vfs.File
	at      int64
	mu      sync.Mutex
	pending *bareGroup
	busy    sync.Mutex
}

type bareGroup struct {
	buf  []byte
	done bool
	err  error
}

func newBareDisk(b *testing.B) *bareDisk {
	f, err := vfs.Default.Create(filepath.Join(b.TempDir(), "bare"), vfs.WriteCategoryUnspecified)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < segmentBytes; at += 1 << 20 {
		if _, err := f.WriteAt(zeros, at); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return &bareDisk{f: f, pending: &bareGroup{}}
}

func (d *bareDisk) write(p []byte) error {
	d.mu.Lock()
	g := d.pending
	g.buf = append(g.buf, p...)
	d.mu.Unlock()
	d.busy.Lock()
	defer d.busy.Unlock()
	if g.done {
		return g.err
	}
	d.mu.Lock()
	d.pending = &bareGroup{buf: make([]byte, 0, cap(g.buf))}
	d.mu.Unlock()
	if d.at+int64(len(g.buf)) > segmentBytes {
		d.at = 0
	}
	_, g.err = d.f.WriteAt(g.buf, d.at)
	if g.err == nil {
		g.err = d.f.SyncData()
	}
	d.at += int64(len(g.buf))
	g.done = true
	return g.err
}
