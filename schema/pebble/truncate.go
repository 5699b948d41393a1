package pebble

import (
	"bytes"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

// Truncate forgets the rows of records that a power cut took: they were indexed and acknowledged at AckOne, and
// never synced. It reads the whole index, which such an event is worth. It implements segment.Index.
func (ix *index) Truncate(end segment.Position) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	b := ix.newBatch()
	err := scan(ix.db, row(rowFrame), func(k, v []byte) (bool, error) {
		r, err := parseFrameRow(v)
		if err == nil && !r.at.Less(end) {
			p := schema.PartitionID(uint16(k[1])<<8 | uint16(k[2]))
			err = b.forget(p, schema.TopicID(numberAt(k, 3)), &r)
			_ = b.Delete(bytes.Clone(k), nil)
			_ = b.Delete(offsetKey(p, schema.Offset(numberAt(k, 11))), nil)
		}
		return true, err
	})
	if err != nil {
		_ = b.Close()
		return err
	}
	err = scan(ix.db, row(rowCommit), func(k, v []byte) (bool, error) {
		r, err := parseCommitRow(v)
		if err == nil && !r.at.Less(end) {
			_ = b.Delete(bytes.Clone(k), nil)
		}
		return true, err
	})
	if err != nil {
		_ = b.Close()
		return err
	}
	clear(ix.last)
	m := ix.mark
	m.Indexed = end
	b.putMark(m)
	return b.finish(cockroach.Sync)
}

// forget takes a frame out of the counters.
func (b *batch) forget(p schema.PartitionID, t schema.TopicID, r *frameRow) error {
	b.addLive(r.at.Segment, -r.cost())
	return b.addSize(topic{p, t}, -int64(r.length))
}
