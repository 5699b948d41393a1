package scylla

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/handfast-mq/handfast/schema"
)

// trace keeps the id of one traced request.
type trace struct {
	mu sync.Mutex
	id []byte
}

func (t *trace) Trace(id []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.id = id
}

var readSummary = regexp.MustCompile(`Read \d+ live rows and (\d+) tombstone cells`)

// tombstones tells how many a read of a whole table met, by what Cassandra says in its trace.
func tombstones(t *testing.T, d *db, stmt string) int {
	t.Helper()
	var tr trace
	iter := d.Session.Session.Query(stmt).Consistency(gocql.All).Trace(&tr).Iter()
	for iter.Scan() {
	}
	_ = iter.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for { // the trace is written behind
		events := d.Session.Session.Query("SELECT activity FROM system_traces.events WHERE session_id = ?", tr.id).WithContext(ctx).Iter()
		most, found, activity := 0, false, ""
		for events.Scan(&activity) {
			if m := readSummary.FindStringSubmatch(activity); m != nil {
				n, _ := strconv.Atoi(m[1])
				most, found = max(most, n), true
			}
		}
		if err := events.Close(); err != nil {
			t.Fatalf("%s: trace: %v", stmt, err)
		}
		if found {
			return most
		}
	}
}

// TestInsertsWriteNoTombstones: a null that is written is a tombstone, and reads stumble over those.
func TestInsertsWriteNoTombstones(t *testing.T) {
	s, p, ctx := openStore(t, config(t)), freshPartition(), t.Context()
	c := commitOf(p, 1, 0)
	c.Keys, c.Frames[0].Blob = nil, nil
	for name, err := range map[string]error{
		"append":     s.Append(ctx, c, schema.AckQuorum),
		"cursor":     s.SaveCursors(ctx, []schema.CursorRow{{Subscription: 1, Partition: p, Epoch: 1}}, true),
		"session":    s.OpenSession(ctx, schema.SessionID("tombstones")),
		"attempt":    s.SaveAttempts(ctx, []schema.Attempt{{Message: schema.NewMessageID(p, 1), Subscription: schema.SubscriptionID(p), At: time.Now()}}),
		"checkpoint": s.SaveCheckpoint(ctx, 0, nil),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	swapSettled(t, s, schema.Partition{ID: p, Version: 1, Attempt: "one"})
	q := strconv.Itoa(int(p))
	for _, stmt := range []string{
		"SELECT * FROM log WHERE partition_id = " + q + " AND epoch = 1 AND bucket = 0",
		"SELECT * FROM log_buckets WHERE partition_id = " + q + " AND epoch = 1",
		"SELECT * FROM log_offsets WHERE partition_id = " + q + " AND span = 0",
		"SELECT * FROM topic_buckets WHERE topic = 1 AND partition_id = " + q,
		"SELECT * FROM frames_fortnight WHERE topic = 1 AND partition_id = " + q + " AND width = 65536 AND start = 0",
		"SELECT * FROM cursors WHERE partition_id = " + q,
		"SELECT * FROM sessions WHERE session = 'tombstones'",
		"SELECT * FROM partitions WHERE partition_id = " + q,
		"SELECT * FROM attempts_by_subscription WHERE subscription = " + q + " AND hour = " + strconv.FormatInt(hourOf(time.Now()), 10),
	} {
		if n := tombstones(t, s.db, stmt); n != 0 {
			t.Errorf("%d tombstones met by %s", n, stmt)
		}
	}
	// The same look finds one that is there.
	must(t, retried(ctx, statementTime, func() error {
		return s.db.query(ctx, "INSERT INTO cursors (partition_id, subscription, epoch, state) VALUES (?, 2, 1, null)", int(p)).Exec()
	}))
	if n := tombstones(t, s.db, "SELECT * FROM cursors WHERE partition_id = "+q); n == 0 {
		t.Error("a null that was written is not seen as a tombstone: the check above proves nothing")
	}
}

// TestFramesExpire: every frame and every row of the log has its table's time to live.
func TestFramesExpire(t *testing.T) {
	s, p, ctx := openStore(t, config(t)), freshPartition(), t.Context()
	for i, retention := range []time.Duration{0, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		c := commitOf(p, schema.Seq(i+1), 10)
		c.Frames[0].Retention = retention
		if err := s.Append(ctx, c, schema.AckQuorum); err != nil {
			t.Fatal(err)
		}
		table, _ := classOf(retention).table()
		var ttl int
		err := s.db.query(ctx, "SELECT ttl(blob) FROM "+table+frameWhere+" AND first = ?", 1, int(p), spanOffsets, 0, int64(c.First())).Scan(&ttl)
		if err != nil || ttl <= int(max(retention, schema.RetentionMin).Seconds()) {
			t.Errorf("retention %v: the frame lives %d s, %v", retention, ttl, err)
		}
		err = s.db.query(ctx, "SELECT ttl(frames) FROM log WHERE partition_id = ? AND epoch = 1 AND bucket = 0 AND seq = ?", int(p), int64(c.Seq)).Scan(&ttl)
		if err != nil || ttl <= int(schema.RetentionMax.Seconds()) {
			t.Errorf("a commit lives %d s, %v", ttl, err)
		}
	}
}
