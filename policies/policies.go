// Package policies decides who may do what: schema.Authorizer on the Open Policy Agent's library. The built-in policy is
// embedded; an own directory or bundle replaces it and is read again when it changes. Every doubt is a refusal.
package policies

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// timeoutDefault bounds one evaluation: the built-in policy needs well below 1 ms, a client waits for it on every miss. Why not
	// less: a process that waits for a processor on a busy machine would refuse what the policy allows.
	timeoutDefault = 500 * time.Millisecond
	// cacheDefault bounds the remembered decisions. One holds a few pointers to nouns that exist anyway.
	cacheDefault = 16 << 10
	// pollDefault is how often the policies' own directory is looked at.
	pollDefault = 2 * time.Second
	// rulesMax bounds the compiled rules of users.
	rulesMax = 4096
	// linesPerSecond bounds the decision log.
	linesPerSecond = 100
)

// Options configure an Authorizer. The zero value decides by the built-in policy alone.
type Options struct {
	// Dir replaces the built-in policy. A directory of *.rego files replaces and adds files by name; a directory with a
	// .manifest, or a .tar.gz, is an OPA bundle and replaces all. "" = built in.
	Dir string
	// Timeout bounds one evaluation; default 500 ms.
	Timeout time.Duration
	// Poll is how often Dir is checked for changes; default 2 s, below 0 never.
	Poll time.Duration
	// CacheSize bounds the cached decisions; default 16384, below 0 no cache.
	CacheSize  int
	Logger     *slog.Logger
	LogAllowed bool // log what was allowed too, at debug
	Registerer prometheus.Registerer
}

// Authorizer is schema.Authorizer. It is safe for concurrent use.
type Authorizer struct {
	opts    Options
	current atomic.Pointer[revision] // nil: nothing is loaded, everything is refused
	cache   *lru.Cache[cacheKey, schema.Decision]
	rules   *lru.Cache[string, *rule]
	metrics *metrics
	lines   *rate.Limiter
	dropped atomic.Int64

	reloading sync.Mutex // one Reload at a time; guards revisions and print
	revisions uint64
	print     fingerprint

	stop    context.CancelFunc
	watcher sync.WaitGroup
}

var _ schema.Authorizer = (*Authorizer)(nil)

// New loads the policies and returns an Authorizer that decides by them. Close ends it. It fails when they cannot be
// loaded: a node does not start without.
func New(o Options) (*Authorizer, error) {
	a, err := newAuthorizer(o)
	if err != nil {
		return nil, err
	}
	if err := a.Reload(context.Background()); err != nil {
		return nil, fmt.Errorf("load policies: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	if a.opts.Dir != "" && a.opts.Poll > 0 {
		a.watcher.Go(func() { a.watch(ctx) })
	}
	return a, nil
}

func newAuthorizer(o Options) (*Authorizer, error) {
	if o.Timeout <= 0 {
		o.Timeout = timeoutDefault
	}
	if o.Poll == 0 {
		o.Poll = pollDefault
	}
	if o.CacheSize == 0 {
		o.CacheSize = cacheDefault
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	a := &Authorizer{opts: o, lines: rate.NewLimiter(linesPerSecond, linesPerSecond), stop: func() {}}
	var err error
	if o.CacheSize > 0 {
		if a.cache, err = lru.New[cacheKey, schema.Decision](o.CacheSize); err != nil {
			return nil, err
		}
	}
	if a.rules, err = lru.New[string, *rule](rulesMax); err != nil {
		return nil, err
	}
	a.metrics, err = newMetrics(o.Registerer)
	return a, err
}

// Close stops watching the directory. The Authorizer goes on deciding by what it has.
func (a *Authorizer) Close() error {
	a.stop()
	a.watcher.Wait()
	return nil
}

// Authorize decides. The nouns that r points to must be immutable snapshots: a cached decision is found by their
// addresses. The returned reasons are shared; do not change them.
func (a *Authorizer) Authorize(ctx context.Context, r *schema.AuthRequest) schema.Decision {
	v := a.current.Load()
	if v == nil {
		return a.done(r, refuse("the policies are not loaded"), 0)
	}
	cacheable := a.cache != nil && !v.volatile
	var key cacheKey
	if cacheable {
		key = keyOf(v.number, r)
		if d, ok := a.cache.Get(key); ok {
			a.metrics.hit(r.Action, d.Allow)
			if !d.Allow || a.opts.LogAllowed {
				a.log(r, d, 0)
			}
			return d
		}
	}
	began := time.Now()
	d, settled := a.evaluate(ctx, v, r)
	if cacheable && settled {
		a.cache.Add(key, d)
	}
	return a.done(r, d, time.Since(began))
}

func (a *Authorizer) done(r *schema.AuthRequest, d schema.Decision, took time.Duration) schema.Decision {
	a.metrics.miss(r.Action, d.Allow, took)
	a.log(r, d, took)
	return d
}

// evaluate asks the policies. settled is true when the decision depends on nothing but the cache's key: a failure
// and what looks at the request or the clock must be asked again.
func (a *Authorizer) evaluate(ctx context.Context, v *revision, r *schema.AuthRequest) (d schema.Decision, settled bool) {
	defer func() {
		if p := recover(); p != nil {
			a.opts.Logger.Error("a policy panicked", "panic", fmt.Sprint(p), "action", string(r.Action))
			d, settled = refuse("the policy failed"), false
		}
	}()
	if r.Principal == nil {
		return refuse("nobody is authenticated"), false
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.Timeout)
	defer cancel()
	settled = true
	doc := inputOf(r)
	if own := ownRule(r); own != nil {
		says, stable := a.askRule(ctx, own, r, doc)
		settled = stable
		setSays(doc, says)
	}
	d, err := v.decide(ctx, doc, r.At)
	if err != nil {
		a.opts.Logger.Warn("no decision from the policies", "action", string(r.Action), "error", err.Error())
		return d, false
	}
	return d, settled
}

func refuse(reason string) schema.Decision { return schema.Decision{Reasons: []string{reason}} }
