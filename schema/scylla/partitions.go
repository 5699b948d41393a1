package scylla

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/gocql/gocql"

	"github.com/handfast-mq/handfast/schema"
)

// epochRow is an epoch within a partition's row, as JSON: people read it with cqlsh.
type epochRow struct {
	Epoch   int64  `json:"epoch"`
	Session string `json:"session"`
	Start   int64  `json:"start"`
	Sealed  bool   `json:"sealed,omitempty"`
	End     int64  `json:"end,omitempty"`
	LastSeq int64  `json:"last_seq,omitempty"`
}

func encodeEpochs(es []schema.EpochRow) (string, error) {
	rows := make([]epochRow, len(es))
	for i, e := range es {
		rows[i] = epochRow{int64(e.Epoch), string(e.Session), int64(e.Start), e.Sealed, int64(e.End), int64(e.LastSeq)}
	}
	b, err := json.Marshal(rows)
	return string(b), err
}

func decodeEpochs(s string) ([]schema.EpochRow, error) {
	var rows []epochRow
	if err := json.Unmarshal([]byte(s), &rows); err != nil {
		return nil, schema.WrapError(schema.Internal, err, "a partition's epochs cannot be read")
	}
	var es []schema.EpochRow
	for _, r := range rows {
		es = append(es, schema.EpochRow{Epoch: schema.Epoch(r.Epoch), Session: schema.SessionID(r.Session), Start: schema.Offset(r.Start),
			Sealed: r.Sealed, End: schema.Offset(r.End), LastSeq: schema.Seq(r.LastSeq)})
	}
	return es, nil
}

const partitionColumns = "SELECT partition_id, version, attempt, epochs, reserved FROM partitions"

func scanPartition(iter interface{ Scan(...any) bool }) (p schema.Partition, ok bool, err error) {
	var epochs string
	if !iter.Scan((*int64)(&p.ID), &p.Version, &p.Attempt, &epochs, (*int64)(&p.Reserved)) {
		return p, false, nil
	}
	p.Epochs, err = decodeEpochs(epochs)
	return p, true, err
}

// Partition implements schema.Ownership. The read is serial: it settles a compare-and-set that was left half done.
func (s *Store) Partition(ctx context.Context, p schema.PartitionID) (row schema.Partition, err error) {
	if err := checkPartition(p); err != nil {
		return row, err
	}
	err = s.try(ctx, schema.Unavailable, "read a partition's row", func(d *db) error {
		iter := d.query(ctx, partitionColumns+" WHERE partition_id = ?", int(p)).Consistency(d.serial).Iter()
		found, ok, err := scanPartition(iter)
		if row = found; !ok {
			row = schema.Partition{ID: p}
		}
		return firstOf(iter.Close(), err)
	})
	return row, err
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Partitions implements schema.Ownership.
func (s *Store) Partitions(ctx context.Context) (ps []schema.Partition, err error) {
	err = s.try(ctx, schema.Unavailable, "read the partitions", func(d *db) error {
		ps = nil
		iter := d.query(ctx, partitionColumns).PageSize(1000).Iter()
		for {
			p, ok, err := scanPartition(iter)
			if !ok || err != nil {
				return firstOf(iter.Close(), err)
			}
			ps = append(ps, p)
		}
	})
	return ps, err
}

// SwapPartition implements schema.Ownership. The transaction is sent once. After a refusal the row is read: it tells whether the
// version there is this very attempt, sent before.
func (s *Store) SwapPartition(ctx context.Context, next schema.Partition) (bool, schema.Partition, error) {
	if err := checkPartition(next.ID); err != nil {
		return false, schema.Partition{}, err
	}
	swapped, err := s.swap(ctx, &next)
	if err != nil {
		return false, schema.Partition{}, err
	}
	if swapped {
		return true, next, nil
	}
	current, err := s.Partition(ctx, next.ID)
	if err != nil {
		return false, schema.Partition{}, failed(schema.Unknown, err, "tell the row after a compare-and-set")
	}
	same := current.Version == next.Version && current.Attempt == next.Attempt && next.Attempt != ""
	return same, current, nil
}

func (s *Store) swap(ctx context.Context, next *schema.Partition) (bool, error) {
	if next.Version < 1 {
		return false, nil
	}
	epochs, err := encodeEpochs(next.Epochs)
	if err != nil {
		return false, schema.WrapError(schema.Invalid, err, "the epochs cannot be encoded")
	}
	unlock, err := s.lock(ctx, int64(next.ID))
	if err != nil {
		return false, err
	}
	defer unlock()
	if next.Version == 1 {
		return s.transact(ctx, "INSERT INTO partitions (partition_id, version, attempt, epochs, reserved) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
			int(next.ID), next.Version, next.Attempt, epochs, int64(next.Reserved))
	}
	return s.transact(ctx, "UPDATE partitions SET version = ?, attempt = ?, epochs = ?, reserved = ? WHERE partition_id = ? IF version = ?",
		next.Version, next.Attempt, epochs, int64(next.Reserved), int(next.ID), next.Version-1)
}

// transact runs one lightweight transaction. An error is Unknown, unless it was refused for what it is or never left.
func (s *Store) transact(ctx context.Context, stmt string, args ...any) (bool, error) {
	d, err := s.session()
	if err != nil {
		return false, err
	}
	ok, err := d.cas(ctx, stmt, args...)
	if err == nil {
		return ok, nil
	}
	s.lost(d, err)
	return false, failed(casKind(err), err, "finish a compare-and-set")
}

func casKind(err error) schema.Kind {
	if errors.Is(err, gocql.ErrNoConnections) {
		return schema.Unavailable // the driver found nobody to send it to
	}
	return schema.Unknown
}
