package scylla

import (
	"context"

	"github.com/handfast-mq/handfast/schema"
)

var _ schema.Artifacts = (*Store)(nil)

// artifactHashBytes is a SHA-256 in hex.
const artifactHashBytes = 64

// PutArtifact implements schema.Artifacts.
func (s *Store) PutArtifact(ctx context.Context, sha256 string, chunk int, data []byte) error {
	switch {
	case len(sha256) != artifactHashBytes || chunk < 0:
		return schema.Errorf(schema.Invalid, "an artifact goes by its SHA-256 in hex, its chunks from 0")
	case len(data) > schema.ArtifactChunkBytes:
		return schema.Errorf(schema.TooLarge, "a chunk has at most %d bytes", schema.ArtifactChunkBytes)
	}
	at := s.clock.next()
	return s.try(ctx, schema.Unknown, "write code", func(d *db) error {
		q := d.query(ctx, "INSERT INTO artifacts (sha256, chunk, data) VALUES (?, ?, ?)", sha256, chunk, bytesOf(data))
		q.WithTimestamp(at)
		return q.Exec()
	})
}

// Artifact implements schema.Artifacts.
func (s *Store) Artifact(ctx context.Context, sha256 string, chunk int) (data []byte, ok bool, err error) {
	err = s.try(ctx, schema.Unavailable, "read code", func(d *db) error {
		iter := d.query(ctx, "SELECT data FROM artifacts WHERE sha256 = ? AND chunk = ?", sha256, chunk).Iter()
		ok = iter.Scan(&data)
		return iter.Close()
	})
	return data, ok && err == nil, err
}

// DropArtifact implements schema.Artifacts.
func (s *Store) DropArtifact(ctx context.Context, sha256 string) error {
	at := s.clock.next()
	return s.try(ctx, schema.Unknown, "forget code", func(d *db) error {
		q := d.query(ctx, "DELETE FROM artifacts WHERE sha256 = ?", sha256)
		q.WithTimestamp(at)
		return q.Exec()
	})
}
