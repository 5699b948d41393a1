package scylla

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

// parallel runs f with n in flight and tells megabytes a second by size.
func parallel(b *testing.B, n, size int, f func(i int64) error) {
	b.SetBytes(int64(size))
	b.SetParallelism(max(1, n/2)) // of the two processors that -cpu 2 gives
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(next.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// benchPlain is what the database can do: one plain insert per commit, nothing else.
func benchPlain(b *testing.B, inFlight, size int) {
	s, p := openStore(b, config(b)), freshPartition()
	blob, now := make([]byte, size), time.Now()
	parallel(b, inFlight, size, func(i int64) error {
		return s.db.query(b.Context(), "INSERT INTO frames_week (topic, partition_id, width, start, first, count, size, time, blob) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			int64(99), int(p), 64, i/64*64, i, 1, int64(size), now, blob).WithTimestamp(now.UnixMicro()).Exec()
	})
}

func benchAppend(b *testing.B, inFlight, size int) {
	s, p := openStore(b, config(b)), freshPartition()
	parallel(b, inFlight, size, func(i int64) error { return s.Append(b.Context(), commitOf(p, schema.Seq(i), size), schema.AckQuorum) })
}

func BenchmarkPlainInsert1KiB(b *testing.B)   { benchPlain(b, 64, 1<<10) }
func BenchmarkPlainInsert256KiB(b *testing.B) { benchPlain(b, 16, 256<<10) }
func BenchmarkAppend1KiB(b *testing.B)        { benchAppend(b, 64, 1<<10) }
func BenchmarkAppend256KiB(b *testing.B)      { benchAppend(b, 16, 256<<10) }

func BenchmarkSessionRead(b *testing.B) {
	s, id := openStore(b, config(b)), schema.SessionID(uuid.NewString())
	if err := s.OpenSession(b.Context(), id); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if live, err := s.SessionLive(b.Context(), id); !live || err != nil {
			b.Fatal(live, err)
		}
	}
}

func BenchmarkSwapPartition(b *testing.B) {
	s, p := openStore(b, config(b)), freshPartition()
	for version := int64(1); b.Loop(); version++ {
		if ok, _, err := s.SwapPartition(b.Context(), schema.Partition{ID: p, Version: version, Attempt: uuid.NewString()}); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkFrames1MiB(b *testing.B) {
	s, p := openStore(b, config(b)), freshPartition()
	for seq := range schema.Seq(32) {
		if err := s.Append(b.Context(), commitOf(p, seq+1, 128<<10), schema.AckQuorum); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(1 << 20)
	for from := schema.Offset(0); b.Loop(); from = (from + 80) % 240 {
		if fs, err := s.Frames(b.Context(), 1, p, from, schema.OffsetMax, 1<<20); err != nil || len(fs) != 8 {
			b.Fatal(len(fs), err)
		}
	}
}
