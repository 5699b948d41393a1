package scylla

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cql"
)

// Migrate makes the keyspace where there is none and brings its tables to this program's version. Any number of processes may
// call it at once: one works and the others wait for it. A database that is ahead is left alone.
func Migrate(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	if err := makeKeyspace(ctx, &cfg); err != nil {
		return fmt.Errorf("make keyspace %s: %w", cfg.Keyspace, err)
	}
	d, err := connect(&cfg, cfg.Keyspace)
	if err != nil {
		return schema.WrapError(schema.Unavailable, err, "cannot use keyspace %s", cfg.Keyspace)
	}
	defer d.Close()
	if err := makeBookkeeping(ctx, d); err != nil {
		return err
	}
	if err := verify(ctx, d); err == nil {
		return nil
	}
	return locked(ctx, d, func(ctx context.Context) error { return migrate(ctx, d) })
}

func makeKeyspace(ctx context.Context, cfg *Config) error {
	d, err := connect(cfg, "")
	if err != nil {
		return schema.WrapError(schema.Unavailable, err, "cannot reach the database at %v", cfg.Hosts)
	}
	defer d.Close()
	dc := cfg.Datacenter
	if dc == "" {
		if err := d.query(ctx, "SELECT data_center FROM system.local").Scan(&dc); err != nil {
			return err
		}
	}
	tablets, err := tabletsOption(ctx, d)
	if err != nil {
		return err
	}
	return define(ctx, d, fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = {'class': 'NetworkTopologyStrategy', '%s': %d}%s",
		cfg.Keyspace, dc, cfg.ReplicationFactor, tablets))
}

// makeBookkeeping makes the tables that tell which migrations ran, and who is at it.
func makeBookkeeping(ctx context.Context, d *db) error {
	for _, s := range []string{
		"CREATE TABLE IF NOT EXISTS schema_lock (id text PRIMARY KEY, holder text, attempt text)",
		"CREATE TABLE IF NOT EXISTS schema_migrations (id text, version int, name text, checksum text, at timestamp, PRIMARY KEY ((id), version))",
	} {
		if err := define(ctx, d, s); err != nil {
			return err
		}
	}
	return nil
}

// statementTime bounds how long one statement of a migration is tried. Each can run twice.
const statementTime = 30 * time.Second

// define runs one statement that changes the schema and waits until all nodes know it.
func define(ctx context.Context, d *db, stmt string) error {
	err := retried(ctx, statementTime, func() error {
		if err := d.Session.Session.Query(stmt).WithContext(ctx).Exec(); err != nil {
			return err
		}
		return d.AwaitSchemaAgreement(ctx)
	})
	if err != nil {
		return fmt.Errorf("%.60s…: %w", stmt, err)
	}
	return nil
}

// applied returns the checksums of the migrations that ran, by version.
func applied(ctx context.Context, d *db) (sums map[int]string, err error) {
	err = retried(ctx, statementTime, func() error {
		sums = map[int]string{}
		iter := d.query(ctx, "SELECT version, checksum FROM schema_migrations WHERE id = 'handfast'").Iter()
		var version int
		var sum string
		for iter.Scan(&version, &sum) {
			sums[version] = sum
		}
		return iter.Close()
	})
	return sums, err
}

// verify tells whether the schema has every migration of this program, as it is here. Later ones are no matter.
func verify(ctx context.Context, d *db) error {
	ms, err := cql.Migrations()
	if err != nil {
		return err
	}
	sums, err := applied(ctx, d)
	if err != nil {
		return schema.WrapError(schema.Unavailable, err, "the schema's version cannot be read: run handfast migrate")
	}
	for _, m := range ms {
		if sum, ok := sums[m.Version]; !ok {
			return schema.Errorf(schema.Conflict, "the schema lacks migration %s: run handfast migrate", m.Name)
		} else if sum != m.Checksum {
			return schema.Errorf(schema.Conflict, "migration %s ran with another text than this program has", m.Name)
		}
	}
	return nil
}

func migrate(ctx context.Context, d *db) error {
	ms, err := cql.Migrations()
	if err != nil {
		return err
	}
	sums, err := applied(ctx, d)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if sum, ok := sums[m.Version]; ok && sum == m.Checksum {
			continue
		} else if ok {
			return schema.Errorf(schema.Conflict, "migration %s ran with another text than this program has", m.Name)
		}
		for _, s := range m.Statements {
			if err := define(ctx, d, s); err != nil {
				return fmt.Errorf("migration %s: %w", m.Name, err)
			}
		}
		at := time.Now()
		err := retried(ctx, statementTime, func() error {
			return d.query(ctx, "INSERT INTO schema_migrations (id, version, name, checksum, at) VALUES ('handfast', ?, ?, ?, ?)",
				m.Version, m.Name, m.Checksum, at).Exec()
		})
		if err != nil {
			return fmt.Errorf("note migration %s: %w", m.Name, err)
		}
	}
	return nil
}

const (
	// lockSeconds is how long the lock of a migrator that died holds up the others. The database's clock counts it.
	lockSeconds = 60
	lockRenew   = 15 * time.Second
	lockRetry   = time.Second
)

// locked runs f while it holds the lock row. f's context ends when the lock may be lost.
func locked(ctx context.Context, d *db, f func(context.Context) error) error {
	attempt := uuid.NewString()
	if err := acquire(ctx, d, attempt); err != nil {
		return err
	}
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		cancel(renew(held, d, attempt))
	}()
	err := f(held)
	cancel(nil)
	<-done
	if cause := context.Cause(held); cause != nil && !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	free := context.WithoutCancel(ctx)
	_ = retried(free, lockRenew, func() error { // or it expires
		_, err := d.cas(free, "DELETE FROM schema_lock WHERE id = 'migrate' IF attempt = ?", attempt)
		return err
	})
	return err
}

func acquire(ctx context.Context, d *db, attempt string) error {
	for {
		_, err := d.cas(ctx, fmt.Sprintf("INSERT INTO schema_lock (id, holder, attempt) VALUES ('migrate', ?, ?) IF NOT EXISTS USING TTL %d", lockSeconds), holder(), attempt)
		if err != nil && !again(err) {
			return err
		}
		// Whatever the answer was, the row tells.
		var has string
		_ = d.query(ctx, "SELECT attempt FROM schema_lock WHERE id = 'migrate'").Consistency(d.serial).Scan(&has)
		if has == attempt {
			return nil
		}
		select {
		case <-ctx.Done():
			return schema.WrapError(schema.Unavailable, ctx.Err(), "another process migrates the schema for too long")
		case <-time.After(lockRetry):
		}
	}
}

// renew keeps the lock until the context ends, and fails when it is lost.
func renew(ctx context.Context, d *db, attempt string) error {
	tick := time.NewTicker(lockRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var held bool
		err := retried(ctx, lockRenew, func() (err error) { // an outcome that is unknown is asked again: it writes what it asks for
			held, err = d.cas(ctx, fmt.Sprintf("UPDATE schema_lock USING TTL %d SET holder = ?, attempt = ? WHERE id = 'migrate' IF attempt = ?", lockSeconds), holder(), attempt, attempt)
			return err
		})
		if ctx.Err() == nil && (err != nil || !held) {
			return schema.WrapError(schema.Unavailable, err, "the lock on the schema was lost: run the migration again")
		}
	}
}
