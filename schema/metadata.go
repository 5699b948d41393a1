package schema

import (
	"context"
	"time"
)

// RecordKind names a noun in the metadata.
type RecordKind string

const (
	KindUser         RecordKind = "user"
	KindToken        RecordKind = "token"
	KindTopic        RecordKind = "topic"
	KindGrant        RecordKind = "grant"
	KindSubscription RecordKind = "subscription"
	KindRule         RecordKind = "rule"
	KindPattern      RecordKind = "pattern"
	KindFunction     RecordKind = "function"
	KindCluster      RecordKind = "cluster"
)

// Record is one noun as the metadata keeps it: JSON by kind and key. A nil Value means that it was deleted.
type Record struct {
	Kind  RecordKind `json:"kind"`
	Key   string     `json:"key"`
	Value []byte     `json:"value,omitempty"`
}

// Change is one step of the metadata, of one or more records, applied whole or not at all.
type Change struct {
	Revision Revision  `json:"revision"`
	Attempt  string    `json:"attempt"` // random id of the append that made it
	At       time.Time `json:"at"`
	Records  []Record  `json:"records"`
}

// Metadata is one totally ordered log of changes: who appends at the head knows that nobody changed anything in
// between. That makes every change linearizable, of any number of records, and the log is the change feed.
type Metadata interface {
	// AppendChange stores c when the head is c.Revision-1 and returns true after it is durable; false when that revision is taken.
	// With an error the outcome is unknown: read the change at the revision and compare Attempt.
	AppendChange(ctx context.Context, c Change) (bool, error)
	// Head returns the last revision, linearizably; 0 when there is none.
	Head(ctx context.Context) (Revision, error)
	// Changes returns up to limit changes after a revision, in order, without holes. When the log no longer
	// reaches back that far it fails with Gone: begin from the checkpoint.
	Changes(ctx context.Context, after Revision, limit int) ([]Change, error)
	// SaveCheckpoint stores the records of a revision whole; changes up to it may then be forgotten.
	SaveCheckpoint(ctx context.Context, at Revision, records []Record) error
	// Checkpoint returns the newest checkpoint; revision 0 when there is none.
	Checkpoint(ctx context.Context) (Revision, []Record, error)
}

// Store is all that a node keeps. schema/pebble and schema/scylla implement it; schema/storetest says what it promises.
type Store interface {
	Metadata
	Log
	Cursors
	Attempts
	Ownership
	Close() error
}
