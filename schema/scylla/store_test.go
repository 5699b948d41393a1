package scylla

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/integration/cassandra"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

// shared is the cluster of this binary: its own addresses, so that other binaries may run beside it.
var shared = cassandra.Shared{Options: cassandra.Options{Addresses: []string{"127.0.62.1", "127.0.62.2", "127.0.62.3"}}}

func TestMain(m *testing.M) { shared.Main(m, nil) }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// keyspace is new for each binary: a cluster that runs on has those of former ones.
var keyspace = sync.OnceValue(func() string { return "t" + strings.ReplaceAll(uuid.NewString(), "-", "") })

var (
	migrated   sync.Once
	migrateErr error
)

func config(t testing.TB) Config {
	t.Helper()
	c := shared.Use(t)
	cfg := Config{Hosts: c.Hosts(), Port: c.Port(), Keyspace: keyspace(), Logger: quiet()}
	migrated.Do(func() {
		// Two at once, as nodes that are rolled out together do.
		var g errgroup.Group
		for range 2 {
			g.Go(func() error { return Migrate(context.Background(), cfg) })
		}
		migrateErr = g.Wait()
	})
	if migrateErr != nil {
		t.Fatal(migrateErr)
	}
	return cfg
}

func openStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopen(cfg Config) func(testing.TB, schema.Store) schema.Store {
	return func(t testing.TB, s schema.Store) schema.Store {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return openStore(t, cfg)
	}
}

func TestConformance(t *testing.T) {
	cfg := config(t)
	storetest.Run(t, func(t testing.TB) schema.Store { return openStore(t, cfg) }, storetest.Options{Reopen: reopen(cfg), SharedStore: true})
}

func TestRandom(t *testing.T) {
	cfg := config(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.Compare(t, openStore(t, cfg), storetest.NewMemory(), storetest.RandomOptions{Seed: seed + 10, Steps: 700,
				Partition: schema.PartitionID(1000 + 4*seed), Reopen: reopen(cfg)})
		})
	}
}

func TestArtifacts(t *testing.T) { storetest.RunArtifacts(t, openStore(t, config(t))) }
