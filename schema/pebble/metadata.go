package pebble

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

// metadata is the head of the log of changes, in memory.
type metadata struct {
	mu         sync.Mutex
	head       schema.Revision
	checkpoint schema.Revision // changes up to it are forgotten
	failed     error           // an append whose outcome is unknown: the head is not trusted before the next Open
}

func changeKey(r schema.Revision) key { return row(rowChange).number(int64(r)) }

type checkpointRow struct {
	Revision schema.Revision `json:"revision"`
	Records  []schema.Record `json:"records"`
}

func (s *Store) loadMetadata() error {
	c, err := s.checkpoint()
	if err != nil {
		return fmt.Errorf("read the metadata's checkpoint: %w", err)
	}
	s.meta.head, s.meta.checkpoint = c.Revision, c.Revision
	it, err := s.db.NewIter(&cockroach.IterOptions{LowerBound: row(rowChange), UpperBound: row(rowChange).end()})
	if err != nil {
		return fmt.Errorf("read the metadata's head: %w", err)
	}
	if it.Last() {
		s.meta.head = max(s.meta.head, schema.Revision(numberAt(it.Key(), 1)))
	}
	return errors.Join(it.Error(), it.Close())
}

func (s *Store) checkpoint() (c checkpointRow, err error) {
	v, ok, err := get(s.db, row(rowCheckpoint))
	if err == nil && ok {
		err = json.Unmarshal(v, &c)
	}
	return c, err
}

// AppendChange implements schema.Metadata.
func (s *Store) AppendChange(_ context.Context, c schema.Change) (bool, error) {
	if c.Revision < 1 {
		return false, schema.Errorf(schema.Invalid, "the first revision is 1, not %d", c.Revision)
	}
	if err := s.enter(); err != nil {
		return false, err
	}
	defer s.leave()
	v, err := json.Marshal(&c)
	if err != nil {
		return false, schema.WrapError(schema.Invalid, err, "the change cannot be encoded")
	}
	m := &s.meta
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return false, m.failed
	}
	if c.Revision != m.head+1 {
		return false, nil
	}
	if err := s.db.Set(changeKey(c.Revision), v, cockroach.Sync); err != nil {
		m.failed = schema.WrapError(schema.Internal, err, "metadata cannot be written until the store is opened anew")
		return false, m.failed
	}
	m.head = c.Revision
	return true, nil
}

// Head implements schema.Metadata.
func (s *Store) Head(context.Context) (schema.Revision, error) {
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	return s.meta.head, s.meta.failed
}

// Changes implements schema.Metadata.
func (s *Store) Changes(_ context.Context, after schema.Revision, limit int) (cs []schema.Change, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	// Held to the end: a checkpoint saved meanwhile would tear a hole.
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	if after < s.meta.checkpoint {
		return nil, schema.Errorf(schema.Gone, "changes up to %d are forgotten: begin from the checkpoint", s.meta.checkpoint)
	}
	err = scanRange(s.db, changeKey(after+1), row(rowChange).end(), func(_, v []byte) (bool, error) {
		if len(cs) >= limit {
			return false, nil
		}
		var c schema.Change
		err := json.Unmarshal(v, &c)
		cs = append(cs, c)
		return true, err
	})
	return cs, internal(err, "read changes")
}

// SaveCheckpoint implements schema.Metadata. A checkpoint older than the present one changes nothing.
func (s *Store) SaveCheckpoint(_ context.Context, at schema.Revision, records []schema.Record) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.meta.mu.Lock()
	defer s.meta.mu.Unlock()
	if at > s.meta.head {
		return schema.Errorf(schema.Invalid, "a checkpoint at %d is ahead of the head %d", at, s.meta.head)
	}
	if at <= s.meta.checkpoint {
		return nil
	}
	v, err := json.Marshal(checkpointRow{at, records})
	if err != nil {
		return schema.WrapError(schema.Invalid, err, "the checkpoint cannot be encoded")
	}
	b := s.db.NewBatch()
	_ = b.Set(row(rowCheckpoint), v, nil)
	_ = b.DeleteRange(changeKey(0), changeKey(at+1), nil)
	if err := errors.Join(b.Commit(cockroach.Sync), b.Close()); err != nil {
		return internal(err, "save a checkpoint")
	}
	s.meta.checkpoint = at
	return nil
}

// Checkpoint implements schema.Metadata.
func (s *Store) Checkpoint(context.Context) (schema.Revision, []schema.Record, error) {
	if err := s.enter(); err != nil {
		return 0, nil, err
	}
	defer s.leave()
	c, err := s.checkpoint()
	return c.Revision, c.Records, internal(err, "read the checkpoint")
}
