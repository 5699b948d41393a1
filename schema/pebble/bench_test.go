package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	cockroach "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/pebble/segment"
)

// load is one shape of traffic: writers side by side, each with its own partition and one frame per commit.
type load struct{ bytes, writers int }

var loads = []load{{1 << 10, 1}, {1 << 10, 16}, {1 << 10, 64}, {30 << 10, 1}, {30 << 10, 16}, {100 << 10, 16}, {256 << 10, 1}, {256 << 10, 8}}

func (l load) String() string { return fmt.Sprintf("%dKiB_x%d", l.bytes>>10, l.writers) }

// run calls write from the load's writers b.N times together.
func (l load) run(b *testing.B, write func(c *schema.Commit) error) {
	b.SetBytes(int64(l.bytes))
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	errs := make(chan error, l.writers)
	blob := make([]byte, l.bytes)
	for i := range blob {
		blob[i] = byte(i * 7)
	}
	b.ResetTimer()
	for w := range l.writers {
		go func() {
			c := schema.Commit{Partition: schema.PartitionID(w), Epoch: 1, Time: start, Frames: make([]schema.Frame, 1)}
			var err error
			for ; err == nil && left.Add(-1) >= 0; c.Seq++ {
				c.Frames[0] = schema.Frame{Topic: 1, First: schema.Offset(c.Seq), Count: 1, Time: start, Blob: blob}
				err = write(&schema.Commit{Partition: c.Partition, Epoch: 1, Seq: c.Seq + 1, Time: start, Frames: c.Frames})
			}
			errs <- err
		}()
	}
	var err error
	for range l.writers {
		err = errors.Join(err, <-errs)
	}
	if b.StopTimer(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStore is Append as the owner of a partition calls it.
func BenchmarkStore(b *testing.B) {
	for _, level := range []schema.AckLevel{schema.AckQuorum, schema.AckOne} {
		for _, l := range loads {
			b.Run(fmt.Sprintf("%s_level%d", l, level), func(b *testing.B) {
				s := openStore(b, b.TempDir(), Options{Logger: quiet()})
				l.run(b, func(c *schema.Commit) error { return s.Append(context.Background(), c, level) })
				b.ReportMetric(float64(s.Stats().Syncs)/float64(b.N), "syncs/op")
			})
		}
	}
}

// nothing is an index that keeps nothing.
type nothing struct{}

func (nothing) Apply([]*segment.Entry, segment.Mark) error { return nil }
func (nothing) Truncate(segment.Position) error            { return nil }
func (nothing) Save(segment.Mark) error                    { return nil }

// BenchmarkLogOnly is the log without its index: what the index costs is the difference to BenchmarkStore.
func BenchmarkLogOnly(b *testing.B) {
	for _, l := range loads {
		b.Run(l.String(), func(b *testing.B) {
			log, err := segment.Open(segment.Options{FS: vfs.Default, Dir: b.TempDir(), Bytes: segmentBytes, Logger: quiet(), Index: nothing{}})
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			l.run(b, func(c *schema.Commit) error { return log.Append(context.Background(), c, true) })
		})
	}
}

// BenchmarkPebbleSync is the same commits as synced Pebble batches, frames as values.
func BenchmarkPebbleSync(b *testing.B) {
	for _, l := range loads {
		b.Run(l.String(), func(b *testing.B) {
			db, err := cockroach.Open(filepath.Join(b.TempDir(), "db"), &cockroach.Options{MemTableSize: 64 << 20, Logger: logger{quiet()}})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			l.run(b, func(c *schema.Commit) error {
				t := db.NewBatch()
				defer t.Close()
				_ = t.Set(commitKey(c.Partition, c.Epoch, c.Seq), binary.BigEndian.AppendUint64(nil, uint64(c.First())), nil)
				_ = t.Set(frameKey(c.Partition, 1, c.First()), c.Frames[0].Blob, nil)
				return t.Commit(cockroach.Sync)
			})
		})
	}
}

// BenchmarkBareDisk writes the same bytes to a file of zeros, with one sync for all who wait, and nothing else.
func BenchmarkBareDisk(b *testing.B) {
	for _, l := range loads {
		b.Run(l.String(), func(b *testing.B) {
			d := newBareDisk(b)
			l.run(b, func(c *schema.Commit) error { return d.write(c.Frames[0].Blob) })
		})
	}
}
