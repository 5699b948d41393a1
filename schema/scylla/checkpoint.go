package scylla

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/handfast-mq/handfast/schema"
)

// checkpoint is what the one cell of metadata_checkpoint tells, as JSON.
type checkpoint struct {
	Revision schema.Revision `json:"revision"`
	ID       string          `json:"id"` // of its chunks
	Chunks   int             `json:"chunks"`
}

// chunkBytes is about how much one chunk holds; a larger record has one of its own.
const chunkBytes = 256 << 10

// SaveCheckpoint implements schema.Metadata. The cell's timestamp is the revision, so that a late older one changes nothing. Two
// nodes may save the same revision: each has chunks of its own, and the cell tells of one of them.
func (s *Store) SaveCheckpoint(ctx context.Context, at schema.Revision, records []schema.Record) error {
	if s.meta.revision() < at {
		if head, err := s.Head(ctx); err != nil {
			return err
		} else if at > head {
			return schema.Errorf(schema.Invalid, "a checkpoint at %d is ahead of the head %d", at, head)
		}
	}
	former, err := s.newest(ctx)
	if err != nil || former.Revision >= at {
		return err
	}
	chunks, err := cutRecords(records)
	if err != nil {
		return schema.WrapError(schema.Invalid, err, "the checkpoint cannot be encoded")
	}
	c := checkpoint{at, uuid.NewString(), len(chunks)}
	if err := s.saveChunks(ctx, c.ID, chunks); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	err = s.try(ctx, schema.Unknown, "save a checkpoint", func(d *db) error {
		q := d.query(ctx, "INSERT INTO metadata_checkpoint (id, checkpoint) VALUES (0, ?)", string(text))
		q.WithTimestamp(int64(at))
		return q.Exec()
	})
	if err != nil {
		return err
	}
	return s.dropUnused(ctx, former, c)
}

// dropUnused deletes the chunks that the cell does not tell of: the former checkpoint's, or those of this one when a newer won.
func (s *Store) dropUnused(ctx context.Context, former, saved checkpoint) error {
	now, err := s.newest(ctx)
	if err != nil {
		return err
	}
	for _, c := range []checkpoint{former, saved} {
		if c.ID == "" || c.ID == now.ID {
			continue
		}
		err := s.try(ctx, schema.Unknown, "delete an old checkpoint", func(d *db) error {
			return d.query(ctx, "DELETE FROM metadata_chunks WHERE checkpoint = ?", c.ID).Exec()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cutRecords encodes records in chunks.
func cutRecords(records []schema.Record) (chunks [][]byte, err error) {
	for first := 0; first < len(records); {
		last, size := first, 0
		for last < len(records) && (last == first || size+len(records[last].Value) <= chunkBytes) {
			size += len(records[last].Value) + len(records[last].Key) + 40
			last++
		}
		b, err := json.Marshal(records[first:last])
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, b)
		first = last
	}
	return chunks, nil
}

func (s *Store) saveChunks(ctx context.Context, id string, chunks [][]byte) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i, b := range chunks {
		g.Go(func() error {
			return s.try(ctx, schema.Unknown, "save a checkpoint's records", func(d *db) error {
				return d.query(ctx, "INSERT INTO metadata_chunks (checkpoint, chunk, records) VALUES (?, ?, ?)", id, i, b).Exec()
			})
		})
	}
	return g.Wait()
}

// newest returns the checkpoint that the cell tells of; revision 0 when there is none.
func (s *Store) newest(ctx context.Context) (c checkpoint, err error) {
	var text string
	err = s.try(ctx, schema.Unavailable, "read the checkpoint", func(d *db) error {
		iter := d.query(ctx, "SELECT checkpoint FROM metadata_checkpoint WHERE id = 0").Iter()
		iter.Scan(&text)
		return iter.Close()
	})
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	return c, err
}

// Checkpoint implements schema.Metadata. A newer one may be saved, and the chunks of the one that was found deleted, while it reads:
// then it begins again.
func (s *Store) Checkpoint(ctx context.Context) (schema.Revision, []schema.Record, error) {
	for range 5 {
		c, err := s.newest(ctx)
		if err != nil || c.Revision == 0 {
			return 0, nil, err
		}
		records, whole, err := s.records(ctx, c)
		if err != nil {
			return 0, nil, err
		}
		if whole {
			s.meta.saw(c.Revision)
			return c.Revision, records, nil
		}
	}
	return 0, nil, schema.Errorf(schema.Unavailable, "the checkpoint of the metadata changes faster than it can be read")
}

func (s *Store) records(ctx context.Context, c checkpoint) (records []schema.Record, whole bool, err error) {
	err = s.try(ctx, schema.Unavailable, "read the checkpoint's records", func(d *db) error {
		records = nil
		n := 0
		iter := d.query(ctx, "SELECT records FROM metadata_chunks WHERE checkpoint = ?", c.ID).PageSize(8).Iter()
		var b []byte
		for ; iter.Scan(&b); n++ {
			var rs []schema.Record
			if err := json.Unmarshal(b, &rs); err != nil {
				_ = iter.Close()
				return schema.WrapError(schema.Internal, err, "the checkpoint at %d cannot be read", c.Revision)
			}
			records = append(records, rs...)
		}
		whole = n == c.Chunks
		return iter.Close()
	})
	return records, whole, err
}
