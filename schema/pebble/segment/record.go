package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Kind says what a record is for.
type Kind uint8

const (
	// KindCommit is a commit as its owner wrote it.
	KindCommit Kind = 1
	// KindMoved is a commit written again with the frames that still live, so that its old segment can be reused.
	KindMoved Kind = 2
	kindSeal  Kind = 3 // behind the last record of a segment that is followed by another
)

const (
	recordMagic   = 0x4648 // "HF"
	recordVersion = 1
	headerBytes   = 40
	frameBytes    = 37
	metaBytes     = 48 // of the fixed part

	// RecordBytesMax bounds one record. The largest legal commit is far below it; a length above it is damage.
	RecordBytesMax = 32 << 20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// ErrDamaged means that the bytes at a place are not the record or blob that was expected there.
	ErrDamaged = errors.New("no valid record")
)

// Checksum is the crc32c that guards records and blobs.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// FrameEntry is one frame of a record and where its blob lies.
type FrameEntry struct {
	Topic  schema.TopicID
	First  schema.Offset
	Count  int
	Time   int64 // Unix nanoseconds; math.MinInt64 = the zero time
	Offset int64 // of the blob within the segment
	Length int
	CRC    uint32 // of the blob
	Absent bool   // a moved commit's frame that was forgotten before the move
}

// Entry is one record and where it lies: all that an index needs.
type Entry struct {
	Kind      Kind
	Position  Position
	Partition schema.PartitionID
	Epoch     schema.Epoch
	Seq       schema.Seq
	MetaBytes int    // of the part before the blobs, without the header
	MetaCRC   uint32 // covers the blobs too, through their checksums
	Size      int    // of the whole record
	Frames    []FrameEntry
	Err       error // set by the index to refuse the entry
}

// Every record is header, meta, blobs. The header's crc covers the header, which holds the crc of the meta, which
// holds the crc of each blob: so a frame can be read and checked alone, and a commit without its blobs.
//
// The header names the segment, the place and the run that wrote it. A recycled file keeps old bytes and a torn tail
// may hide whole records: neither can pass for a record of this life of the file.
type header struct {
	kind    Kind
	segment uint64
	run     uint64
	offset  uint32
	metaLen uint32
	bodyLen uint32
	metaCRC uint32
}

func (h *header) size() int { return headerBytes + int(h.metaLen) + int(h.bodyLen) }

func (h *header) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint16(b[4:], recordMagic)
	b[6], b[7] = recordVersion, byte(h.kind)
	le.PutUint64(b[8:], h.segment)
	le.PutUint64(b[16:], h.run)
	le.PutUint32(b[24:], h.offset)
	le.PutUint32(b[28:], h.metaLen)
	le.PutUint32(b[32:], h.bodyLen)
	le.PutUint32(b[36:], h.metaCRC)
	le.PutUint32(b, Checksum(b[4:headerBytes]))
}

func parseHeader(b []byte) (h header, err error) {
	le := binary.LittleEndian
	if len(b) < headerBytes || le.Uint16(b[4:]) != recordMagic || b[6] != recordVersion ||
		le.Uint32(b) != Checksum(b[4:headerBytes]) {
		return h, ErrDamaged
	}
	h = header{kind: Kind(b[7]), segment: le.Uint64(b[8:]), run: le.Uint64(b[16:]), offset: le.Uint32(b[24:]),
		metaLen: le.Uint32(b[28:]), bodyLen: le.Uint32(b[32:]), metaCRC: le.Uint32(b[36:])}
	if h.kind < KindCommit || h.kind > kindSeal || uint64(h.metaLen)+uint64(h.bodyLen)+headerBytes > RecordBytesMax {
		return header{}, ErrDamaged
	}
	return h, nil
}

func metaSize(c *schema.Commit) int { return metaBytes + len(c.Keys) + frameBytes*len(c.Frames) }

// describe fills e with everything about c but its place.
func (e *Entry) describe(kind Kind, c *schema.Commit, absent []bool) {
	e.Kind, e.Partition, e.Epoch, e.Seq = kind, c.Partition, c.Epoch, c.Seq
	e.MetaBytes = metaSize(c)
	e.Size = headerBytes + e.MetaBytes
	e.Frames = e.Frames[:0]
	e.Err = nil
	for i := range c.Frames {
		f := &c.Frames[i]
		fe := FrameEntry{Topic: f.Topic, First: f.First, Count: f.Count, Time: nanos(f.Time)}
		if absent != nil && absent[i] {
			fe.Absent = true
		} else {
			fe.Length, fe.CRC = len(f.Blob), Checksum(f.Blob)
		}
		e.Size += fe.Length
		e.Frames = append(e.Frames, fe)
	}
}

// appendMeta appends the meta of the commit that e describes.
func (e *Entry) appendMeta(b []byte, c *schema.Commit) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(c.Partition))
	b = le.AppendUint64(b, uint64(c.Epoch))
	b = le.AppendUint64(b, uint64(c.Seq))
	b = le.AppendUint64(b, uint64(c.Committed))
	b = le.AppendUint64(b, uint64(nanos(c.Time)))
	b = le.AppendUint32(b, uint32(len(c.Keys)))
	b = append(b, c.Keys...)
	b = le.AppendUint64(b, uint64(len(e.Frames)))
	for i := range e.Frames {
		f := &e.Frames[i]
		b = le.AppendUint64(b, uint64(f.Topic))
		b = le.AppendUint64(b, uint64(f.First))
		b = le.AppendUint32(b, uint32(f.Count))
		b = le.AppendUint64(b, uint64(f.Time))
		b = le.AppendUint32(b, uint32(f.Length))
		b = le.AppendUint32(b, f.CRC)
		b = append(b, boolByte(f.Absent))
	}
	return b
}

// parseMeta is the inverse of appendMeta. The entry's blob offsets count from the end of the meta; the commit's keys
// alias b and its blobs are left out.
func parseMeta(b []byte) (c schema.Commit, frames []FrameEntry, err error) {
	le := binary.LittleEndian
	if len(b) < metaBytes {
		return c, nil, ErrDamaged
	}
	c.Partition = schema.PartitionID(le.Uint32(b))
	c.Epoch, c.Seq = schema.Epoch(le.Uint64(b[4:])), schema.Seq(le.Uint64(b[12:]))
	c.Committed, c.Time = schema.Seq(le.Uint64(b[20:])), fromNanos(int64(le.Uint64(b[28:])))
	keys := uint64(le.Uint32(b[36:]))
	b = b[40:]
	if keys+8 > uint64(len(b)) {
		return c, nil, ErrDamaged
	}
	if keys > 0 {
		c.Keys = b[:keys:keys]
	}
	n := le.Uint64(b[keys:])
	b = b[keys+8:]
	if n > uint64(len(b)) || n*frameBytes != uint64(len(b)) {
		return c, nil, ErrDamaged
	}
	return parseFrames(c, b, int(n))
}

func parseFrames(c schema.Commit, b []byte, n int) (schema.Commit, []FrameEntry, error) {
	le := binary.LittleEndian
	frames := make([]FrameEntry, n)
	c.Frames = make([]schema.Frame, n)
	var at int64
	for i := range frames {
		f := FrameEntry{Topic: schema.TopicID(le.Uint64(b)), First: schema.Offset(le.Uint64(b[8:])),
			Count: int(le.Uint32(b[16:])), Time: int64(le.Uint64(b[20:])), Offset: at,
			Length: int(le.Uint32(b[28:])), CRC: le.Uint32(b[32:]), Absent: b[36] == 1}
		if b[36] > 1 {
			return c, nil, ErrDamaged
		}
		at += int64(f.Length)
		frames[i] = f
		c.Frames[i] = schema.Frame{Topic: f.Topic, First: f.First, Count: f.Count, Time: fromNanos(f.Time)}
		b = b[frameBytes:]
	}
	return c, frames, nil
}

// parseRecord checks a whole record. Its entry has no position yet, and its blob offsets count from the record's start.
func parseRecord(b []byte) (e Entry, c schema.Commit, err error) {
	h, err := parseHeader(b)
	if err != nil || h.size() > len(b) || h.kind == kindSeal {
		return e, c, ErrDamaged
	}
	meta := b[headerBytes : headerBytes+int(h.metaLen)]
	body := b[headerBytes+int(h.metaLen) : h.size()]
	if Checksum(meta) != h.metaCRC {
		return e, c, ErrDamaged
	}
	c, frames, err := parseMeta(meta)
	if err != nil {
		return e, c, err
	}
	for i := range frames {
		f := &frames[i]
		end := f.Offset + int64(f.Length)
		if end > int64(len(body)) || !f.Absent && Checksum(body[f.Offset:end]) != f.CRC {
			return e, c, ErrDamaged
		}
		if !f.Absent {
			c.Frames[i].Blob = body[f.Offset:end:end]
		}
		f.Offset += int64(headerBytes) + int64(h.metaLen)
	}
	e = Entry{Kind: h.kind, Partition: c.Partition, Epoch: c.Epoch, Seq: c.Seq, MetaBytes: int(h.metaLen),
		MetaCRC: h.metaCRC, Size: h.size(), Frames: frames}
	return e, c, nil
}

// Times are kept as nanoseconds; the zero time, which has none, as the least number.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return math.MinInt64
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == math.MinInt64 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// When returns when the frame was made.
func (f *FrameEntry) When() time.Time { return fromNanos(f.Time) }

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
