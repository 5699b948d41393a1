package schema

import (
	"fmt"
	"strconv"
)

// Identifiers are distinct types, so that swapped arguments do not compile. Every identifier that leaves the
// system stays below 2^53 and is therefore exact as a JSON number in every client.
type (
	// UserID names a user: producer, consumer or operator, one identity.
	UserID int64
	// TokenID names one bearer token of a user.
	TokenID int64
	// TopicID names a topic.
	TopicID int64
	// SubscriptionID names one consumer's subscription to one topic.
	SubscriptionID int64
	// RuleID names the rule that governs who may publish and subscribe to a topic.
	RuleID int64
	// PatternID names the way in which a topic delivers.
	PatternID int64
	// PartitionID is one of the fixed number of cluster-wide slots.
	PartitionID int64
	// Epoch counts the ownerships of one partition; the first is 1.
	Epoch int64
	// Seq numbers the commits of one epoch densely from 1.
	Seq int64
	// Offset is the partition's own message counter.
	Offset int64
	// MessageID is partition<<40 | offset.
	MessageID int64
	// Revision counts metadata changes; the first change has revision 1.
	Revision int64
	// SessionID is the random identity of one process start.
	SessionID string
	// NodeID is the configured, stable name of a node.
	NodeID string
)

const (
	offsetBits = 40

	// OffsetMax is the last offset that a partition can give.
	OffsetMax = Offset(1)<<offsetBits - 1
	// PartitionsMax is the largest number of partitions of a cluster.
	PartitionsMax = 8192
	// IDMax is the largest identifier: 2^53-1.
	IDMax = 1<<53 - 1
)

// NewMessageID joins a partition and an offset. Both must be in range.
func NewMessageID(p PartitionID, o Offset) MessageID {
	return MessageID(int64(p)<<offsetBits | int64(o))
}

// Partition returns the slot that holds the message.
func (id MessageID) Partition() PartitionID { return PartitionID(id >> offsetBits) }

// Offset returns the message's place in its partition.
func (id MessageID) Offset() Offset { return Offset(id) & OffsetMax }

// ParseID reads a positive decimal identifier up to IDMax.
func ParseID(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > IDMax {
		return 0, Errorf(Invalid, "%q is not an identifier: want a whole number from 0 to %d", clip(s, 40), int64(IDMax))
	}
	return n, nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s…", s[:n])
}
