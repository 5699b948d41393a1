package pebble

import (
	"context"
	"errors"
	"fmt"
	"sync"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

// sessions are those that this process opened and nobody fenced. All others are dead: the lock on the directory
// proves that the process of each is gone.
type sessions struct {
	write sync.Mutex // one change of the register at a time
	mu    sync.RWMutex
	live  map[schema.SessionID]bool
}

const (
	sessionLive   = 'l'
	sessionFenced = 'f'
)

func sessionKey(s schema.SessionID) key { return append(row(rowSession), s...) }

func checkSession(id schema.SessionID) error {
	if n := len(id); n == 0 || n > schema.NameBytesMax {
		return schema.Errorf(schema.Invalid, "a session id has 1 to %d bytes, not %d", schema.NameBytesMax, n)
	}
	return nil
}

// fenceFormer ends the sessions of earlier processes.
func (s *Store) fenceFormer() error {
	s.sessions.live = map[schema.SessionID]bool{}
	b := s.db.NewBatch()
	err := scan(s.db, row(rowSession), func(k, v []byte) (bool, error) {
		if len(v) == 1 && v[0] == sessionLive {
			return true, b.Set(k, []byte{sessionFenced}, nil)
		}
		return true, nil
	})
	if err == nil && !b.Empty() {
		err = b.Commit(cockroach.Sync)
	}
	if err := errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("fence former sessions: %w", err)
	}
	return nil
}

// OpenSession implements schema.Ownership.
func (s *Store) OpenSession(_ context.Context, id schema.SessionID) error {
	if err := checkSession(id); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.sessions.write.Lock()
	defer s.sessions.write.Unlock()
	_, known, err := get(s.db, sessionKey(id))
	if err != nil {
		return internal(err, "read the sessions")
	}
	if known {
		return schema.Errorf(schema.Conflict, "the session was used before")
	}
	if err := s.db.Set(sessionKey(id), []byte{sessionLive}, cockroach.Sync); err != nil {
		return internal(err, "open a session")
	}
	s.sessions.set(id, true)
	return nil
}

func (s *sessions) set(id schema.SessionID, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live {
		s.live[id] = true
	} else {
		delete(s.live, id)
	}
}

// SessionLive implements schema.Ownership. It answers from memory: it is asked after every commit.
func (s *Store) SessionLive(_ context.Context, id schema.SessionID) (bool, error) {
	s.sessions.mu.RLock()
	defer s.sessions.mu.RUnlock()
	return s.sessions.live[id], nil
}

// Fence implements schema.Ownership.
func (s *Store) Fence(_ context.Context, id schema.SessionID) error {
	if err := checkSession(id); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.sessions.write.Lock()
	defer s.sessions.write.Unlock()
	s.sessions.set(id, false) // first: who fails to fence must not see it live either
	return internal(s.db.Set(sessionKey(id), []byte{sessionFenced}, cockroach.Sync), "fence a session")
}
