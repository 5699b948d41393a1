package scylla

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// commitsPerBucket: a log bucket of usual commits is some 100 KB, one of commits full of idempotency keys 30 MB.
	commitsPerBucket = 1024
	// spanOffsets is the widest bucket of frames, and what one row set of log_offsets covers.
	spanOffsets = 1 << 16
	// smallBytes is a message of 1 KiB with what a record says beside its content.
	smallBytes = 1<<10 + 256
	// frameBytesMax: ScyllaDB refuses cells above 2 MB, and Cassandra writes above half a commit log segment.
	frameBytesMax = 2 << 20
)

// class is a table of frames that expire together.
type class int8

const (
	classFortnight class = iota // the zero class is the longest: nothing goes too early
	classHours
	classDays
	classWeek
)

var frameTables = [...]string{"frames_fortnight", "frames_hours", "frames_days", "frames_week"}

// table returns the name of the class's table. A class that a later version made is unknown.
func (c class) table() (string, error) {
	if int(c) < 0 || int(c) >= len(frameTables) {
		return "", schema.Errorf(schema.Internal, "retention class %d is of a later version", c)
	}
	return frameTables[c], nil
}

// classOf picks the table for frames that are kept for a time. Each table's time to live is longer than that by a margin in which
// the owner forgets them.
func classOf(retention time.Duration) class {
	switch {
	case retention <= 0:
		return classFortnight
	case retention <= 6*time.Hour:
		return classHours
	case retention <= 48*time.Hour:
		return classDays
	case retention <= 7*24*time.Hour:
		return classWeek
	}
	return classFortnight
}

// bucket names one CQL partition of frames of a topic in a partition.
type bucket struct {
	start schema.Offset // a multiple of width
	width schema.Offset
	class class
}

func (b bucket) end() schema.Offset { return b.start + b.width }

// bucketOf tells where a frame lies, by nothing but the frame: whoever writes it again finds the same place. The width follows the
// size of its messages, so that no bucket passes some 80 MiB, and no frame holds more offsets than its bucket is wide.
func bucketOf(f *schema.Frame) bucket {
	return frameBucket(f.First, f.Count, int64(len(f.Blob)), classOf(f.Retention))
}

func frameBucket(first schema.Offset, count int, size int64, c class) bucket {
	width := schema.Offset(64)
	switch each := size / int64(count); {
	case each <= smallBytes:
		width = spanOffsets
	case each <= 32<<10:
		width = 2048
	}
	return bucket{first &^ (width - 1), width, c}
}

// spanOf returns the start of the span that holds an offset.
func spanOf(o schema.Offset) schema.Offset { return o &^ (spanOffsets - 1) }

func logBucket(s schema.Seq) int64 { return int64(s-1) / commitsPerBucket }

// frameMeta is a frame as its commit's row lists it.
type frameMeta struct {
	schema.Frame // no blob
	size         int64
	class        class
}

func (f *frameMeta) bucket() bucket { return frameBucket(f.First, f.Count, f.size, f.class) }

// appendFrames encodes a commit's frames: per frame topic, count, size, class and time less the commit's, as varints.
func appendFrames(b []byte, c *schema.Commit) []byte {
	for i := range c.Frames {
		f := &c.Frames[i]
		b = binary.AppendUvarint(b, uint64(f.Topic))
		b = binary.AppendUvarint(b, uint64(f.Count))
		b = binary.AppendUvarint(b, uint64(len(f.Blob)))
		b = binary.AppendUvarint(b, uint64(classOf(f.Retention)))
		b = binary.AppendVarint(b, f.Time.UnixMilli()-c.Time.UnixMilli())
	}
	return b
}

// parseFrames is the inverse of appendFrames.
func parseFrames(b []byte, first schema.Offset, at time.Time) (fs []frameMeta, err error) {
	next := func() (v uint64) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			err, n = fmt.Errorf("a commit's list of frames is cut off"), len(b)
		}
		b = b[n:]
		return v
	}
	for len(b) > 0 && err == nil {
		var f frameMeta
		f.Topic, f.First, f.Count = schema.TopicID(next()), first, int(next())
		f.size, f.class = int64(next()), class(next())
		late, n := binary.Varint(b)
		if n <= 0 || f.Count < 1 {
			return nil, fmt.Errorf("a commit's list of frames is broken")
		}
		b, f.Time = b[n:], at.Add(time.Duration(late)*time.Millisecond)
		first = f.End()
		fs = append(fs, f)
	}
	return fs, err
}

// retention is a time of the class: classOf of it is the class.
func (c class) retention() time.Duration {
	switch c {
	case classHours:
		return time.Hour
	case classDays:
		return 24 * time.Hour
	case classWeek:
		return 7 * 24 * time.Hour
	}
	return 0
}
