package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/handfast-mq/handfast/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryIndex keeps what the log tells it, in order.
type memoryIndex struct {
	mu    sync.Mutex
	seqs  []schema.Seq
	mark  Mark
	saved Mark
	cut   *Position
}

func (ix *memoryIndex) Apply(es []*Entry, m Mark) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, e := range es {
		if e.Position.Less(ix.mark.Indexed) {
			return fmt.Errorf("record at %v comes after the mark %v", e.Position, ix.mark.Indexed)
		}
		ix.seqs = append(ix.seqs, e.Seq)
	}
	if m.Indexed.Less(m.Synced) {
		return fmt.Errorf("mark %+v is indexed less than synced", m)
	}
	ix.mark = m
	return nil
}

func (ix *memoryIndex) Truncate(end Position) error { ix.cut = &end; return nil }
func (ix *memoryIndex) Save(m Mark) error           { ix.mark, ix.saved = m, m; return nil }

func open(t *testing.T, fs vfs.FS, mark Mark) (*Log, *memoryIndex) {
	t.Helper()
	l, ix, err := tryOpen(fs, mark)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, ix
}

func tryOpen(fs vfs.FS, mark Mark) (*Log, *memoryIndex, error) {
	ix := &memoryIndex{mark: mark}
	l, err := Open(Options{FS: fs, Dir: "/log", Bytes: 4 << 10, Mark: mark, Index: ix,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	return l, ix, err
}

func write(t *testing.T, l *Log, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := l.Append(t.Context(), sample(n), true); err != nil {
			t.Fatal(err)
		}
	}
}

func seqs(from, to int) (s []schema.Seq) {
	for n := from; n <= to; n++ {
		s = append(s, schema.Seq(n))
	}
	return s
}

// spoil changes one byte of a file.
func spoil(t *testing.T, fs vfs.FS, segment uint64, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(fmt.Sprintf("/log/%016x.log", segment), category)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

func TestReplayFromMark(t *testing.T) {
	fs := vfs.NewMem()
	l, ix := open(t, fs, Mark{})
	write(t, l, 1, 12)
	middle := ix.mark
	write(t, l, 13, 40)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mark Mark
		want []schema.Seq
	}{{Mark{}, seqs(1, 40)}, {middle, seqs(13, 40)}, {ix.mark, nil}} {
		l, again := open(t, fs, c.mark)
		if !slices.Equal(again.seqs, c.want) {
			t.Errorf("replayed %v, want %v", again.seqs, c.want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSealAtTheEnd: a power cut between the seal of a full file and the first record of the next is like any other, however often the
// log is opened there.
func TestSealAtTheEnd(t *testing.T) {
	for opens := 1; opens <= 3; opens++ {
		fs, mark, next := sealedAtTheEnd(t)
		for range opens - 1 {
			l, ix := open(t, fs, mark)
			mark = ix.saved
			if err := l.Close(); err != nil || len(ix.seqs) != 0 {
				t.Fatalf("replayed %v, which the index had: %v", ix.seqs, err)
			}
		}
		l, ix := open(t, fs, mark)
		mark = ix.saved
		write(t, l, next, 2*next)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ix := open(t, fs, mark); !slices.Equal(ix.seqs, seqs(next, 2*next)) {
			t.Fatalf("opened %d times: replayed %v, want %d to %d", opens, ix.seqs, next, 2*next)
		}
	}
}

// sealedAtTheEnd makes a log whose last file is sealed, and returns the number of the record that found no room.
func sealedAtTheEnd(t *testing.T) (fs vfs.FS, mark Mark, next int) {
	t.Helper()
	full := errors.New("no file")
	var refuse atomic.Bool
	fs = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if refuse.Load() && op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, suffix) {
			return full
		}
		return nil
	}))
	l, ix := open(t, fs, Mark{})
	write(t, l, 1, 1)
	refuse.Store(true)
	for next = 2; ; next++ {
		mark = ix.mark // the index keeps the one before a power cut
		if err := l.Append(t.Context(), sample(next), true); errors.Is(err, full) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	refuse.Store(false)
	return fs, mark, next
}

// TestTornTail: the log ends before the first record that is not whole, and what lay behind never comes back, even
// when a new record ends exactly where it begins.
func TestTornTail(t *testing.T) {
	fs := vfs.NewMem()
	l, ix := open(t, fs, Mark{})
	write(t, l, 1, 3)
	before := ix.mark
	write(t, l, 4, 6)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	spoil(t, fs, 1, before.Indexed.Offset+60) // as if 4 was torn and 5, 6 were written
	l, again := open(t, fs, before)
	if len(again.seqs) != 0 || again.mark.Indexed != before.Indexed {
		t.Fatalf("replayed %v to %v from a torn tail", again.seqs, again.mark.Indexed)
	}
	write(t, l, 44, 44) // as long as 4 was
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, last := open(t, fs, again.saved)
	if !slices.Equal(last.seqs, seqs(44, 44)) {
		t.Fatalf("replayed %v, want 44 alone", last.seqs)
	}
}

// TestSealedDamage: a bad record with a later segment behind it is damage, with words.
func TestSealedDamage(t *testing.T) {
	fs := vfs.NewMem()
	l, _ := open(t, fs, Mark{})
	write(t, l, 1, 30)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	spoil(t, fs, 1, 700)
	if _, _, err := tryOpen(fs, Mark{}); err == nil || !strings.Contains(err.Error(), "damaged at byte") {
		t.Fatalf("open over damage: %v", err)
	}
}

// TestIndexAhead: an index that knows more than a power cut left is told where the log ends.
func TestIndexAhead(t *testing.T) {
	fs := vfs.NewMem()
	l, ix := open(t, fs, Mark{})
	write(t, l, 1, 2)
	m := ix.mark
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	end := m.Indexed
	m.Indexed.Offset += 1000
	_, again := open(t, fs, m)
	if again.cut == nil || *again.cut != end || again.saved.Indexed != end {
		t.Fatalf("cut at %v, saved %+v, want %v", again.cut, again.saved, end)
	}
}

// TestReusedFile: records of a file's former life are not read, though they are whole.
func TestReusedFile(t *testing.T) {
	fs := vfs.NewMem()
	l, ix := open(t, fs, Mark{})
	write(t, l, 1, 30)
	for _, id := range l.Sealed() {
		if err := l.Recycle(id); err != nil {
			t.Fatal(err)
		}
	}
	m := ix.mark
	write(t, l, 31, 45) // into reused files
	if l.Stats().Spares > sparesMax {
		t.Errorf("%d spares", l.Stats().Spares)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, again := open(t, fs, m)
	if !slices.Equal(again.seqs, seqs(31, 45)) {
		t.Fatalf("replayed %v, want 31 to 45", again.seqs)
	}
}

// TestSlowDisk: a caller whose time is up does not wait for the disk, and the others get their answer.
func TestSlowDisk(t *testing.T) {
	var once sync.Once
	syncing, release := make(chan struct{}), make(chan struct{})
	armed := make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		select {
		case <-armed:
			if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, suffix) {
				once.Do(func() { close(syncing); <-release })
			}
		default:
		}
		return nil
	}))
	l, ix := open(t, fs, Mark{})
	write(t, l, 1, 1)
	close(armed)
	var wg sync.WaitGroup
	wg.Go(func() { write(t, l, 2, 2) })
	<-syncing
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { gaveUp <- l.Append(ctx, sample(3), true) }()
	wg.Go(func() { write(t, l, 4, 4) })
	cancel()
	err := <-gaveUp
	if k := schema.KindOf(err); k != schema.Unknown && k != schema.Unavailable {
		t.Errorf("an append that was given up: %v", err)
	}
	close(release)
	wg.Wait()
	write(t, l, 5, 5)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	for _, n := range seqs(4, 5) {
		if !slices.Contains(ix.seqs, n) {
			t.Errorf("commit %d is not indexed: %v", n, ix.seqs)
		}
	}
}

func TestTooLarge(t *testing.T) {
	l, _ := open(t, vfs.NewMem(), Mark{})
	c := sample(1)
	c.Frames[0].Blob = make([]byte, RecordBytesMax)
	if err := l.Append(t.Context(), c, true); schema.KindOf(err) != schema.TooLarge {
		t.Fatalf("a commit over the bound: %v", err)
	}
	write(t, l, 1, 1)
}
