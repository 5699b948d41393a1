package pebble

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/handfast-mq/handfast/schema"
)

// brokenLog makes a store in memory whose log files fail as inject says.
func brokenLog(t *testing.T, mem vfs.FS, inject func(errorfs.Op) error) *Store {
	t.Helper()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasPrefix(op.Path, "/data/log/") {
			return nil
		}
		return inject(op)
	}))
	return openStore(t, "/data", Options{FS: fs, SegmentBytes: 16 << 10, Logger: quiet()})
}

// onLog fails one kind of operation on log files while it is armed.
type onLog struct {
	kind  errorfs.OpKind
	err   error
	armed atomic.Bool
}

func (o *onLog) inject(op errorfs.Op) error {
	if op.Kind == o.kind && o.armed.Load() {
		return o.err
	}
	return nil
}

// TestBrokenDiskEndsTheLog: after a failed write or sync nothing is acknowledged, even when the disk works again,
// until the store is opened anew; and then all is there that was acknowledged before.
func TestBrokenDiskEndsTheLog(t *testing.T) {
	for name, kind := range map[string]errorfs.OpKind{"sync": errorfs.OpFileSyncData, "write": errorfs.OpFileWriteAt} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			fault := &onLog{kind: kind, err: errors.New("the disk is broken")}
			s := brokenLog(t, mem, fault.inject)
			appendN(t, s, 1, 5)
			fault.armed.Store(true)
			err := s.Append(t.Context(), commitN(6), schema.AckQuorum)
			if schema.KindOf(err) != schema.Internal || !strings.Contains(err.Error(), "opened anew") {
				t.Fatalf("append on a broken disk: %v", err)
			}
			fault.armed.Store(false)
			if err := s.Append(t.Context(), commitN(6), schema.AckQuorum); err == nil {
				t.Fatal("a commit was acknowledged after a failed " + name)
			}
			wantN(t, s, 5)
			if err := s.Close(); err == nil {
				t.Error("Close of a failed log tells nothing")
			}
			s = brokenLog(t, mem, fault.inject)
			for n := 1; n <= 5; n++ {
				wantN(t, s, n)
			}
			appendN(t, s, 6, 40)
			wantN(t, s, 6)
		})
	}
}

// TestFullDisk: a commit that finds no room for a new segment is refused and nothing else happens; when there is
// room again the store goes on.
func TestFullDisk(t *testing.T) {
	full := &onLog{kind: errorfs.OpFilePreallocate, err: syscall.ENOSPC}
	spare := &onLog{kind: errorfs.OpCreate, err: syscall.ENOSPC}
	spare.armed.Store(true) // no spare either
	s := brokenLog(t, vfs.NewMem(), func(op errorfs.Op) error {
		if err := spare.inject(op); err != nil {
			return err
		}
		return full.inject(op)
	})
	appendN(t, s, 1, 5)
	full.armed.Store(true)
	n, err := 6, error(nil)
	for ; err == nil; n++ {
		if n > 100 {
			t.Fatal("100 commits fit on a full disk")
		}
		err = s.Append(t.Context(), commitN(n), schema.AckQuorum)
	}
	refused := n - 1
	if schema.KindOf(err) != schema.Unavailable || !strings.Contains(err.Error(), "full") {
		t.Fatalf("append on a full disk: %v", err)
	}
	if cs, err := s.Commits(t.Context(), 1, 1, schema.Seq(refused), 1); err != nil || len(cs) != 0 {
		t.Fatalf("a refused commit is there: %v %v", cs, err)
	}
	full.armed.Store(false)
	appendN(t, s, refused, refused+50)
	for i := 1; i <= refused+50; i++ {
		wantN(t, s, i)
	}
}

// TestDamage: a byte that changed under a frame is told, and not handed out.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{Logger: quiet(), SegmentBytes: 1 << 20})
	appendN(t, s, 1, 3)
	r, ok, err := s.index.frame(frameKey(1, 1, 4))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	f, err := os.OpenFile(dir+"/log/0000000000000001.log", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{99}, r.at.Offset+5); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Locate(t.Context(), 1, 4)
	if schema.KindOf(err) != schema.Internal {
		t.Fatalf("a damaged frame was read: %v", err)
	}
	wantFrame(t, s, commitN(3).Frames[0])
}
