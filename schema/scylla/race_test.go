package scylla

import (
	"fmt"
	"sync"
	"testing"

	"github.com/handfast-mq/handfast/integration/cassandra"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/storetest"
)

// raceSwaps lets stores that share no lock, as different processes do, fight for each version of a row. Unknown outcomes are settled
// by reading. Whoever holds that it won must be the row's author.
func raceSwaps(t *testing.T, stores []*Store, rounds int) {
	p := freshPartition()
	for version := int64(1); version <= int64(rounds); version++ {
		var mu sync.Mutex
		var wg sync.WaitGroup
		winners := map[string]bool{}
		for i, s := range stores {
			wg.Go(func() {
				attempt := fmt.Sprintf("%d by %d", version, i)
				ok, current, err := s.SwapPartition(t.Context(), schema.Partition{ID: p, Version: version, Attempt: attempt})
				if err != nil {
					if current, err = s.Partition(t.Context(), p); err != nil {
						t.Error(err)
					}
				}
				if ok || current.Attempt == attempt {
					mu.Lock()
					winners[attempt] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		row := settled(t, stores[0], p)
		if row.Version < version-1 || row.Version > version {
			t.Fatalf("round %d ended at version %d", version, row.Version)
		}
		if row.Version == version && (len(winners) != 1 || !winners[row.Attempt]) || row.Version != version && len(winners) != 0 {
			t.Fatalf("round %d: winners %v, row %+v", version, winners, row)
		}
		if row.Version < version {
			version-- // every attempt was lost in the contention: nobody holds that it won
		}
	}
}

func TestSwapRaceOfProcesses(t *testing.T) {
	cfg := config(t)
	raceSwaps(t, []*Store{openStore(t, cfg), openStore(t, cfg), openStore(t, cfg)}, 15)
}

// TestPaxosV1WithoutHints runs the same on a cluster as older ones are set up, where nothing comes to a node that missed it but by
// reads.
func TestPaxosV1WithoutHints(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what needs a cluster")
	}
	c, err := cassandra.Start(t.Context(), cassandra.Options{Addresses: []string{"127.0.63.1", "127.0.63.2", "127.0.63.3"}, Paxos: "v1", NoHints: true, Sync: "group"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	cfg := Config{Hosts: c.Hosts(), Port: c.Port(), Keyspace: keyspace() + "_v1", Logger: quiet()}
	must(t, Migrate(t.Context(), cfg))
	s := openStore(t, cfg)
	raceSwaps(t, []*Store{s, openStore(t, cfg)}, 10)
	storetest.Compare(t, s, storetest.NewMemory(), storetest.RandomOptions{Seed: 7, Steps: 300, Partition: 1000, Reopen: reopen(cfg)})
	if !c.Controlled() {
		return
	}
	p, s := freshPartition(), openStore(t, cfg)
	must(t, c.Kill(1))
	wantWorking(t, s, p, 1, 10)
	must(t, c.Restart(t.Context(), 1))
	must(t, c.Kill(2))
	wantAll(t, s, p, 10)
}
