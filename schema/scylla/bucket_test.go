package scylla

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func TestFrameListRoundTrip(t *testing.T) {
	now := time.UnixMilli(1767225600123).UTC()
	c := &schema.Commit{Time: now, Frames: []schema.Frame{
		{Topic: 1, First: 100, Count: 3, Time: now, Blob: make([]byte, 70000)},
		{Topic: schema.IDMax, First: 103, Count: 65536, Time: now.Add(-time.Second), Retention: time.Hour},
		{Topic: 0, First: 65639, Count: 1, Time: now.Add(time.Millisecond), Blob: []byte{1}, Retention: 7 * 24 * time.Hour}}}
	encoded := appendFrames(nil, c)
	got, err := parseFrames(encoded, 100, now)
	if err != nil || len(got) != len(c.Frames) {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	for i := range got {
		f := c.Frames[i]
		if got[i].bucket() != bucketOf(&f) || got[i].class.retention() != f.Retention || got[i].size != int64(len(f.Blob)) {
			t.Errorf("frame %d: %+v lies elsewhere than %+v", i, got[i], f)
		}
		f.Blob, f.Retention = nil, 0
		if !reflect.DeepEqual(got[i].Frame, f) {
			t.Errorf("frame %d: %+v, want %+v", i, got[i].Frame, f)
		}
	}
	for cut := range len(encoded) {
		if fs, err := parseFrames(encoded[:cut], 100, now); err == nil && len(fs) == len(got) {
			t.Errorf("a list cut at %d is taken as whole", cut)
		}
	}
}

// TestBucketsAreBounded: no frame holds more offsets than its bucket is wide, which reads rely on, and a full bucket is some 64 MiB.
func TestBucketsAreBounded(t *testing.T) {
	for _, count := range []int{1, 2, 63, 64, 65, 1000, 2048, 2049, spanOffsets} {
		for _, size := range []int{0, 1, count, count << 10, count<<10 + 1, count << 15, frameBytesMax} {
			if size > frameBytesMax {
				continue
			}
			f := schema.Frame{First: 1<<30 + 7, Count: count, Blob: make([]byte, size)}
			b := bucketOf(&f)
			if schema.Offset(count) > b.width && size > 0 || b.start > f.First || b.end() <= f.First {
				t.Errorf("%d messages, %d bytes: %+v", count, size, b)
			}
			if full := int64(size) / int64(count) * int64(b.width); full > 128<<20 {
				t.Errorf("%d messages, %d bytes: a full bucket has %d bytes", count, size, full)
			}
		}
	}
}

func TestClassOutlivesRetention(t *testing.T) {
	lives := map[class]time.Duration{classHours: 12 * time.Hour, classDays: 72 * time.Hour, classWeek: 8 * 24 * time.Hour, classFortnight: 15 * 24 * time.Hour}
	for _, r := range []time.Duration{0, schema.RetentionMin, 6 * time.Hour, 7 * time.Hour, 48 * time.Hour, 72 * time.Hour, schema.RetentionDefault, 200 * time.Hour, schema.RetentionMax} {
		if c := classOf(r); lives[c] <= r || c.retention() != 0 && classOf(c.retention()) != c {
			t.Errorf("retention %v lies in class %d, which lives %v", r, c, lives[c])
		}
	}
}

func TestTablets(t *testing.T) {
	for version, want := range map[string]bool{"5.4.9": false, "6.0.1": true, "6.2.3-0.20250119": true, "2024.1.4": false, "2024.2.0": true,
		"2025.1.0": true, "2025.3.9": true, "2025.4.0": false, "2026.1.0": false, "": false} {
		if tabletsWithoutLWT(version) != want {
			t.Errorf("version %q: %v, want %v", version, !want, want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Hosts: []string{"h"}, Keyspace: "k"}
	if c, err := good.complete(); err != nil || c.Port != 9042 || c.ReplicationFactor != 3 || c.Scope != Local {
		t.Errorf("%+v %v", c, err)
	}
	for name, spoil := range map[string]func(*Config){
		"no hosts": func(c *Config) { c.Hosts = nil }, "no keyspace": func(c *Config) { c.Keyspace = "" },
		"keyspace": func(c *Config) { c.Keyspace = "k; DROP" }, "scope": func(c *Config) { c.Scope = "galaxy" },
		"replication": func(c *Config) { c.ReplicationFactor = -1 },
	} {
		c := good
		spoil(&c)
		if _, err := c.complete(); schema.KindOf(err) != schema.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordsAreCutInChunks(t *testing.T) {
	var records []schema.Record
	for i := range 100 {
		records = append(records, schema.Record{Kind: schema.KindTopic, Key: "k", Value: bytes.Repeat([]byte{'x'}, i*400)})
	}
	records = append(records, schema.Record{Kind: schema.KindRule, Key: "large", Value: make([]byte, 2*chunkBytes)})
	chunks, err := cutRecords(records)
	if err != nil || len(chunks) < 5 {
		t.Fatalf("%d chunks, %v", len(chunks), err)
	}
	if chunks, err = cutRecords(nil); err != nil || len(chunks) != 0 {
		t.Errorf("no records: %d chunks, %v", len(chunks), err)
	}
}
