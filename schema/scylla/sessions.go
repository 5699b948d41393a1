package scylla

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// The fencing register is two plain writes at quorum whose timestamps are fixed, so that fenced wins over live for ever.
const (
	liveTimestamp   = 1
	fencedTimestamp = 2
)

// OpenSession implements schema.Ownership. A session whose id was used, or fenced before it began, is refused.
func (s *Store) OpenSession(ctx context.Context, id schema.SessionID) error {
	if id == "" {
		return schema.Errorf(schema.Invalid, "a session needs an id")
	}
	if _, known, err := s.register(ctx, id); err != nil {
		return err
	} else if known {
		return schema.Errorf(schema.Conflict, "the session was used before")
	}
	if err := s.setRegister(ctx, id, true, liveTimestamp); err != nil {
		return err
	}
	live, _, err := s.register(ctx, id)
	if err == nil && !live {
		err = schema.Errorf(schema.Conflict, "the session was fenced before it began")
	}
	return err
}

// SessionLive implements schema.Ownership.
func (s *Store) SessionLive(ctx context.Context, id schema.SessionID) (bool, error) {
	live, _, err := s.register(ctx, id)
	return live, err
}

// Fence implements schema.Ownership.
func (s *Store) Fence(ctx context.Context, id schema.SessionID) error {
	if id == "" {
		return schema.Errorf(schema.Invalid, "a session needs an id")
	}
	return s.setRegister(ctx, id, false, fencedTimestamp)
}

func (s *Store) register(ctx context.Context, id schema.SessionID) (live, known bool, err error) {
	err = s.try(ctx, schema.Unavailable, "read a session", func(d *db) error {
		iter := d.query(ctx, "SELECT live FROM sessions WHERE session = ?", string(id)).Iter()
		live = false
		known = iter.Scan(&live)
		return iter.Close()
	})
	return live && err == nil, known, err
}

func (s *Store) setRegister(ctx context.Context, id schema.SessionID, live bool, timestamp int64) error {
	return s.try(ctx, schema.Unknown, "write a session", func(d *db) error {
		q := d.query(ctx, "INSERT INTO sessions (session, live) VALUES (?, ?)", string(id), live)
		q.WithTimestamp(timestamp)
		return q.Exec()
	})
}
