package segment

import (
	"bytes"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func sample(n int) *schema.Commit {
	at := time.Unix(int64(n), 5e6)
	return &schema.Commit{Partition: 3, Epoch: 2, Seq: schema.Seq(n), Committed: schema.Seq(n - 1), Time: at, Keys: []byte("keys"),
		Frames: []schema.Frame{{Topic: 1, First: schema.Offset(2 * n), Count: 1, Time: at, Blob: bytes.Repeat([]byte{byte(n)}, 300)},
			{Topic: 2, First: schema.Offset(2*n + 1), Count: 1, Time: at}}}
}

// encode makes the bytes of a record as the log writes them.
func encode(k Kind, c *schema.Commit, absent []bool) []byte {
	w := &waiter{}
	w.entry.describe(k, c, absent)
	g := &group{}
	g.add(w, c)
	e := &w.entry
	h := header{kind: k, segment: 1, run: 1, metaLen: uint32(e.MetaBytes), bodyLen: uint32(e.Size - headerBytes - e.MetaBytes), metaCRC: e.MetaCRC}
	h.put(g.buf)
	return g.buf
}

func TestRecordRoundTrip(t *testing.T) {
	for _, absent := range [][]bool{nil, {true, false}, {false, true}} {
		c := sample(7)
		b := encode(KindCommit, c, absent)
		e, got, err := parseRecord(b)
		if err != nil || e.Size != len(b) {
			t.Fatalf("size %d of %d: %v", e.Size, len(b), err)
		}
		if got.Partition != c.Partition || got.Epoch != c.Epoch || got.Seq != c.Seq || got.Committed != c.Committed ||
			!got.Time.Equal(c.Time) || string(got.Keys) != string(c.Keys) || len(got.Frames) != 2 {
			t.Fatalf("commit %+v, want %+v", got, c)
		}
		for i, f := range got.Frames {
			want := c.Frames[i]
			if absent != nil && absent[i] {
				want.Blob = nil
			}
			if f.Topic != want.Topic || f.First != want.First || !f.Time.Equal(want.Time) || !bytes.Equal(f.Blob, want.Blob) {
				t.Errorf("frame %+v, want %+v", f, want)
			}
		}
	}
}

// TestRecordBits: no single bit of a record can change unseen.
func TestRecordBits(t *testing.T) {
	b := encode(KindCommit, sample(1), nil)
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		if _, _, err := parseRecord(b); err == nil {
			t.Fatalf("bit %d changed and the record is valid", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

// FuzzRecord: whatever bytes are there, reading them ends, in bounds; and what is valid is written the same again.
func FuzzRecord(f *testing.F) {
	f.Add(encode(KindCommit, sample(1), nil))
	f.Add(encode(KindMoved, sample(1<<20), []bool{true, false}))
	f.Add([]byte{})
	f.Add(make([]byte, headerBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, c, err := parseRecord(b)
		if err != nil {
			return
		}
		absent := make([]bool, len(e.Frames))
		for i := range e.Frames {
			absent[i] = e.Frames[i].Absent
		}
		again := encode(e.Kind, &c, absent)
		if !bytes.Equal(again[headerBytes:], b[headerBytes:e.Size]) {
			t.Fatalf("written again:\n%x\nread:\n%x", again, b[:e.Size])
		}
	})
}

// FuzzMeta leaves the checksums out, so that the fuzzer comes past them.
func FuzzMeta(f *testing.F) {
	b := encode(KindCommit, sample(1), nil)
	e, _, err := parseRecord(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[headerBytes : headerBytes+e.MetaBytes])
	f.Add(make([]byte, metaBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, frames, err := parseMeta(b)
		if err != nil {
			return
		}
		e := Entry{Frames: frames}
		if again := e.appendMeta(nil, &c); !bytes.Equal(again[:len(again)-frameBytes*len(frames)], b[:len(b)-frameBytes*len(frames)]) {
			t.Fatalf("written again:\n%x\nread:\n%x", again, b)
		}
	})
}
