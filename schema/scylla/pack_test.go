package scylla

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestPack(t *testing.T) {
	text := []byte(strings.Repeat("order 12 of customer 7 is shipped; ", 3000))
	for name, c := range map[string]struct {
		blob    []byte
		smaller bool
	}{"nothing": {}, "short": {text[:packMin-1], false}, "text": {text, true}, "noise": {noise(70000), false}, "both": {append(noise(1000), text...), true}} {
		stored := pack(c.blob)
		if (len(stored) < len(c.blob)) != c.smaller || len(stored) > len(c.blob) {
			t.Errorf("%s: %d bytes are stored as %d", name, len(c.blob), len(stored))
		}
		if !bytes.Equal(stored, pack(bytes.Clone(c.blob))) {
			t.Errorf("%s: packed again, it is another", name)
		}
		if got := unpack(stored, int64(len(c.blob))); !bytes.Equal(got, c.blob) {
			t.Errorf("%s: %d bytes came back of %d", name, len(got), len(c.blob))
		}
	}
	packed := pack(text)
	damaged := bytes.Clone(packed)
	damaged[len(damaged)/2] ^= 0xff
	for _, stored := range [][]byte{nil, packed[:1], packed[:len(packed)-1], damaged} {
		if got := unpack(stored, int64(len(text))); bytes.Equal(got, text) {
			t.Errorf("%d damaged bytes came back whole", len(stored))
		}
	}
	if got := unpack(packed, 1<<40); !bytes.Equal(got, packed) {
		t.Errorf("of another size: %d bytes", len(got))
	}
}

// TestFramesArePacked: in the database, and not for who reads them; rows of before frames were packed are read as ever.
func TestFramesArePacked(t *testing.T) {
	s, p, ctx := openStore(t, config(t)), freshPartition(), t.Context()
	packed, plain := commitOf(p, 1, 50_000), commitOf(p, 2, 50_000)
	must(t, s.Append(ctx, packed, schema.AckQuorum))
	must(t, s.noteCommit(ctx, plain))
	must(t, retried(ctx, statementTime, func() error {
		return firstOf(insertFrame(ctx, s.db, plain, &plain.Frames[0], plain.Frames[0].Blob, s.levels.quorum), insertCommit(ctx, s.db, plain, s.levels.quorum))
	}))
	fs, err := s.Frames(ctx, 1, p, 0, schema.OffsetMax, 1<<30)
	must(t, err)
	if len(fs) != 2 || !bytes.Equal(fs[0].Blob, packed.Frames[0].Blob) || !bytes.Equal(fs[1].Blob, plain.Frames[0].Blob) {
		t.Fatalf("other frames came back: %d", len(fs))
	}
	for i, c := range []*schema.Commit{packed, plain} {
		f, ok, err := s.Locate(ctx, p, c.First())
		if err != nil || !ok || !bytes.Equal(f.Blob, c.Frames[0].Blob) {
			t.Errorf("located: %v, %d bytes, %v", ok, len(f.Blob), err)
		}
		b := bucketOf(&c.Frames[0])
		table, _ := b.class.table()
		var stored []byte
		must(t, s.db.query(ctx, "SELECT blob FROM "+table+frameWhere+" AND first = ?", 1, int(p), int64(b.width), int64(b.start), int64(c.First())).Scan(&stored))
		if want := i == 1; (len(stored) == 50_000) != want {
			t.Errorf("%d bytes are stored of commit %d", len(stored), c.Seq)
		}
	}
}
