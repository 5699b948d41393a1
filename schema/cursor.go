package schema

import "context"

// CursorRow is what one owner knew about one subscription's progress in one partition. Only the owner of the epoch
// writes it; a successor unites the rows of all epochs, since acknowledgements only grow.
type CursorRow struct {
	Subscription SubscriptionID
	Partition    PartitionID
	Epoch        Epoch
	State        []byte // the log of cursors does not look into it
}

// Cursors keeps the progress of subscriptions.
type Cursors interface {
	// SaveCursors replaces the rows with the same (subscription, partition, epoch). With sync it returns when they
	// would survive a power cut; without, when they would survive the end of the process.
	SaveCursors(ctx context.Context, rows []CursorRow, sync bool) error
	// LoadCursors returns the rows of all subscriptions and epochs of a partition.
	LoadCursors(ctx context.Context, p PartitionID) ([]CursorRow, error)
	// DropCursors forgets rows: of a subscription that ended, or of epochs before the given one. SubscriptionID 0 means all
	// subscriptions, Epoch 0 all epochs.
	DropCursors(ctx context.Context, p PartitionID, s SubscriptionID, before Epoch) error
}

// Attempts keeps the delivery attempts for people to look at. Losing some is no harm to delivery.
type Attempts interface {
	// SaveAttempts stores rows, best effort.
	SaveAttempts(ctx context.Context, rows []Attempt) error
	// ListAttempts returns up to limit rows, newest first, of a message or (message 0) of a subscription.
	ListAttempts(ctx context.Context, m MessageID, s SubscriptionID, limit int) ([]Attempt, error)
}
