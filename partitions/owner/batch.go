package owner

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
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
	Keys      []Key         // of the records that have one, ascending by index and disjoint
}

// Add encodes a message into the batch. place is its own among those that its publisher sent to the partition at once. Messages of one
// batch of the publisher's that have no idempotency key of their own share one as long as they follow each other: it is the run that is
// new or was seen before.
func (b *Batch) Add(m *schema.Publish, place int) {
	start := len(b.Records)
	b.Records = frame.AppendRecord(b.Records, m)
	b.Ends = append(b.Ends, len(b.Records))
	i := len(b.Ends) - 1
	switch {
	case m.IdempotencyKey != "":
		b.Keys = append(b.Keys, Key{Index: i, Count: 1, Digest: DigestOf(b.Topic, m.Publisher, m.IdempotencyKey), Fingerprint: xxhash.Sum64(b.Records[start:])})
	case m.Batch == "":
	case b.goesOn(i):
		k := &b.Keys[len(b.Keys)-1]
		k.Count++
		k.Fingerprint = k.Fingerprint*fingerprintPrime + xxhash.Sum64(b.Records[start:])
	default:
		b.Keys = append(b.Keys, Key{Index: i, Count: 1, run: true, Digest: DigestOf(b.Topic, m.Publisher, m.Batch+"\x00"+strconv.Itoa(place)),
			Fingerprint: xxhash.Sum64(b.Records[start:])})
	}
}

// fingerprintPrime makes the fingerprint of a run depend on the order of its records.
const fingerprintPrime = 0x9E3779B185EBCA87

// goesOn tells whether a record belongs to the run before it.
func (b *Batch) goesOn(i int) bool {
	n := len(b.Keys)
	return n > 0 && b.Keys[n-1].run && b.Keys[n-1].Index+b.Keys[n-1].Count == i
}

// Len returns the number of messages.
func (b *Batch) Len() int { return len(b.Ends) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{Records: b.Records[:0], Ends: b.Ends[:0], Keys: b.Keys[:0]}
}

// start is where a record begins.
func (b *Batch) start(i int) int {
	if i == 0 {
		return 0
	}
	return b.Ends[i-1]
}

// records returns n records from one on.
func (b *Batch) records(i, n int) []byte { return b.Records[b.start(i):b.Ends[i+n-1]] }

// DigestOf identifies an idempotency key. The publisher is part of it: nobody can meet another one's keys.
func DigestOf(t schema.TopicID, u schema.UserID, key string) Digest {
	var buf [16 + schema.KeyBytesMax + 20]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(t))
	binary.LittleEndian.PutUint64(buf[8:], uint64(u))
	sum := sha256.Sum256(append(buf[:16], key...))
	return Digest(sum[:16])
}
