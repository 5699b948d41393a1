package scylla

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v2"

	"github.com/handfast-mq/handfast/schema"
)

// neverRetry keeps the driver from sending anything twice by itself. It would do so with compare-and-sets as well, and report
// the second answer, a false that is none.
type neverRetry struct{}

func (neverRetry) Attempt(gocql.RetryableQuery) bool     { return false }
func (neverRetry) GetRetryType(error) gocql.RetryType    { return gocql.Rethrow }
func (neverRetry) AttemptLWT(gocql.RetryableQuery) bool  { return false }
func (neverRetry) GetRetryTypeLWT(error) gocql.RetryType { return gocql.Rethrow }

// lastingPolicy keeps what its policy knows when the session ends. The driver clears it, so that a policy may serve another session,
// while events of the schema and of nodes are still on their way to it, and then calls a nil function. Ours serves one session.
type lastingPolicy struct{ gocql.HostSelectionPolicy }

func (lastingPolicy) Reset() {}

// logger passes on what the driver says, which is about nodes that come and go.
type logger struct{ to *slog.Logger }

func (l logger) Print(v ...any)            { l.to.Debug("database driver", "says", fmt.Sprint(v...)) }
func (l logger) Println(v ...any)          { l.Print(v...) }
func (l logger) Printf(f string, v ...any) { l.Print(strings.TrimSpace(fmt.Sprintf(f, v...))) }

// db is one session with the database.
type db struct {
	gocqlx.Session
	levels
	hedge gocql.SpeculativeExecutionPolicy
}

func connect(c *Config, keyspace string) (*db, error) {
	return connectWith(c, keyspace, func(*gocql.ClusterConfig) {})
}

func connectWith(c *Config, keyspace string, change func(*gocql.ClusterConfig)) (*db, error) {
	g := c.cluster(keyspace)
	change(g)
	s, err := gocqlx.WrapSession(g.CreateSession())
	if err != nil {
		return nil, err
	}
	return &db{s, c.Scope.levels(), &gocql.SimpleSpeculativeExecution{NumAttempts: 1, TimeoutDelay: c.SpeculateAfter}}, nil
}

// query makes a statement that may be sent twice: a read, or a write of the same bytes with the same timestamp. It is at quorum.
func (d *db) query(ctx context.Context, stmt string, args ...any) *gocqlx.Queryx {
	q := d.Session.ContextQuery(ctx, stmt, nil).Bind(args...)
	q.Idempotent(true).SetSpeculativeExecutionPolicy(d.hedge).Prefetch(0)
	return q
}

// casTime bounds one lightweight transaction: the servers' own limits are 1.8 s and 2 s, and it cannot be sent to a second node when
// the first one hangs.
const casTime = 2500 * time.Millisecond

// cas runs a lightweight transaction, once. With an error its outcome is unknown.
func (d *db) cas(ctx context.Context, stmt string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, casTime)
	defer cancel()
	// The columns of the answer depend on the outcome, so they are not those that the statement was prepared with.
	iter := d.Session.Session.Query(stmt, args...).WithContext(ctx).NoSkipMetadata().Iter()
	row := map[string]any{}
	found := iter.MapScan(row)
	if err := iter.Close(); err != nil {
		return false, err
	}
	applied, ok := row["[applied]"].(bool)
	if !found || !ok {
		return false, errors.New("the answer to a compare-and-set tells nothing")
	}
	return applied, nil
}

// again tells whether a later try may succeed. The driver's context.Canceled says nothing about the caller's context: it is also what
// a statement gets that was being prepared on a connection that is given up.
func again(err error) bool {
	if told := (*schema.Error)(nil); errors.As(err, &told) {
		return false
	}
	var e gocql.RequestError
	if errors.As(err, &e) {
		switch e.Code() {
		case gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeCredentials, gocql.ErrCodeProtocol:
			return false
		}
	}
	return true
}

// try calls f, which must be harmless to do twice, until it succeeds, cannot, or its time is over. An error gets the kind
// and says what was being done.
func (s *Store) try(ctx context.Context, kind schema.Kind, doing string, f func(d *db) error) error {
	err := retried(ctx, s.cfg.RetryTime, func() error {
		d, err := s.session()
		if err == nil {
			err = f(d)
		}
		if err != nil && again(err) && ctx.Err() == nil {
			s.lost(d, err)
		}
		return err
	})
	return failed(kind, err, doing)
}

// retried calls f, which must be harmless to do twice, until it succeeds, cannot, or the limit or the context is over. The error is
// f's last.
func retried(ctx context.Context, limit time.Duration, f func() error) error {
	var last error
	once := func() (struct{}, error) {
		if last = f(); last != nil && (!again(last) || ctx.Err() != nil) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, time.Second
	_, _ = backoff.Retry(ctx, once, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(limit))
	return last
}

// failed keeps the detail for the log, and the kind of an error that has one.
func failed(kind schema.Kind, err error, doing string) error {
	var told *schema.Error
	if err == nil || errors.As(err, &told) {
		return err
	}
	return schema.WrapError(kind, err, "the database did not %s", doing)
}
