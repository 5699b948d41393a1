package policies

import (
	"context"
	"fmt"
	"time"
)

// Reload reads the policies again and decides by them from now on. When they cannot be read, do not compile, or fail
// their own tests, it says so and the old ones stay.
func (a *Authorizer) Reload(ctx context.Context) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	print, err := fingerprintOf(a.opts.Dir)
	if err == nil {
		err = a.load(ctx)
	}
	a.print = print // a bad state is not tried again until it changes
	if err != nil {
		a.metrics.reloadFailed.Inc()
		if a.current.Load() != nil { // else there are no old ones, and who starts is told
			a.opts.Logger.Error("the policies were refused; the old ones stay", "dir", a.opts.Dir, "error", err.Error())
		}
		return err
	}
	a.metrics.reloaded.Inc()
	return nil
}

func (a *Authorizer) load(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the policies panicked: %v", p)
		}
	}()
	src, err := load(a.opts.Dir)
	if err != nil {
		return err
	}
	v, err := newRevision(ctx, a.revisions+1, src)
	if err != nil {
		return err
	}
	a.revisions++
	a.current.Store(v)
	if a.cache != nil {
		a.cache.Purge() // what the old revision decided is never asked for again
	}
	return nil
}

// watch looks for changes until ctx ends.
func (a *Authorizer) watch(ctx context.Context) {
	ticker := time.NewTicker(a.opts.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if a.changed() {
				_ = a.Reload(ctx) // logged and counted there
			}
		}
	}
}

func (a *Authorizer) changed() bool {
	print, err := fingerprintOf(a.opts.Dir)
	a.reloading.Lock()
	defer a.reloading.Unlock()
	return err == nil && print != a.print
}
