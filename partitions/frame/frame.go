// Package frame encodes messages into the blobs that the log keeps.
//
// A blob is a header and one record per message. A record says nothing of its offset or time: those follow from
// the frame that holds it. So a record is encoded once, by whoever received the message, and copied as it is into
// the frame that the partition's owner forms.
//
//	blob   = version(1) reserved(3) crc32c(4, of all that follows) record*
//	record = uvarint(length of the rest) flags(1) uvarint(publisher) [uvarint(delay ms)] [key] [content type]
//	         [uvarint(n) (name value)*n] [uvarint(only)] content
//
// key, content type, names and values are uvarint(length) and bytes; flags say which are there.
package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
	"unsafe"

	"github.com/handfast-mq/handfast/schema"
)

const (
	version     = 1
	headerBytes = 8

	// BlobBytesMax bounds a blob: one message at every limit, with room to spare.
	BlobBytesMax = schema.ContentBytesMax + 64<<10
)

const (
	hasDelay = 1 << iota
	hasKey
	hasContentType
	hasAttributes
	hasOnly
	knownFlags = hasDelay | hasKey | hasContentType | hasAttributes | hasOnly

	attributesMax = schema.AttributesMax + 8 // dead letters carry some of ours beside the message's own
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendRecord appends the record of m to buf. m must be within the limits of package schema.
func AppendRecord(buf []byte, m *schema.Publish) []byte {
	n := recordBytes(m)
	buf = binary.AppendUvarint(buf, uint64(n))
	flags := byte(0)
	if m.Delay > 0 {
		flags |= hasDelay
	}
	if m.Key != "" {
		flags |= hasKey
	}
	if m.ContentType != "" {
		flags |= hasContentType
	}
	if len(m.Attributes) > 0 {
		flags |= hasAttributes
	}
	if m.Only != 0 {
		flags |= hasOnly
	}
	buf = append(buf, flags)
	buf = binary.AppendUvarint(buf, uint64(m.Publisher))
	if m.Delay > 0 {
		buf = binary.AppendUvarint(buf, uint64(m.Delay.Milliseconds()))
	}
	if m.Key != "" {
		buf = appendString(buf, m.Key)
	}
	if m.ContentType != "" {
		buf = appendString(buf, m.ContentType)
	}
	if len(m.Attributes) > 0 {
		buf = binary.AppendUvarint(buf, uint64(len(m.Attributes)))
		for _, a := range m.Attributes {
			buf = appendString(appendString(buf, a.Name), a.Value)
		}
	}
	if m.Only != 0 {
		buf = binary.AppendUvarint(buf, uint64(m.Only))
	}
	return append(buf, m.Content...)
}

func recordBytes(m *schema.Publish) int {
	n := 1 + uvarintBytes(uint64(m.Publisher)) + len(m.Content)
	if m.Delay > 0 {
		n += uvarintBytes(uint64(m.Delay.Milliseconds()))
	}
	if m.Key != "" {
		n += stringBytes(m.Key)
	}
	if m.ContentType != "" {
		n += stringBytes(m.ContentType)
	}
	if len(m.Attributes) > 0 {
		n += uvarintBytes(uint64(len(m.Attributes)))
		for _, a := range m.Attributes {
			n += stringBytes(a.Name) + stringBytes(a.Value)
		}
	}
	if m.Only != 0 {
		n += uvarintBytes(uint64(m.Only))
	}
	return n
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func stringBytes(s string) int { return uvarintBytes(uint64(len(s))) + len(s) }

func uvarintBytes(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

// NewBlob begins a blob with room for n bytes of records, to which records are appended before Seal.
func NewBlob(n int) []byte {
	return append(make([]byte, 0, headerBytes+n), version, 0, 0, 0, 0, 0, 0, 0)
}

// Seal writes the checksum. After that the blob never changes.
func Seal(blob []byte) {
	binary.LittleEndian.PutUint32(blob[4:], crc32.Checksum(blob[headerBytes:], castagnoli))
}

// Check verifies a blob that was read back.
func Check(blob []byte) error {
	if len(blob) < headerBytes || blob[0] != version {
		return fmt.Errorf("frame: not a blob of version %d", version)
	}
	if binary.LittleEndian.Uint32(blob[4:]) != crc32.Checksum(blob[headerBytes:], castagnoli) {
		return fmt.Errorf("frame: checksum does not match")
	}
	return nil
}

// Reader walks through the messages of one frame. The messages alias the frame's blob.
type Reader struct {
	frame *schema.Frame
	rest  []byte
	next  schema.Offset
	err   error
}

// Read begins to read a frame.
func Read(f *schema.Frame) *Reader {
	r := &Reader{frame: f, next: f.First}
	if len(f.Blob) < headerBytes {
		r.err = fmt.Errorf("frame: blob of %d bytes", len(f.Blob))
		return r
	}
	r.rest = f.Blob[headerBytes:]
	return r
}

// Err tells why Next stopped before the frame's end; nil when it did not.
func (r *Reader) Err() error { return r.err }

// Skip leaves out the messages before an offset.
func (r *Reader) Skip(to schema.Offset) {
	for r.err == nil && r.next < to && r.next < r.frame.End() {
		r.record()
	}
}

// Next decodes the next message of partition p. ok is false at the end or at the first damage, see Err.
func (r *Reader) Next(p schema.PartitionID, m *schema.Message) (ok bool) {
	if r.err != nil || r.next >= r.frame.End() {
		return false
	}
	offset := r.next
	rec := r.record()
	if r.err != nil {
		return false
	}
	*m = schema.Message{ID: schema.NewMessageID(p, offset), Topic: r.frame.Topic, Time: r.frame.Time}
	if err := decode(rec, m); err != nil {
		r.err = fmt.Errorf("frame: message %d: %w", m.ID, err)
		return false
	}
	return true
}

func (r *Reader) record() []byte {
	n, w := binary.Uvarint(r.rest)
	if w <= 0 || n > uint64(len(r.rest)-w) {
		r.err = fmt.Errorf("frame: record at offset %d runs past the blob", r.next)
		return nil
	}
	rec := r.rest[w : w+int(n)]
	r.rest = r.rest[w+int(n):]
	r.next++
	return rec
}

func decode(rec []byte, m *schema.Message) error {
	d := decoder{rest: rec}
	flags := d.byte()
	if flags&^knownFlags != 0 {
		return fmt.Errorf("unknown flags %#x", flags)
	}
	m.Publisher = schema.UserID(d.uvarint())
	if flags&hasDelay != 0 {
		m.DeliverAt = m.Time.Add(time.Duration(d.uvarint()) * time.Millisecond)
	}
	if flags&hasKey != 0 {
		m.Key = d.string()
	}
	if flags&hasContentType != 0 {
		m.ContentType = d.string()
	}
	if flags&hasAttributes != 0 {
		n := d.uvarint()
		if n > attributesMax {
			return fmt.Errorf("%d attributes", n)
		}
		m.Attributes = make([]schema.Attribute, 0, n)
		for range n {
			m.Attributes = append(m.Attributes, schema.Attribute{Name: d.string(), Value: d.string()})
		}
	}
	if flags&hasOnly != 0 {
		m.Only = schema.SubscriptionID(d.uvarint())
	}
	m.Content = d.rest
	if d.bad {
		return fmt.Errorf("record is cut short")
	}
	return nil
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, w := binary.Uvarint(d.rest)
	if w <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[w:]
	return v
}

// string aliases the blob, which never changes.
func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return ""
	}
	if n == 0 {
		return ""
	}
	s := unsafe.String(&d.rest[0], n)
	d.rest = d.rest[n:]
	return s
}
