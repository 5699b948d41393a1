package scylla

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/handfast-mq/handfast/schema"
)

// changesPerBucket: a bucket of usual changes is some 1 MB.
const changesPerBucket = 1000

func changeBucket(r schema.Revision) int64 { return int64(r-1) / changesPerBucket }

// metadataRow tells metadata's transactions from those of partitions among the locks.
const metadataRow = -1

// known is the highest revision that this process has seen: it exists, and so do all below it.
type known struct{ head atomic.Int64 }

func (k *known) saw(r schema.Revision) {
	for {
		h := k.head.Load()
		if int64(r) <= h || k.head.CompareAndSwap(h, int64(r)) {
			return
		}
	}
}

func (k *known) revision() schema.Revision { return schema.Revision(k.head.Load()) }

// AppendChange implements schema.Metadata. The log is dense since nobody inserts a revision without having seen the one before.
func (s *Store) AppendChange(ctx context.Context, c schema.Change) (bool, error) {
	if c.Revision < 1 {
		return false, schema.Errorf(schema.Invalid, "the first revision is 1, not %d", c.Revision)
	}
	text, err := json.Marshal(&c)
	if err != nil {
		return false, schema.WrapError(schema.Invalid, err, "the change cannot be encoded")
	}
	if len(text) > frameBytesMax {
		return false, schema.Errorf(schema.TooLarge, "a change of %d bytes is more than %d", len(text), frameBytesMax)
	}
	unlock, err := s.lock(ctx, metadataRow)
	if err != nil {
		return false, err
	}
	defer unlock()
	if s.meta.revision() < c.Revision-1 {
		if _, err := s.Head(ctx); err != nil {
			return false, err
		}
	}
	if head := s.meta.revision(); head >= c.Revision {
		return s.isMine(ctx, c)
	} else if head < c.Revision-1 {
		return false, nil
	}
	ok, err := s.transact(ctx, "INSERT INTO metadata_changes (bucket, revision, change) VALUES (?, ?, ?) IF NOT EXISTS",
		changeBucket(c.Revision), int64(c.Revision), text)
	if err != nil {
		return false, err
	}
	s.meta.saw(c.Revision) // it is there, by this one or by another
	if ok {
		return true, nil
	}
	return s.isMine(ctx, c)
}

// isMine tells whether the change at a revision that was taken is the very attempt, sent before.
func (s *Store) isMine(ctx context.Context, c schema.Change) (bool, error) {
	cs, err := s.Changes(ctx, c.Revision-1, 1)
	if err != nil {
		return false, failed(schema.Unknown, err, "tell the change after a compare-and-set")
	}
	return len(cs) == 1 && cs[0].Attempt == c.Attempt && c.Attempt != "", nil
}

// Head implements schema.Metadata. It reads serially, bucket by bucket from the newest that this process knows of.
func (s *Store) Head(ctx context.Context) (schema.Revision, error) {
	if s.meta.revision() == 0 {
		at, err := s.newest(ctx)
		if err != nil {
			return 0, err
		}
		s.meta.saw(at.Revision)
	}
	for {
		from := s.meta.revision()
		last, err := s.lastIn(ctx, changeBucket(from+1))
		if err != nil {
			return 0, err
		}
		s.meta.saw(last)
		if last == 0 || last%changesPerBucket != 0 {
			return s.meta.revision(), nil
		}
	}
}

// lastIn returns the highest revision of a bucket, 0 when it is empty.
func (s *Store) lastIn(ctx context.Context, bucket int64) (last schema.Revision, err error) {
	err = s.try(ctx, schema.Unavailable, "read the head of the metadata", func(d *db) error {
		last = 0
		iter := d.query(ctx, "SELECT revision FROM metadata_changes WHERE bucket = ? ORDER BY revision DESC LIMIT 1", bucket).Consistency(d.serial).Iter()
		iter.Scan((*int64)(&last))
		return iter.Close()
	})
	return last, err
}

// Changes implements schema.Metadata. It reads at quorum, where every change is that Head has told of. Nothing is ever forgotten, so it does
// not fail with Gone.
func (s *Store) Changes(ctx context.Context, after schema.Revision, limit int) (cs []schema.Change, err error) {
	if after < 0 || limit < 1 {
		return nil, nil
	}
	err = s.try(ctx, schema.Unavailable, "read the metadata's changes", func(d *db) error {
		cs = nil
		for full := true; full && len(cs) < limit; {
			before := len(cs)
			next := after + schema.Revision(len(cs)) + 1
			iter := d.query(ctx, "SELECT change FROM metadata_changes WHERE bucket = ? AND revision >= ? LIMIT ?",
				changeBucket(next), int64(next), min(limit-len(cs), changesPerBucket)).PageSize(100).Iter()
			var text []byte
			for iter.Scan(&text) {
				var c schema.Change
				if err := json.Unmarshal(text, &c); err != nil {
					_ = iter.Close()
					return schema.WrapError(schema.Internal, err, "change %d cannot be read", next)
				}
				if c.Revision != after+schema.Revision(len(cs))+1 {
					break
				}
				cs = append(cs, c)
			}
			if err := iter.Close(); err != nil {
				return err
			}
			full = len(cs) > before && (after+schema.Revision(len(cs)))%changesPerBucket == 0
		}
		return nil
	})
	if n := len(cs); err == nil && n > 0 {
		s.meta.saw(cs[n-1].Revision)
	}
	return cs, err
}
