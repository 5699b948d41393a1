package storetest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

// RunArtifacts proves that a store keeps the contract of schema.Artifacts.
func RunArtifacts(t *testing.T, s schema.Artifacts) {
	ctx := context.Background()
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	put := func(sha string, chunk int, data string) {
		t.Helper()
		if err := s.PutArtifact(ctx, sha, chunk, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(sha string, chunk int, data string, there bool) {
		t.Helper()
		got, ok, err := s.Artifact(ctx, sha, chunk)
		if err != nil || ok != there || !bytes.Equal(got, []byte(data)) {
			t.Fatalf("chunk %d: %q %v %v, want %q %v", chunk, got, ok, err, data, there)
		}
	}
	want(a, 0, "", false)
	put(a, 0, "first")
	put(a, 1, "second")
	put(a, 1, "second")
	put(b, 0, "other")
	want(a, 0, "first", true)
	want(a, 1, "second", true)
	want(a, 2, "", false)
	if err := s.DropArtifact(ctx, a); err != nil {
		t.Fatal(err)
	}
	want(a, 0, "", false)
	want(a, 1, "", false)
	want(b, 0, "other", true)
	if err := s.PutArtifact(ctx, b, 1, make([]byte, schema.ArtifactChunkBytes+1)); schema.KindOf(err) != schema.TooLarge {
		t.Fatalf("a chunk over the limit: %v", err)
	}
	if err := s.PutArtifact(ctx, "short", 0, nil); schema.KindOf(err) != schema.Invalid {
		t.Fatalf("a name that is no hash: %v", err)
	}
}
