package owner

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/handfast-mq/handfast/partitions/frame"
	"github.com/handfast-mq/handfast/schema"
)

// Batch is messages for one topic in one partition, encoded where they came in. All of a batch lies in one commit.
type Batch struct {
	Topic     schema.TopicID
	Level     schema.AckLevel
	Retention time.Duration // the topic's
	Records   []byte        // frame records, one after the other
	Ends      []int         // where each record ends in Records
	Keys      []Key         // of the records that have one, ascending by index
}

// Add encodes a message into the batch.
func (b *Batch) Add(m *schema.Publish) {
	start := len(b.Records)
	b.Records = frame.AppendRecord(b.Records, m)
	b.Ends = append(b.Ends, len(b.Records))
	if m.IdempotencyKey != "" {
		b.Keys = append(b.Keys, Key{
			Index:       len(b.Ends) - 1,
			Digest:      DigestOf(b.Topic, m.Publisher, m.IdempotencyKey),
			Fingerprint: xxhash.Sum64(b.Records[start:]),
		})
	}
}

// Len returns the number of messages.
func (b *Batch) Len() int { return len(b.Ends) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{Records: b.Records[:0], Ends: b.Ends[:0], Keys: b.Keys[:0]}
}

func (b *Batch) record(i int) []byte {
	start := 0
	if i > 0 {
		start = b.Ends[i-1]
	}
	return b.Records[start:b.Ends[i]]
}

// DigestOf identifies an idempotency key. The publisher is part of it: nobody can meet another one's keys.
func DigestOf(t schema.TopicID, u schema.UserID, key string) Digest {
	var buf [16 + schema.KeyBytesMax]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(t))
	binary.LittleEndian.PutUint64(buf[8:], uint64(u))
	sum := sha256.Sum256(append(buf[:16], key...))
	return Digest(sum[:16])
}
