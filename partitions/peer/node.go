// Package peer lets the nodes of a cluster do for each other what they do for their own clients: gRPC over mutual TLS, one stream
// for all publishes to a peer, a circuit breaker for each.
package peer

import (
	"context"
	"time"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/schema"
)

// Node is a node as the router sees it: what it does for the partitions that it owns. A partition that it does not own is a
// NotOwner error. The node itself and a Client to another one implement it.
type Node interface {
	// Publish writes batches, in their order, to one partition; see owner.Publish.
	Publish(ctx context.Context, p schema.PartitionID, batches ...*owner.Batch) ([]schema.Published, error)
	// Pull hands out up to n messages of a subscription, of up to bytesMax of content and at least one when one is ready.
	Pull(ctx context.Context, s schema.SubscriptionID, n, bytesMax int) ([]schema.Delivery, error)
	// Wait returns when a message of the subscription may have become ready since the call, or when ctx ends. It leases nothing.
	Wait(ctx context.Context, s schema.SubscriptionID) error
	// Settle acknowledges, gives back (due after d) or extends (by d) messages, one verdict each.
	Settle(ctx context.Context, how schema.Settling, s schema.SubscriptionID, list []schema.Settlement, d time.Duration) ([]schema.Verdict, error)
	// Message returns a message and where it stands with the topic's subscriptions; ok is false when there is none.
	Message(ctx context.Context, id schema.MessageID) (m schema.Message, standings []schema.Standing, ok bool, err error)
	// Progress sums up a subscription's progress in the node's partitions.
	Progress(ctx context.Context, s schema.SubscriptionID) (schema.Progress, error)
	// Redrive puts up to limit dead letters of a subscription back.
	Redrive(ctx context.Context, s schema.SubscriptionID, limit int) (int, error)
	// Sync returns after the node has applied the metadata up to a revision.
	Sync(ctx context.Context, r schema.Revision) error
	// Claim tells the node that a partition which should be its own is free now.
	Claim(ctx context.Context, p schema.PartitionID) error
}
