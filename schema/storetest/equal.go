package storetest

import (
	"bytes"
	"slices"

	"github.com/handfast-mq/handfast/schema"
)

// Stores may answer with nil or empty slices and with any time zone: both are the same answer.

func equalFrames(a, b schema.Frame) bool {
	return a.Topic == b.Topic && a.First == b.First && a.Count == b.Count && a.Time.Equal(b.Time) && bytes.Equal(a.Blob, b.Blob)
}

func equalCommits(a, b schema.Commit) bool {
	return a.Partition == b.Partition && a.Epoch == b.Epoch && a.Seq == b.Seq && a.Committed == b.Committed &&
		a.Time.Equal(b.Time) && bytes.Equal(a.Keys, b.Keys) && slices.EqualFunc(a.Frames, b.Frames, equalFrames)
}

func equalRecords(a, b schema.Record) bool {
	return a.Kind == b.Kind && a.Key == b.Key && bytes.Equal(a.Value, b.Value)
}

func equalChanges(a, b schema.Change) bool {
	return a.Revision == b.Revision && a.Attempt == b.Attempt && a.At.Equal(b.At) && slices.EqualFunc(a.Records, b.Records, equalRecords)
}

func equalCursors(a, b schema.CursorRow) bool {
	return a.Subscription == b.Subscription && a.Partition == b.Partition && a.Epoch == b.Epoch && bytes.Equal(a.State, b.State)
}

func equalAttempts(a, b schema.Attempt) bool {
	same := a.At.Equal(b.At) && bytes.Equal(a.Response, b.Response)
	return same && a.Message == b.Message && a.Subscription == b.Subscription && a.Attempt == b.Attempt &&
		a.Duration == b.Duration && a.Outcome == b.Outcome && a.Status == b.Status && a.Error == b.Error
}

func equalPartitions(a, b schema.Partition) bool {
	return a.ID == b.ID && a.Version == b.Version && a.Attempt == b.Attempt && a.Reserved == b.Reserved && slices.Equal(a.Epochs, b.Epochs)
}
