// Package catalog is a node's replica of the metadata: users, tokens, topics, grants, subscriptions, rules, patterns
// and functions, fed by the one log of changes that the store keeps.
//
// A change is made by reading the replica, appending the outcome at the head of the log, and trying again from the new head when somebody
// else was faster. So every change is decided on the latest state, however many nouns it touches. What the lookups
// return are immutable snapshots: a changed noun is a new pointer.
package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

const (
	checkpointEvery = 5000 // changes; a node that starts reads at most these one by one
	changesPage     = 500
	updateTries     = 50
)

// Event is one noun that changed: Old is nil when it is new, New when it is gone.
type Event struct {
	Kind     schema.RecordKind
	Old, New any // *schema.User, *schema.Topic, …
}

// Watcher is told of every change after it is in the replica and before the call that made it returns.
type Watcher func(ctx context.Context, e Event)

// Catalog is safe for concurrent use.
type Catalog struct {
	log schema.Metadata

	// Barrier, when set, returns after every live node has applied a revision. Set it before the first update.
	Barrier func(ctx context.Context, r schema.Revision) error

	updating sync.Mutex // one append in flight
	applying sync.Mutex // changes come to the watchers one after the other

	mu       sync.RWMutex
	state    state
	watchers []Watcher
}

// Open loads the replica from the store.
func Open(ctx context.Context, log schema.Metadata) (*Catalog, error) {
	c := &Catalog{log: log, state: newState()}
	at, records, err := log.Checkpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metadata checkpoint: %w", err)
	}
	for _, r := range records {
		if _, err := c.state.put(r); err != nil {
			return nil, err
		}
	}
	c.state.revision = at
	return c, c.CatchUp(ctx)
}

// Watch adds a watcher. It sees the changes from now on.
func (c *Catalog) Watch(w Watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, w)
}

// Revision returns the last change that the replica holds.
func (c *Catalog) Revision() schema.Revision {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.revision
}

// Sync brings the replica up to the head of the log as it is at some moment after the call: what is read after it is linearizable.
func (c *Catalog) Sync(ctx context.Context) error {
	head, err := c.log.Head(ctx)
	if err != nil {
		return schema.WrapError(schema.Unavailable, err, "the metadata cannot be read now")
	}
	if c.Revision() >= head {
		return nil
	}
	return c.CatchUp(ctx)
}

// CatchUp applies the changes that others made.
func (c *Catalog) CatchUp(ctx context.Context) error {
	for {
		changes, err := c.log.Changes(ctx, c.Revision(), changesPage)
		if err != nil {
			return schema.WrapError(schema.Unavailable, err, "the metadata cannot be read now")
		}
		for i := range changes {
			if err := c.apply(ctx, &changes[i]); err != nil {
				return err
			}
		}
		if len(changes) < changesPage {
			return nil
		}
	}
}

// apply brings one change into the replica and tells the watchers. A change that is there already is passed over.
func (c *Catalog) apply(ctx context.Context, change *schema.Change) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	if change.Revision != c.Revision()+1 {
		return nil
	}
	c.mu.Lock()
	events := make([]Event, 0, len(change.Records))
	for _, r := range change.Records {
		e, err := c.state.put(r)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		events = append(events, e)
	}
	c.state.revision = change.Revision
	watchers := c.watchers
	c.mu.Unlock()
	for _, e := range events {
		for _, w := range watchers {
			w(ctx, e)
		}
	}
	return nil
}

// Tx is one change in the making.
type Tx struct {
	s       *state
	records []schema.Record
	lastID  int64
	Now     time.Time
}

// newID gives an identifier that nothing else has or had.
func (tx *Tx) newID() int64 {
	tx.lastID++
	return tx.lastID
}

// put replaces a noun.
func (tx *Tx) put(kind schema.RecordKind, key string, noun any) {
	value, err := json.Marshal(noun)
	if err != nil {
		panic(fmt.Sprintf("catalog: %s %s does not encode: %v", kind, key, err)) // nouns are plain structs
	}
	tx.records = append(tx.records, schema.Record{Kind: kind, Key: key, Value: value})
}

func (tx *Tx) remove(kind schema.RecordKind, key string) {
	tx.records = append(tx.records, schema.Record{Kind: kind, Key: key})
}

// update runs fn on the latest state, appends what it put, and returns when that is in force on every node. fn may run several times.
func (c *Catalog) update(ctx context.Context, fn func(*Tx) error) error {
	made, err := c.change(ctx, fn)
	if err != nil || made == 0 || c.Barrier == nil {
		return err
	}
	if err := c.Barrier(ctx, made); err != nil {
		return schema.WrapError(schema.Unknown, err, "the change was made and is not yet in force on every node")
	}
	return nil
}

// change is update up to this node's own replica. It returns the revision, 0 when there was nothing to change.
func (c *Catalog) change(ctx context.Context, fn func(*Tx) error) (schema.Revision, error) {
	c.updating.Lock()
	defer c.updating.Unlock()
	for range updateTries {
		change, err := c.propose(fn)
		if err != nil || len(change.Records) == 0 {
			return 0, err
		}
		appended, err := c.append(ctx, change)
		if err != nil {
			return 0, err
		}
		if appended {
			c.checkpoint(ctx, change)
			return change.Revision, c.apply(ctx, change)
		}
		if err := c.CatchUp(ctx); err != nil {
			return 0, err
		}
	}
	return 0, schema.Errorf(schema.Busy, "too many changes at the same time").Retry(time.Second)
}

func (c *Catalog) propose(fn func(*Tx) error) (*schema.Change, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	tx := &Tx{s: &c.state, lastID: c.state.lastID, Now: time.Now().UTC().Truncate(time.Millisecond)}
	if err := fn(tx); err != nil {
		return nil, err
	}
	if tx.lastID != c.state.lastID {
		tx.put(schema.KindCluster, lastIDKey, tx.lastID)
	}
	return &schema.Change{Revision: c.state.revision + 1, Attempt: uuid.NewString(), At: tx.Now, Records: tx.records}, nil
}

// append settles an unknown outcome by reading what is at the revision.
func (c *Catalog) append(ctx context.Context, change *schema.Change) (bool, error) {
	appended, err := c.log.AppendChange(ctx, *change)
	if err == nil {
		return appended, nil
	}
	there, readErr := c.log.Changes(ctx, change.Revision-1, 1)
	switch {
	case readErr != nil:
		return false, schema.WrapError(schema.Unknown, errors.Join(err, readErr), "the change may or may not have been made")
	case len(there) == 0:
		return false, schema.WrapError(schema.Unavailable, err, "the change could not be stored").Retry(time.Second)
	}
	return there[0].Attempt == change.Attempt, nil
}

// checkpoint stores everything from time to time, as it was before a change. When that fails the log still has it, and the next one will do.
func (c *Catalog) checkpoint(ctx context.Context, before *schema.Change) {
	if before.Revision%checkpointEvery != 0 {
		return
	}
	c.mu.RLock()
	at, records := c.state.revision, c.state.records()
	c.mu.RUnlock()
	_ = c.log.SaveCheckpoint(ctx, at, records)
}

func key[T ~int64](id T) string { return strconv.FormatInt(int64(id), 10) }
