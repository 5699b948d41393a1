package cassandra

import (
	"context"
	"os"
	"sync"
	"testing"
)

// Shared is the one cluster of a test binary. It starts when the first test asks for it.
type Shared struct {
	Options Options

	once    sync.Once
	cluster *Cluster
	err     error
}

// Use returns the running cluster. A test that cannot have it fails; go test -short leaves it out.
func (s *Shared) Use(t testing.TB) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what needs a cluster")
	}
	s.once.Do(func() { s.cluster, s.err = Start(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Main runs the tests of a binary, to be called by TestMain, and stops the cluster after them. before ends what the tests opened.
func (s *Shared) Main(m *testing.M, before func()) {
	code := m.Run()
	if before != nil {
		before()
	}
	if s.cluster != nil {
		s.cluster.Stop()
	}
	os.Exit(code)
}
