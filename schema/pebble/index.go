package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

// sizesMax bounds the topics whose sizes are kept in memory; the others are read when they are next written to.
const sizesMax = 1 << 16

// index keeps in Pebble where the log's commits and frames lie. Its batches are not synced: Pebble loses them only
// from the end, and the log is read again from the mark that went with the last one.
type index struct {
	db *cockroach.DB

	mu    sync.Mutex // one batch at a time, so that counters and rows agree
	mark  segment.Mark
	live  map[uint64]int64                   // by segment
	sizes map[topic]int64                    // a cache of rowSize
	last  map[schema.PartitionID]epochAndSeq // the highest known: what is above is new without a look
	low   map[topic]schema.Offset            // frames below it were forgotten: a hint that spares a walk over their tombs
	batch batch                              // its maps are used again
	row   []byte                             // scratch
	kbuf  key                                // scratch
}

type topic struct {
	partition schema.PartitionID
	id        schema.TopicID
}

type epochAndSeq struct {
	epoch schema.Epoch
	seq   schema.Seq
}

type commitID struct {
	partition schema.PartitionID
	epochAndSeq
}

// batch is the index's change in the making.
type batch struct {
	*cockroach.Batch
	ix      *index
	commits map[commitID]uint32 // new in this batch, with their crc
	live    map[uint64]struct{} // changed
	sizes   map[topic]struct{}  // changed
}

func openIndex(db *cockroach.DB) (*index, error) {
	ix := &index{db: db, live: map[uint64]int64{}, sizes: map[topic]int64{}, last: map[schema.PartitionID]epochAndSeq{},
		low: map[topic]schema.Offset{}}
	ix.batch = batch{ix: ix, commits: map[commitID]uint32{}, live: map[uint64]struct{}{}, sizes: map[topic]struct{}{}}
	v, ok, err := get(db, row(rowMark))
	if err == nil && ok {
		ix.mark, err = parseMark(v)
	}
	if err != nil {
		return nil, fmt.Errorf("read the log's mark: %w", err)
	}
	err = scan(db, row(rowLive), func(k, v []byte) (bool, error) {
		ix.live[uint64(numberAt(k, 1))] = int64(parseNumber(v))
		return true, nil
	})
	return ix, err
}

// newBatch begins a change. The mutex is held until it is finished or closed.
func (ix *index) newBatch() *batch {
	b := &ix.batch
	clear(b.commits)
	clear(b.live)
	clear(b.sizes)
	b.Batch = ix.db.NewBatch()
	return b
}

// Apply notes records of the log. It implements segment.Index.
func (ix *index) Apply(entries []*segment.Entry, m segment.Mark) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	b := ix.newBatch()
	for _, e := range entries {
		var err error
		if e.Kind == segment.KindMoved {
			err = b.moved(e)
		} else {
			err = b.commit(e)
		}
		if err != nil {
			_ = b.Close()
			return err
		}
	}
	b.putMark(m)
	if err := b.finish(cockroach.NoSync); err != nil {
		return err
	}
	ix.mark = m
	return nil
}

// commit notes a commit once. The same commit again is nothing new; another one under its number is refused.
func (b *batch) commit(e *segment.Entry) error {
	crc, known, err := b.known(e)
	if err != nil {
		return err
	}
	if known {
		if crc != e.MetaCRC {
			e.Err = schema.Errorf(schema.Conflict, "commit %d of epoch %d of partition %d was written before with other bytes",
				e.Seq, e.Epoch, e.Partition)
		}
		return nil
	}
	for i := range e.Frames {
		if err := b.frame(e, &e.Frames[i]); err != nil {
			return err
		}
	}
	c := commitRow{at: e.Position, metaBytes: e.MetaBytes, crc: e.MetaCRC, frames: len(e.Frames)}
	ix := b.ix
	ix.row = c.append(ix.row[:0])
	ix.kbuf = append(ix.kbuf[:0], rowCommit).partition(e.Partition).number(int64(e.Epoch)).number(int64(e.Seq))
	return b.Set(ix.kbuf, ix.row, nil)
}

// known tells whether the index has the commit, and notes it as known from here on.
func (b *batch) known(e *segment.Entry) (crc uint32, ok bool, err error) {
	this := epochAndSeq{e.Epoch, e.Seq}
	last, err := b.ix.highest(e.Partition)
	if err != nil {
		return 0, false, err
	}
	id := commitID{e.Partition, this}
	if last.less(this) {
		b.ix.last[e.Partition] = this
	} else {
		if crc, ok := b.commits[id]; ok {
			return crc, true, nil
		}
		c, ok, err := b.ix.commit(commitKey(e.Partition, e.Epoch, e.Seq))
		if err != nil || ok {
			return c.crc, ok, err
		}
	}
	b.commits[id] = e.MetaCRC
	return 0, false, nil
}

func (a epochAndSeq) less(b epochAndSeq) bool {
	return a.epoch < b.epoch || a.epoch == b.epoch && a.seq < b.seq
}

// highest returns the highest commit of a partition that is in the index, or was. The mutex is held.
func (ix *index) highest(p schema.PartitionID) (epochAndSeq, error) {
	if last, ok := ix.last[p]; ok {
		return last, nil
	}
	k := row(rowCommit).partition(p)
	it, err := ix.db.NewIter(&cockroach.IterOptions{LowerBound: k, UpperBound: k.end()})
	if err != nil {
		return epochAndSeq{}, err
	}
	var last epochAndSeq
	if it.Last() {
		last = epochAndSeq{schema.Epoch(numberAt(it.Key(), 3)), schema.Seq(numberAt(it.Key(), 11))}
	}
	ix.last[p] = last
	return last, errors.Join(it.Error(), it.Close())
}

func (b *batch) frame(e *segment.Entry, f *segment.FrameEntry) error {
	r := frameRow{at: segment.Position{Segment: e.Position.Segment, Offset: f.Offset}, length: f.Length, crc: f.CRC,
		count: f.Count, time: f.Time, epoch: e.Epoch, seq: e.Seq}
	ix := b.ix
	ix.row = r.append(ix.row[:0])
	ix.kbuf = append(ix.kbuf[:0], rowFrame).partition(e.Partition).number(int64(f.Topic)).number(int64(f.First))
	_ = b.Set(ix.kbuf, ix.row, nil)
	ix.row = binary.LittleEndian.AppendUint64(ix.row[:0], uint64(f.Topic))
	ix.kbuf = append(ix.kbuf[:0], rowOffset).partition(e.Partition).number(int64(f.First))
	_ = b.Set(ix.kbuf, ix.row, nil)
	b.addLive(r.at.Segment, r.cost())
	t := topic{e.Partition, f.Topic}
	if low, ok := ix.low[t]; ok && f.First < low {
		ix.low[t] = f.First
	}
	return b.addSize(t, int64(f.Length))
}

// moved points the frames that still live to their new place.
func (b *batch) moved(e *segment.Entry) error {
	for i := range e.Frames {
		f := &e.Frames[i]
		if f.Absent {
			continue
		}
		k := frameKey(e.Partition, f.Topic, f.First)
		r, ok, err := b.ix.frame(k)
		if err != nil {
			return err
		}
		if !ok {
			continue // forgotten meanwhile
		}
		b.addLive(r.at.Segment, -r.cost())
		r.at = segment.Position{Segment: e.Position.Segment, Offset: f.Offset}
		b.addLive(r.at.Segment, r.cost())
		_ = b.Set(k, r.append(nil), nil)
	}
	k := commitKey(e.Partition, e.Epoch, e.Seq)
	c, ok, err := b.ix.commit(k)
	if err != nil || !ok {
		return err
	}
	c.at, c.metaBytes = e.Position, e.MetaBytes
	return b.Set(k, c.append(nil), nil)
}

func (b *batch) addLive(id uint64, n int64) {
	b.ix.live[id] += n
	b.live[id] = struct{}{}
}

func (b *batch) addSize(t topic, n int64) error {
	size, err := b.ix.size(t)
	if err != nil {
		return err
	}
	b.ix.sizes[t] = size + n
	b.sizes[t] = struct{}{}
	return nil
}

// size returns the bytes of a topic's frames in a partition. The mutex is held.
func (ix *index) size(t topic) (int64, error) {
	if n, ok := ix.sizes[t]; ok {
		return n, nil
	}
	v, _, err := get(ix.db, row(rowSize).partition(t.partition).number(int64(t.id)))
	return int64(parseNumber(v)), err
}

func (b *batch) putMark(m segment.Mark) {
	ix := b.ix
	ix.kbuf, ix.row = append(ix.kbuf[:0], rowMark), appendMark(ix.row[:0], m)
	_ = b.Set(ix.kbuf, ix.row, nil)
}

// finish adds the changed counters and commits.
func (b *batch) finish(o *cockroach.WriteOptions) error {
	ix := b.ix
	for id := range b.live {
		ix.kbuf = append(ix.kbuf[:0], rowLive).number(int64(id))
		ix.row = binary.LittleEndian.AppendUint64(ix.row[:0], uint64(ix.live[id]))
		_ = b.Set(ix.kbuf, ix.row, nil)
	}
	for t := range b.sizes {
		ix.kbuf = append(ix.kbuf[:0], rowSize).partition(t.partition).number(int64(t.id))
		ix.row = binary.LittleEndian.AppendUint64(ix.row[:0], uint64(ix.sizes[t]))
		_ = b.Set(ix.kbuf, ix.row, nil)
	}
	err := errors.Join(b.Commit(o), b.Close())
	if len(b.ix.sizes) > sizesMax {
		clear(b.ix.sizes) // all are in their rows
		clear(b.ix.low)
	}
	return err
}

// Save makes all that was applied durable, with a mark. It implements segment.Index.
func (ix *index) Save(m segment.Mark) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	b := ix.newBatch()
	b.putMark(m)
	if err := b.finish(cockroach.Sync); err != nil {
		return err
	}
	ix.mark = m
	return nil
}

// frame and commit read one row.
func (ix *index) frame(k key) (r frameRow, ok bool, err error) {
	v, ok, err := get(ix.db, k)
	if err == nil && ok {
		r, err = parseFrameRow(v)
	}
	return r, ok, err
}

func (ix *index) commit(k key) (r commitRow, ok bool, err error) {
	v, ok, err := get(ix.db, k)
	if err == nil && ok {
		r, err = parseCommitRow(v)
	}
	return r, ok, err
}
