package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// attemptsMax is how many of a subscription's attempts a cut leaves: more than people look at.
	attemptsMax = 10000
	// attemptsSlack is how many more come before the next cut, which reads all that are there.
	attemptsSlack = attemptsMax
	// attemptAge is how long attempts are kept at all.
	attemptAge = 7 * 24 * time.Hour
)

// attempts counts what was saved of each subscription since it was last cut.
type attempts struct {
	mu    sync.Mutex
	saved map[schema.SubscriptionID]int
}

// Attempts sort newest first: by the time that is left until the end of days.
func attemptKey(a *schema.Attempt) key {
	return row(rowAttempt).number(int64(a.Subscription)).number(math.MaxInt64 - a.At.UnixNano()).
		number(int64(a.Message)).number(int64(a.Attempt))
}

func messageKey(a *schema.Attempt) key {
	return row(rowMessage).number(int64(a.Message)).number(math.MaxInt64 - a.At.UnixNano()).
		number(int64(a.Subscription)).number(int64(a.Attempt))
}

// SaveAttempts implements schema.Attempts.
func (s *Store) SaveAttempts(_ context.Context, rows []schema.Attempt) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	b := s.db.NewBatch()
	for i := range rows {
		v, err := json.Marshal(&rows[i])
		if err != nil {
			return internal(errors.Join(err, b.Close()), "save attempts")
		}
		_ = b.Set(attemptKey(&rows[i]), v, nil)
		_ = b.Set(messageKey(&rows[i]), nil, nil)
	}
	if err := errors.Join(b.Commit(cockroach.NoSync), b.Close()); err != nil {
		return internal(err, "save attempts")
	}
	for _, sub := range s.attempts.count(rows) {
		if err := s.cutAttempts(sub, time.Now()); err != nil {
			return internal(err, "cut attempts")
		}
	}
	return nil
}

// count returns the subscriptions that are due for a cut.
func (a *attempts) count(rows []schema.Attempt) (due []schema.SubscriptionID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.saved == nil || len(a.saved) > sizesMax {
		a.saved = map[schema.SubscriptionID]int{}
	}
	for i := range rows {
		sub := rows[i].Subscription
		if a.saved[sub]++; a.saved[sub] >= attemptsSlack {
			delete(a.saved, sub)
			due = append(due, sub)
		}
	}
	return due
}

// cutAttempts drops a subscription's attempts over the bound and over the age.
func (s *Store) cutAttempts(sub schema.SubscriptionID, now time.Time) error {
	prefix := row(rowAttempt).number(int64(sub))
	oldest := math.MaxInt64 - now.Add(-attemptAge).UnixNano()
	b := s.db.NewBatch()
	var from key
	n := 0
	err := scan(s.db, prefix, func(k, _ []byte) (bool, error) {
		if n++; n <= attemptsMax && numberAt(k, 9) <= oldest {
			return true, nil
		}
		if from == nil {
			from = bytes.Clone(k)
		}
		a := schema.Attempt{Subscription: sub, At: time.Unix(0, math.MaxInt64-numberAt(k, 9)),
			Message: schema.MessageID(numberAt(k, 17)), Attempt: int(numberAt(k, 25))}
		return true, b.Delete(messageKey(&a), nil)
	})
	if err == nil && from != nil {
		err = b.DeleteRange(from, prefix.end(), nil)
	}
	if err != nil || from == nil {
		return errors.Join(err, b.Close())
	}
	return errors.Join(b.Commit(cockroach.NoSync), b.Close())
}

// pruneAttempts cuts every subscription, also those that nothing is delivered to any more.
func (s *Store) pruneAttempts(now time.Time) {
	for next := row(rowAttempt); s.done.Err() == nil; {
		var sub schema.SubscriptionID
		found := false
		err := scanRange(s.db, next, row(rowAttempt).end(), func(k, _ []byte) (bool, error) {
			sub, found = schema.SubscriptionID(numberAt(k, 1)), true
			return false, nil
		})
		if err == nil && found {
			err = s.cutAttempts(sub, now)
		}
		if err != nil {
			s.logger.Error("old attempts cannot be dropped", "error", err)
		}
		if err != nil || !found {
			return
		}
		next = row(rowAttempt).number(int64(sub)).end()
	}
}

// ListAttempts implements schema.Attempts.
func (s *Store) ListAttempts(_ context.Context, m schema.MessageID, sub schema.SubscriptionID, limit int) ([]schema.Attempt, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	var as []schema.Attempt
	var err error
	if m != 0 {
		as, err = s.attemptsOfMessage(m, limit)
	} else {
		err = scan(s.db, row(rowAttempt).number(int64(sub)), func(_, v []byte) (bool, error) {
			if len(as) >= limit {
				return false, nil
			}
			var a schema.Attempt
			err := json.Unmarshal(v, &a)
			as = append(as, a)
			return true, err
		})
	}
	return as, internal(err, "list attempts")
}

func (s *Store) attemptsOfMessage(m schema.MessageID, limit int) (as []schema.Attempt, err error) {
	err = scan(s.db, row(rowMessage).number(int64(m)), func(k, _ []byte) (bool, error) {
		if len(as) >= limit {
			return false, nil
		}
		full := append(row(rowAttempt), k[17:25]...)
		full = append(append(full, k[9:17]...), k[1:9]...)
		full = binary.BigEndian.AppendUint64(full, uint64(numberAt(k, 25)))
		v, ok, err := get(s.db, full)
		if err != nil || !ok {
			return true, err
		}
		var a schema.Attempt
		err = json.Unmarshal(v, &a)
		as = append(as, a)
		return true, err
	})
	return as, err
}
