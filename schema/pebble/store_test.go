package pebble

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// small segments make every test cross many of them.
var small = Options{SegmentBytes: 16 << 10, Logger: quiet()}

func openStore(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// reopen closes a store and opens its directory again.
func reopen(dirs map[schema.Store]string, o Options) func(testing.TB, schema.Store) schema.Store {
	return func(t testing.TB, s schema.Store) schema.Store {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		dir := dirs[s]
		n := openStore(t, dir, o)
		dirs[n] = dir
		return n
	}
}

func TestConformance(t *testing.T) {
	dirs := map[schema.Store]string{}
	storetest.Run(t, func(t testing.TB) schema.Store {
		dir := t.TempDir()
		s := openStore(t, dir, small)
		dirs[s] = dir
		return s
	}, storetest.Options{Reopen: reopen(dirs, small)})
}

func TestRandom(t *testing.T) {
	for seed := range uint64(8) {
		dirs := map[schema.Store]string{}
		dir := t.TempDir()
		s := openStore(t, dir, small)
		dirs[s] = dir
		storetest.Compare(t, s, storetest.NewMemory(), storetest.RandomOptions{Seed: seed + 10, Steps: 1500, Reopen: reopen(dirs, small)})
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	openStore(t, dir, small)
	_, err := Open(dir, small)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("error %v, want one that names %s", err, dir)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := openStore(t, dir, small).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, small); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Fatalf("error %v, want one that asks for the newer version", err)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := openStore(t, dir, small)
	appendN(t, s, 1, 100)
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	s := openStore(t, t.TempDir(), small)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
	err := s.Append(t.Context(), commitN(1), schema.AckQuorum)
	if schema.KindOf(err) != schema.Unavailable {
		t.Fatalf("error %v, want Unavailable", err)
	}
}

func TestArtifacts(t *testing.T) { storetest.RunArtifacts(t, openStore(t, t.TempDir(), small)) }
