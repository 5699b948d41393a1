// Package scylla is the cluster store: ScyllaDB, or Apache Cassandra 4.1 and later, where every node sees the same rows.
// docs/decisions/0002-cql-tables.md tells how the tables serve the contracts.
package scylla

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gocql/gocql"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/handfast-mq/handfast/schema"
)

// Store is an open store. It implements schema.Store; its methods may be called from many goroutines.
type Store struct {
	cfg    Config
	levels levels

	mu       sync.Mutex
	db       *db
	renewed  time.Time // when a session was last made
	closed   bool
	renewing sync.WaitGroup

	noted *lru.Cache[note, time.Time] // index rows that this process wrote, and when
	sizes *lru.Cache[sumKey, int64]   // of buckets that are full
	rows  [64]chan struct{}           // one compare-and-set at a time per row
	clock clock
	meta  known
}

var _ schema.Store = (*Store)(nil)

// Open connects to a keyspace that Migrate has made. It fails with words when the schema is older than this program, or
// when the database refuses compare-and-sets.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, levels: cfg.Scope.levels()}
	for i := range s.rows {
		s.rows[i] = make(chan struct{}, 1)
	}
	s.noted, _ = lru.New[note, time.Time](notedMax)
	s.sizes, _ = lru.New[sumKey, int64](sizesMax)
	if s.db, err = connect(&cfg, cfg.Keyspace); err != nil {
		return nil, schema.WrapError(schema.Unavailable, err, "cannot use keyspace %s of the database at %v: is it running, and was it migrated?", cfg.Keyspace, cfg.Hosts)
	}
	s.renewed = time.Now()
	for _, check := range []func(context.Context) error{s.oneDatacenter, func(ctx context.Context) error { return verify(ctx, s.db) }, s.probe} {
		if err := check(ctx); err != nil {
			s.db.Close()
			return nil, err
		}
	}
	return s, nil
}

// oneDatacenter refuses local quorums where it is not said of which datacenter: those of two do not meet.
func (s *Store) oneDatacenter(ctx context.Context) error {
	if s.cfg.Scope != Local || s.cfg.Datacenter != "" {
		return nil
	}
	seen := map[string]bool{}
	for _, table := range []string{"system.local", "system.peers"} {
		iter := s.db.query(ctx, "SELECT data_center FROM "+table).Consistency(s.levels.one).Iter()
		for dc := ""; iter.Scan(&dc); {
			seen[dc] = true
		}
		if err := iter.Close(); err != nil {
			return schema.WrapError(schema.Unavailable, err, "the database did not tell its datacenters")
		}
	}
	if len(seen) > 1 {
		return schema.Errorf(schema.Invalid, "the database has %d datacenters: name one, the same for all nodes, or choose scope %s", len(seen), Global)
	}
	return nil
}

// probe finds out whether the keyspace takes compare-and-sets.
func (s *Store) probe(ctx context.Context) error {
	_, err := s.db.cas(ctx, "INSERT INTO probe (id) VALUES ('probe') IF NOT EXISTS")
	var refused gocql.RequestError
	if errors.As(err, &refused) && refused.Code() == gocql.ErrCodeInvalid {
		return schema.WrapError(schema.Unsupported, err, "keyspace %s takes no lightweight transactions: ScyllaDB before 2025.4 needs a keyspace with tablets = {'enabled': false}; let handfast migrate make it", s.cfg.Keyspace)
	}
	if err != nil {
		return schema.WrapError(schema.Unavailable, err, "the database did not answer a lightweight transaction: is a majority of replicas alive?")
	}
	return nil
}

// Close ends the session; calls that run fail. A second Close does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	s.renewing.Wait()
	if !closed {
		s.db.Close()
	}
	return nil
}

func (s *Store) session() (*db, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, schema.Errorf(schema.Unavailable, "the store is closed")
	}
	return s.db, nil
}

// renewEvery bounds how often a session is replaced.
const renewEvery = 5 * time.Second

// lost replaces a session that has no connection left. The driver mends most things by itself, but not when every node had
// another address meanwhile. Nobody waits for it: their time is shorter than a connection may take.
func (s *Store) lost(d *db, err error) {
	if !errors.Is(err, gocql.ErrNoConnections) && !errors.Is(err, gocql.ErrSessionClosed) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.db != d || time.Since(s.renewed) < renewEvery {
		return
	}
	s.renewed = time.Now()
	s.renewing.Go(func() { s.renew(d) })
}

func (s *Store) renew(old *db) {
	fresh, err := connect(&s.cfg, s.cfg.Keyspace)
	if err != nil {
		s.cfg.Logger.Warn("the database cannot be reached", "hosts", s.cfg.Hosts, "err", err)
		return
	}
	s.mu.Lock()
	s.db = fresh // Close waits, and ends this one
	s.mu.Unlock()
	old.Close()
}

// lock admits one compare-and-set of a row at a time: those of one process need not fight each other.
func (s *Store) lock(ctx context.Context, row int64) (unlock func(), err error) {
	c := s.rows[uint64(row)%uint64(len(s.rows))]
	select {
	case c <- struct{}{}:
		return func() { <-c }, nil
	case <-ctx.Done():
		return nil, schema.WrapError(schema.Unavailable, ctx.Err(), "nothing was written: the row was busy too long")
	}
}

// clock gives timestamps in microseconds that grow within this process.
type clock struct {
	mu   sync.Mutex
	last int64
}

func (c *clock) next() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, time.Now().UnixMicro())
	return c.last
}

func checkPartition(p schema.PartitionID) error {
	if p < 0 || p >= schema.PartitionsMax {
		return schema.Errorf(schema.Invalid, "partition %d is outside 0..%d", p, schema.PartitionsMax-1)
	}
	return nil
}
