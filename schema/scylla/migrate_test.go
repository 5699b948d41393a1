package scylla

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cql"
)

// TestVersionIsVerified: a node refuses a database that is behind or different, and takes one that is ahead.
func TestVersionIsVerified(t *testing.T) {
	cfg, ctx := config(t), t.Context()
	cfg.Keyspace += "_versions"
	cfg, err := cfg.complete()
	must(t, err)
	must(t, makeKeyspace(ctx, &cfg))
	d, err := connect(&cfg, cfg.Keyspace)
	must(t, err)
	t.Cleanup(d.Close)
	must(t, makeBookkeeping(ctx, d))
	note := func(version int, sum string) {
		t.Helper()
		must(t, retried(ctx, statementTime, func() error {
			return d.query(ctx, "INSERT INTO schema_migrations (id, version, checksum) VALUES ('handfast', ?, ?)", version, sum).Exec()
		}))
	}
	if _, err := Open(ctx, cfg); err == nil || !strings.Contains(err.Error(), "handfast migrate") {
		t.Errorf("an empty keyspace: %v, want words on handfast migrate", err)
	}
	ms, err := cql.Migrations()
	must(t, err)
	for _, m := range ms {
		note(m.Version, m.Checksum)
	}
	note(len(ms)+5, "of a later program")
	if err := verify(ctx, d); err != nil {
		t.Errorf("a database that is ahead: %v", err)
	}
	note(1, "other")
	for _, err := range []error{verify(ctx, d), migrate(ctx, d)} {
		if schema.KindOf(err) != schema.Conflict || !strings.Contains(err.Error(), ms[0].Name) {
			t.Errorf("a migration with another text: %v", err)
		}
	}
	testLock(t, d)
}

// testLock: one works at a time, and a lock that is lost ends the work.
func testLock(t *testing.T, d *db) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			err := locked(t.Context(), d, func(context.Context) error {
				if !mu.TryLock() {
					return errors.New("two migrate at once")
				}
				defer mu.Unlock()
				_, err := applied(t.Context(), d)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var left int
	must(t, retried(t.Context(), statementTime, func() error {
		iter := d.query(t.Context(), "SELECT attempt FROM schema_lock WHERE id = 'migrate'").Consistency(d.serial).Iter()
		left = iter.NumRows()
		return iter.Close()
	}))
	if left > 0 {
		t.Error("the lock was left behind")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := locked(ctx, d, func(ctx context.Context) error {
		var ok bool
		err := retried(ctx, statementTime, func() (err error) {
			ok, err = d.cas(ctx, "UPDATE schema_lock SET attempt = 'thief' WHERE id = 'migrate' IF holder = ?", holder())
			return err
		})
		if err != nil || !ok {
			t.Errorf("steal the lock: %v %v", ok, err)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "lock on the schema was lost") {
		t.Errorf("a stolen lock: %v", err)
	}
}
