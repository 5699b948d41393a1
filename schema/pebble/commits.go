package pebble

import (
	"context"
	"errors"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

// Append implements schema.Log. AckAll is AckQuorum: there is one replica.
func (s *Store) Append(ctx context.Context, c *schema.Commit, level schema.AckLevel) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.log.Append(ctx, c, level != schema.AckOne)
}

// LastCommit implements schema.Log.
func (s *Store) LastCommit(_ context.Context, p schema.PartitionID, e schema.Epoch) (c schema.Commit, ok bool, err error) {
	if err := s.enter(); err != nil {
		return c, false, err
	}
	defer s.leave()
	err = s.again(func() error {
		ok = false
		it, err := s.db.NewIter(&cockroach.IterOptions{LowerBound: epochKey(p, e), UpperBound: epochKey(p, e).end()})
		if err != nil {
			return err
		}
		if !it.Last() {
			return errors.Join(it.Error(), it.Close())
		}
		r, err := parseCommitRow(it.Value())
		if err := errors.Join(err, it.Close()); err != nil {
			return err
		}
		c, err = s.log.Commit(r.at, r.metaBytes)
		ok = err == nil
		return err
	})
	return c, ok, internal(err, "read a commit")
}

// Commits implements schema.Log.
func (s *Store) Commits(_ context.Context, p schema.PartitionID, e schema.Epoch, first schema.Seq, limit int) ([]schema.Commit, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.commits(commitKey(p, e, first), epochKey(p, e).end(), func(seq schema.Seq, n int) bool {
		return n < limit && seq == first+schema.Seq(n)
	})
}

// Kept implements schema.Log.
func (s *Store) Kept(_ context.Context, p schema.PartitionID, e schema.Epoch, first, last schema.Seq) ([]schema.Commit, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.commits(commitKey(p, e, first), commitKey(p, e, last+1), func(schema.Seq, int) bool { return true })
}

// commits reads the commits of a range of keys as long as the next one, after n others, is wanted.
func (s *Store) commits(from, to key, wanted func(seq schema.Seq, n int) bool) ([]schema.Commit, error) {
	var cs []schema.Commit
	err := s.again(func() error {
		cs = cs[:0]
		return scanRange(s.db, from, to, func(k, v []byte) (bool, error) {
			if !wanted(schema.Seq(numberAt(k, 11)), len(cs)) {
				return false, nil
			}
			r, err := parseCommitRow(v)
			if err != nil {
				return false, err
			}
			c, err := s.log.Commit(r.at, r.metaBytes)
			cs = append(cs, c)
			return err == nil, err
		})
	})
	if err != nil {
		return nil, internal(err, "read commits")
	}
	return cs, nil
}

// Rewrite implements schema.Log: what is in the one log needs no second writing.
func (s *Store) Rewrite(context.Context, schema.PartitionID, schema.Epoch, schema.Seq, schema.Seq) error {
	return nil
}

// again repeats a read that met other bytes than it looked for: between the look into the index and the read of
// the log, the frame may have been forgotten or moved. Damage that stays is damage.
func (s *Store) again(read func() error) (err error) {
	for range 4 {
		if err = read(); !errors.Is(err, segment.ErrDamaged) {
			return err
		}
	}
	s.logger.Error("log damaged", "error", err)
	return err
}
