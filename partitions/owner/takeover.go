package owner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// offsetBlock is how many offsets one compare-and-set of the partition row reserves. Offsets of a new epoch start past
	// the reserved ones, so they are never given twice, even when the messages that had them have expired.
	offsetBlock = 1 << 20
	// epochsMax bounds the epochs in a partition row. Older ones matter only for messages that were never acknowledged.
	epochsMax = 128
)

// Takeover makes a session the owner of a partition, whose row was just read: it fences the session that had it, settles what that one left, seals
// its epoch and opens a new one. It is straight-line code over two store contracts, without clocks or goroutines, so that
// the simulation runs this very code. It returns the row that it wrote, whose last epoch is the new one.
//
// When it fails, nothing is lost and anybody may try again. A Conflict means that somebody else was faster.
func Takeover(ctx context.Context, own schema.Ownership, log schema.Log, row schema.Partition, me schema.SessionID, attempt string) (schema.Partition, error) {
	next := schema.Partition{ID: row.ID, Version: row.Version + 1, Attempt: attempt, Epochs: slices.Clone(row.Epochs), Reserved: row.Reserved}
	if open, ok := row.Open(); ok {
		// The order is the proof: the fence is confirmed by a quorum before the log is read. What was acknowledged was on a
		// quorum before its owner's last look at the session, so it is seen here.
		if open.Session != me {
			if err := own.Fence(ctx, open.Session); err != nil {
				return row, fmt.Errorf("fence session %s: %w", open.Session, err)
			}
		}
		sealed, err := settle(ctx, log, row.ID, open)
		if err != nil {
			return row, err
		}
		next.Epochs[len(next.Epochs)-1] = sealed
	}
	openEpoch(&next, me)
	return swap(ctx, own, next)
}

// settle finds where an epoch ends, the last commit before the first hole, and makes what may not be on a quorum durable there. What the row
// notes as committed is so, whether or not the log still has it.
func settle(ctx context.Context, log schema.Log, p schema.PartitionID, e schema.EpochRow) (schema.EpochRow, error) {
	e.Sealed, e.End = true, max(e.End, e.Start)
	last, ok, err := log.LastCommit(ctx, p, e.Epoch)
	if err != nil {
		return e, fmt.Errorf("read the last commit of epoch %d: %w", e.Epoch, err)
	}
	if !ok || last.Seq <= e.LastSeq {
		return e, nil
	}
	for from := max(last.Committed, e.LastSeq+1); ; {
		commits, err := log.Commits(ctx, p, e.Epoch, from, 256)
		if err != nil {
			return e, fmt.Errorf("read the tail of epoch %d: %w", e.Epoch, err)
		}
		if len(commits) == 0 {
			break
		}
		end := commits[len(commits)-1]
		e.End, e.LastSeq = end.End(), end.Seq
		from = end.Seq + 1
	}
	if e.LastSeq > last.Committed {
		if err := log.Rewrite(ctx, p, e.Epoch, last.Committed+1, e.LastSeq); err != nil {
			return e, fmt.Errorf("write the tail of epoch %d again: %w", e.Epoch, err)
		}
	}
	return e, nil
}

// swap writes a partition row and settles an unknown outcome by reading it.
func swap(ctx context.Context, own schema.Ownership, next schema.Partition) (schema.Partition, error) {
	swapped, current, err := own.SwapPartition(ctx, next)
	if err != nil {
		var readErr error
		if current, readErr = own.Partition(ctx, next.ID); readErr != nil {
			return current, fmt.Errorf("swap partition row: %w", errors.Join(err, readErr))
		}
	}
	if swapped || current.Attempt == next.Attempt {
		return next, nil
	}
	if err != nil && current.Version < next.Version {
		return current, fmt.Errorf("swap partition row: %w", err)
	}
	return current, schema.Errorf(schema.Conflict, "partition %d was taken by another node", next.ID)
}

// openEpoch appends the epoch of a new owner to a row whose last epoch is sealed.
func openEpoch(row *schema.Partition, me schema.SessionID) {
	e := schema.EpochRow{Epoch: 1, Session: me, Start: max(row.Reserved, 1)}
	if n := len(row.Epochs); n > 0 {
		e.Epoch = row.Epochs[n-1].Epoch + 1
		e.Start = max(e.Start, row.Epochs[n-1].End)
	}
	row.Epochs = append(row.Epochs, e)
	if n := len(row.Epochs); n > epochsMax {
		row.Epochs = slices.Clone(row.Epochs[n-epochsMax:])
	}
	row.Reserved = e.Start + offsetBlock
}
