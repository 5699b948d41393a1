package pebble

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// BenchmarkScale reads and writes on top of many stored commits: no figure may grow with their number.
func BenchmarkScale(b *testing.B) {
	for _, n := range []int{100_000, 500_000} {
		s := openStore(b, b.TempDir(), Options{Logger: quiet()})
		begin := time.Now()
		for i := range n {
			appendSmall(b, s, i)
		}
		b.Logf("%d commits in %v", n, time.Since(begin))
		b.Run(fmt.Sprintf("append_over_%d", n), func(b *testing.B) {
			for range b.N {
				appendSmall(b, s, n)
				n++
			}
		})
		b.Run(fmt.Sprintf("tail_over_%d", n), func(b *testing.B) {
			for range b.N {
				fs, err := s.Frames(b.Context(), 1, 1, schema.Offset(n-10), schema.OffsetMax, 1<<20)
				if err != nil || len(fs) != 10 {
					b.Fatal(len(fs), err)
				}
			}
		})
		b.Run(fmt.Sprintf("locate_over_%d", n), func(b *testing.B) {
			for range b.N {
				if _, ok, err := s.Locate(b.Context(), 1, schema.Offset(rand.IntN(n))); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run(fmt.Sprintf("seek_over_%d", n), func(b *testing.B) {
			for range b.N {
				at := start.Add(time.Duration(rand.IntN(n)) * time.Millisecond)
				if _, ok, err := s.SeekTime(b.Context(), 1, 1, at); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run(fmt.Sprintf("retain_over_%d", n), func(b *testing.B) {
			for i := range b.N {
				before := start.Add(time.Duration(i*10) * time.Millisecond)
				if _, _, err := s.Retain(b.Context(), 1, 1, before, 0, schema.OffsetMax); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func appendSmall(b *testing.B, s *Store, n int) {
	at := start.Add(time.Duration(n) * time.Millisecond)
	c := schema.Commit{Partition: 1, Epoch: 1, Seq: schema.Seq(n + 1), Time: at,
		Frames: []schema.Frame{{Topic: 1, First: schema.Offset(n), Count: 1, Time: at, Blob: make([]byte, 100)}}}
	if err := s.Append(b.Context(), &c, schema.AckOne); err != nil {
		b.Fatal(err)
	}
}
