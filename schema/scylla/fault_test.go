package scylla

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/integration/cassandra"
	"github.com/handfast-mq/handfast/schema"
)

// controlled returns the cluster where its nodes may be killed.
func controlled(t *testing.T) (*cassandra.Cluster, *Store) {
	cfg := config(t)
	c := shared.Use(t)
	if !c.Controlled() {
		t.Skipf("the nodes of %s are not this test's to kill", cassandra.HostsVariable)
	}
	return c, openStore(t, cfg)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantWorking writes and reads a bit of everything at quorum.
func wantWorking(t *testing.T, s *Store, p schema.PartitionID, first, last schema.Seq) {
	t.Helper()
	appendAll(t, s, p, first, last)
	wantAll(t, s, p, last)
	id := schema.SessionID(uuid.NewString())
	must(t, s.OpenSession(t.Context(), id))
	if live, err := s.SessionLive(t.Context(), id); err != nil || !live {
		t.Fatalf("session: %v %v", live, err)
	}
	must(t, s.SaveCursors(t.Context(), []schema.CursorRow{{Subscription: 1, Partition: p, Epoch: schema.Epoch(first)}}, true))
	row := settled(t, s, p)
	row.Version, row.Attempt = row.Version+1, uuid.NewString()
	swapSettled(t, s, row)
}

func settled(t *testing.T, s *Store, p schema.PartitionID) schema.Partition {
	t.Helper()
	row, err := s.Partition(t.Context(), p)
	must(t, err)
	return row
}

// swapSettled swaps as the owner does: an unknown outcome is settled by reading, a refused one tried again.
func swapSettled(t *testing.T, s *Store, next schema.Partition) {
	t.Helper()
	for {
		ok, current, err := s.SwapPartition(t.Context(), next)
		if err != nil {
			current = settled(t, s, next.ID)
		}
		if ok || current.Attempt == next.Attempt {
			return
		}
		if err == nil {
			t.Fatalf("swap to %+v refused, the row is %+v", next, current)
		}
	}
}

func TestOneReplicaDown(t *testing.T) {
	c, s := controlled(t)
	p := freshPartition()
	appendAll(t, s, p, 1, 10)
	must(t, c.Kill(1))
	wantWorking(t, s, p, 11, 30)
	short, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := s.Append(short, commitOf(p, 31, 10), schema.AckAll); schema.KindOf(err) != schema.Unknown {
		t.Errorf("append on all replicas with one down: %v", err)
	}
	must(t, c.Restart(t.Context(), 1))
	wantWorking(t, s, p, 31, 40)
	// What the dead one missed is there when another one dies.
	must(t, c.Kill(0))
	wantAll(t, s, p, 40)
	must(t, c.Restart(t.Context(), 0))
}

func TestOneReplicaHangs(t *testing.T) {
	c, s := controlled(t)
	p := freshPartition()
	must(t, c.Pause(2))
	wantWorking(t, s, p, 1, 10)
	must(t, c.Resume(2))
	wantWorking(t, s, p, 11, 12)
}

// TestAllReplicasRestart: the process goes on when the whole database was away.
func TestAllReplicasRestart(t *testing.T) {
	c, s := controlled(t)
	p := freshPartition()
	wantWorking(t, s, p, 1, 10)
	for n := range 3 {
		must(t, c.Kill(n))
	}
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if live, err := s.SessionLive(short, "any"); err == nil || live {
		t.Errorf("a session is live on a dead database: %v %v", live, err)
	}
	must(t, c.RestartAll(t.Context()))
	deadline, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	for s.Fence(deadline, "after the restart") != nil {
		must(t, deadline.Err())
	}
	wantAll(t, s, p, 10) // kill -9 loses nothing that was written
	wantWorking(t, s, p, 11, 20)
}
