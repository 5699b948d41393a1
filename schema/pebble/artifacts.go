package pebble

import (
	"context"

	cockroach "github.com/cockroachdb/pebble/v2"

	"github.com/handfast-mq/handfast/schema"
)

func artifactKey(sha256 string) key { return append(append(row(rowArtifact), sha256...), '/') }

// artifactHashBytes is a SHA-256 in hex.
const artifactHashBytes = 64

// PutArtifact implements schema.Artifacts.
func (s *Store) PutArtifact(_ context.Context, sha256 string, chunk int, data []byte) error {
	switch {
	case len(sha256) != artifactHashBytes || chunk < 0:
		return schema.Errorf(schema.Invalid, "an artifact goes by its SHA-256 in hex, its chunks from 0")
	case len(data) > schema.ArtifactChunkBytes:
		return schema.Errorf(schema.TooLarge, "a chunk has at most %d bytes", schema.ArtifactChunkBytes)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return internal(s.db.Set(artifactKey(sha256).number(int64(chunk)), data, cockroach.Sync), "write code")
}

// Artifact implements schema.Artifacts.
func (s *Store) Artifact(_ context.Context, sha256 string, chunk int) ([]byte, bool, error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.leave()
	data, ok, err := get(s.db, artifactKey(sha256).number(int64(chunk)))
	return data, ok, internal(err, "read code")
}

// DropArtifact implements schema.Artifacts.
func (s *Store) DropArtifact(_ context.Context, sha256 string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	k := artifactKey(sha256)
	return internal(s.db.DeleteRange(k, k.end(), cockroach.Sync), "forget code")
}
