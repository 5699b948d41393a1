package runtime

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	queueMax       = 1000 // invocations that wait for an instance of one version
	crashPauseMin  = 100 * time.Millisecond
	crashPauseMax  = 30 * time.Second
	crashesAllowed = 1 // failed starts in a row before the next has to wait
)

// pool holds the instances of one version of a function.
type pool struct {
	host    *Host
	name    string
	version schema.FunctionVersion
	current atomic.Pointer[schema.Function]
	log     *logFile

	mu        sync.Mutex
	all       map[*instance]bool // whose process runs
	idle      []*instance        // the last one was used last
	launching int                // that have no process yet
	starting  int                // that have not asked for work yet
	finishing int                // that are about to ask for more
	waiters   []*waiter
	crashes   int       // failed starts in a row
	notBefore time.Time // the next start is not before
	closed    bool
}

// waiter is an invocation that waits for an instance.
type waiter struct{ grant chan grant }

type grant struct {
	instance *instance
	failed   *schema.Invoked // the function could not start
}

func (p *pool) function() *schema.Function { return p.current.Load() }

// total counts the instances that run or will. p.mu is held.
func (p *pool) total() int { return len(p.all) + p.launching }

// acquire returns a free instance: one that waits, or the first that becomes free or comes up, whichever is sooner. The number of instances
// follows the number of those who wait. When the function cannot start, all who wait get its error.
func (p *pool) acquire(ctx context.Context, wait time.Duration) (*instance, *schema.Invoked, error) {
	p.mu.Lock()
	if i, err := p.takeIdle(); i != nil || err != nil {
		p.mu.Unlock()
		return i, nil, err
	}
	if full := p.total() >= p.function().MaxInstances; full && wait <= 0 || len(p.waiters) >= queueMax {
		p.mu.Unlock()
		return nil, nil, errBusy
	}
	w := &waiter{make(chan grant, 1)}
	p.waiters = append(p.waiters, w)
	p.scale()
	if p.starting > 0 {
		wait = max(wait, initTimeout+time.Second) // one that cannot start will have said so
	}
	p.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case g := <-w.grant:
		return g.instance, g.failed, nil
	case <-ctx.Done():
		return p.abandon(w, schema.WrapError(schema.Unavailable, ctx.Err(), "the caller did not wait for an instance"))
	case <-timer.C:
		return p.abandon(w, errBusy)
	}
}

var errBusy = schema.Errorf(schema.Busy, "all instances of the function are busy").Retry(time.Second)

// takeIdle returns an instance that waits, or an error when none may be waited for. p.mu is held.
func (p *pool) takeIdle() (*instance, error) {
	if p.closed {
		return nil, schema.Errorf(schema.Unavailable, "the function was just changed or the node is shutting down: try again")
	}
	if n := len(p.idle); n > 0 {
		i := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return i, nil
	}
	if pause := time.Until(p.notBefore); pause > 0 {
		return nil, schema.Errorf(schema.Busy, "the function failed to start %d times in a row: the next start waits", p.crashes).Retry(pause)
	}
	return nil, nil
}

// abandon takes a waiter off the queue, or what it was given meanwhile.
func (p *pool) abandon(w *waiter, err error) (*instance, *schema.Invoked, error) {
	p.mu.Lock()
	n := len(p.waiters)
	p.waiters = slices.DeleteFunc(p.waiters, func(x *waiter) bool { return x == w })
	removed := len(p.waiters) < n
	p.mu.Unlock()
	if removed {
		return nil, nil, err
	}
	g := <-w.grant
	return g.instance, g.failed, nil
}

// scale starts instances for those who wait and for whom none is about to be free. p.mu is held.
func (p *pool) scale() {
	for p.starting+p.finishing < len(p.waiters) && p.mayStart() {
		p.launch()
	}
}

func (p *pool) mayStart() bool {
	return !p.closed && p.total() < p.function().MaxInstances && !time.Now().Before(p.notBefore)
}

// launch starts an instance. p.mu is held.
func (p *pool) launch() {
	p.starting++
	p.launching++
	p.host.work.Go(func() {
		code, err := p.host.code(p.version.SHA256)
		if err == nil {
			err = p.newInstance(code)
		}
		if err == nil {
			p.host.metrics.coldStarts.Inc()
			return
		}
		p.host.opts.Logger.Warn("an instance could not be started", "function", p.name, "version", p.version.Number, "err", err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.launching--
		p.crashed(startError(err))
	})
}

func startError(err error) *schema.Invoked {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC) || errors.Is(err, exec.ErrNotFound) {
		return unhandled(errorEntrypoint, "bootstrap cannot be run: is it for this kind of machine, and does its interpreter exist?")
	}
	return unhandled(errorEntrypoint, "the function's instance could not be started")
}

// add counts an instance whose process runs.
func (p *pool) add(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launching--
	p.all[i] = true
	if p.closed {
		i.kill(killedShutdown)
	}
}

// crashed notes a start that failed and gives its error to those who waited for it. p.mu is held.
func (p *pool) crashed(failed *schema.Invoked) {
	p.starting--
	p.crashes++
	if n := p.crashes - crashesAllowed; n > 0 {
		p.notBefore = time.Now().Add(min(crashPauseMin<<min(n-1, 20), crashPauseMax))
	}
	for _, w := range p.waiters {
		w.grant <- grant{failed: failed}
	}
	p.waiters = nil
}

// finishes notes that an instance has answered: as a rule it asks for more within a moment.
func (p *pool) finishes(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.finishing = true
	p.finishing++
}

// finished is the end of finishes. p.mu is held.
func (p *pool) finished(i *instance) {
	if i.finishing {
		i.finishing = false
		p.finishing--
	}
}

// release takes an instance that asks for work.
func (p *pool) release(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished(i)
	if !i.ready {
		i.ready = true
		p.starting--
		p.crashes = 0
	}
	switch {
	case p.closed || len(p.all) > p.function().MaxInstances:
		i.kill(killedIdle)
	case len(p.waiters) > 0:
		w := p.waiters[0]
		p.waiters = p.waiters[1:]
		w.grant <- grant{instance: i}
	default:
		i.idleSince = time.Now()
		p.idle = append(p.idle, i)
	}
}

// gone takes an instance out whose processes are gone.
func (p *pool) gone(i *instance) {
	failed := (*schema.Invoked)(nil)
	if !i.ready {
		failed = i.exited("none", initTimeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished(i)
	delete(p.all, i)
	p.idle = slices.DeleteFunc(p.idle, func(x *instance) bool { return x == i })
	if !i.ready {
		p.crashed(failed)
	}
	p.scale()
}

// tend stops instances that were idle too long and starts those that are to be kept warm.
func (p *pool) tend(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.function()
	warm := 0
	if f.Live == p.version.Number {
		warm = f.MinInstances
	}
	for len(p.idle) > 0 && len(p.all) > warm && now.Sub(p.idle[0].idleSince) >= f.IdleStop {
		i := p.idle[0]
		p.idle = p.idle[1:]
		delete(p.all, i)
		i.kill(killedIdle)
	}
	// Who still waits does so in vain for instances that do not ask for more.
	for p.total() < warm && p.mayStart() || p.starting < len(p.waiters) && p.mayStart() {
		p.launch()
	}
}

// close stops the idle instances, and the busy ones when they are done, or at once.
func (p *pool) close(now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	stop := p.idle
	p.idle = nil
	if now {
		stop = nil
		for i := range p.all {
			stop = append(stop, i)
		}
	}
	for _, i := range stop {
		i.kill(killedShutdown)
	}
	for _, w := range p.waiters {
		w.grant <- grant{failed: unhandled(errorShutdown, "the function was changed or the node is shutting down")}
	}
	p.waiters = nil
}

// instances counts those that run.
func (p *pool) instances() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all)
}
