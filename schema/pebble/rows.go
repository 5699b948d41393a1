package pebble

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

var errBadRow = errors.New("a row of the index is damaged")

// frameCost is what one frame adds to the live bytes of its segment beside its blob, so that a segment of empty
// blobs is not dead.
const frameCost = 64

// frameRow says where a frame lies.
type frameRow struct {
	at     segment.Position // of its blob
	length int
	crc    uint32
	count  int
	time   int64
	epoch  schema.Epoch
	seq    schema.Seq
}

const frameRowBytes = 52

func (r *frameRow) cost() int64     { return int64(r.length) + frameCost }
func (r *frameRow) when() time.Time { return (&segment.FrameEntry{Time: r.time}).When() }

func (r *frameRow) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, r.at.Segment)
	b = le.AppendUint64(b, uint64(r.at.Offset))
	b = le.AppendUint32(b, uint32(r.length))
	b = le.AppendUint32(b, r.crc)
	b = le.AppendUint32(b, uint32(r.count))
	b = le.AppendUint64(b, uint64(r.time))
	b = le.AppendUint64(b, uint64(r.epoch))
	return le.AppendUint64(b, uint64(r.seq))
}

func parseFrameRow(b []byte) (r frameRow, err error) {
	if len(b) != frameRowBytes {
		return r, errBadRow
	}
	le := binary.LittleEndian
	return frameRow{
		at:     segment.Position{Segment: le.Uint64(b), Offset: int64(le.Uint64(b[8:]))},
		length: int(le.Uint32(b[16:])), crc: le.Uint32(b[20:]), count: int(le.Uint32(b[24:])),
		time: int64(le.Uint64(b[28:])), epoch: schema.Epoch(le.Uint64(b[36:])), seq: schema.Seq(le.Uint64(b[44:])),
	}, nil
}

// commitRow says where a commit lies and how many of its frames are not forgotten.
type commitRow struct {
	at        segment.Position
	metaBytes int
	crc       uint32 // of the meta as its owner wrote it
	frames    int
}

const commitRowBytes = 28

func (r *commitRow) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, r.at.Segment)
	b = le.AppendUint64(b, uint64(r.at.Offset))
	b = le.AppendUint32(b, uint32(r.metaBytes))
	b = le.AppendUint32(b, r.crc)
	return le.AppendUint32(b, uint32(r.frames))
}

func parseCommitRow(b []byte) (r commitRow, err error) {
	if len(b) != commitRowBytes {
		return r, errBadRow
	}
	le := binary.LittleEndian
	return commitRow{at: segment.Position{Segment: le.Uint64(b), Offset: int64(le.Uint64(b[8:]))},
		metaBytes: int(le.Uint32(b[16:])), crc: le.Uint32(b[20:]), frames: int(le.Uint32(b[24:]))}, nil
}

func appendMark(b []byte, m segment.Mark) []byte {
	le := binary.LittleEndian
	for _, n := range []uint64{m.Synced.Segment, uint64(m.Synced.Offset), m.Indexed.Segment, uint64(m.Indexed.Offset), m.Run} {
		b = le.AppendUint64(b, n)
	}
	return b
}

func parseMark(b []byte) (m segment.Mark, err error) {
	if len(b) != 40 {
		return m, errBadRow
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return segment.Mark{Synced: segment.Position{Segment: n(0), Offset: int64(n(1))},
		Indexed: segment.Position{Segment: n(2), Offset: int64(n(3))}, Run: n(4)}, nil
}
