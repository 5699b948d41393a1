package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// ceiling is the database without Handfast: plain statements at quorum, through the same driver.
type ceiling struct {
	session *gocql.Session
	next    atomic.Int64
	version int
}

// newCeiling makes a table of its own in an existing keyspace.
func newCeiling(hosts []string, port int, keyspace string) (*ceiling, error) {
	cfg := gocql.NewCluster(hosts...)
	cfg.Port, cfg.Keyspace, cfg.ProtoVersion, cfg.Timeout, cfg.ConnectTimeout = port, keyspace, 4, 10*time.Second, 10*time.Second
	cfg.Consistency, cfg.SerialConsistency = gocql.Quorum, gocql.Serial
	cfg.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	s, err := cfg.CreateSession()
	if err != nil {
		return nil, err
	}
	c := &ceiling{session: s}
	for _, q := range []string{"CREATE TABLE IF NOT EXISTS bench_plain (id bigint PRIMARY KEY, version int, blob blob)", "INSERT INTO bench_plain (id, version) VALUES (0, 0) IF NOT EXISTS"} {
		if err := s.Query(q).Exec(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return c, nil
}

// drop removes the keyspace with everything in it and ends the session.
func (c *ceiling) drop(keyspace string) error {
	defer c.session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.session.Query("DROP KEYSPACE IF EXISTS " + keyspace).WithContext(ctx).Exec()
}

// inserts is the work of a writer of rows of a size.
func (c *ceiling) inserts(size int) func(int) func() (int, error) {
	return func(worker int) func() (int, error) {
		blob := []byte(event(uint64(worker), size))
		return func() (int, error) {
			return 1, c.session.Query("INSERT INTO bench_plain (id, blob) VALUES (?, ?)", c.next.Add(1), blob).Exec()
		}
	}
}

func (c *ceiling) read() error {
	var version int
	return c.session.Query("SELECT version FROM bench_plain WHERE id = 0").Scan(&version)
}

// swap is one lightweight transaction on one row.
func (c *ceiling) swap() error {
	done, err := c.session.Query("UPDATE bench_plain SET version = ? WHERE id = 0 IF version = ?", c.version+1, c.version).MapScanCAS(map[string]any{})
	if err == nil && !done {
		err = fmt.Errorf("the row of lightweight transactions was changed by somebody else")
	}
	c.version++
	return err
}

// typical repeats do, one after the other, for a time and returns the median in milliseconds.
func typical(d time.Duration, do func() error) (float64, error) {
	var took []time.Duration
	for begun := time.Now(); time.Since(begun) < d || len(took) == 0; {
		from := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(from))
	}
	return float64(percentile(took, 0.5).Microseconds()) / 1000, nil
}
