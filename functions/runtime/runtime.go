// Package runtime hosts handlers: executables that speak the AWS Lambda Runtime API, in a pool of processes for each version of a function.
//
// A pool grows with the invocations that wait and shrinks when instances are idle. An instance is a process group with its own loopback
// listener, working directory and environment. It has one invocation at a time. Whatever a handler does, its processes end with it, and
// the invocation ends with a documented error.
package runtime

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/functions/artifact"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
)

const (
	tendEvery  = 500 * time.Millisecond
	watchEvery = 200 * time.Millisecond // the memory of instances
	startTries = 3                      // instances that may vanish before they took an invocation
)

// Options say where a host works.
type Options struct {
	Dir        string // for unpacked code, logs and working directories
	Artifacts  schema.Artifacts
	Catalog    *catalog.Catalog
	Path       string // PATH of the handlers; "" = /usr/local/bin:/usr/bin:/bin
	Cgroup     string // the directory of cgroup v2 beneath which instances have groups of their own; "" = the one of this process
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

type poolKey struct {
	function schema.FunctionID
	version  int
}

// Host runs functions on this node.
type Host struct {
	opts    Options
	starter *starter
	cgroups *cgroups // nil = the machine gives none
	lock    *os.File // of the directory
	metrics *metrics
	work    sync.WaitGroup
	stop    chan struct{}
	changed chan struct{} // the functions changed

	// Code that no function uses is dropped under the write lock.
	deploying sync.RWMutex
	unpacking sync.Mutex

	mu       sync.Mutex
	pools    map[poolKey]*pool
	logs     map[string]*logFile
	inFlight map[schema.FunctionID]int
	left     map[string]bool // code that some function has no longer
	closed   bool
}

// New starts a host. What an earlier one left, processes included, is ended and removed first; that another one runs in the same directory is
// an error. Close ends it.
func New(o Options) (*Host, error) {
	if o.Path == "" {
		o.Path = "/usr/local/bin:/usr/bin:/bin"
	}
	h := &Host{opts: o, metrics: newMetrics(o.Registerer), stop: make(chan struct{}), changed: make(chan struct{}, 1),
		pools: map[poolKey]*pool{}, logs: map[string]*logFile{}, inFlight: map[schema.FunctionID]int{}, left: map[string]bool{}}
	if err := h.prepare(); err != nil {
		return nil, err
	}
	h.starter = newStarter()
	o.Catalog.Watch(h.noticed)
	h.work.Go(h.tend)
	if h.cgroups == nil || !h.cgroups.memory {
		h.work.Go(h.watchMemory)
	}
	return h, nil
}

// prepare makes the host's directory its own, and as new but for the code.
func (h *Host) prepare() (err error) {
	if h.opts.Dir, err = filepath.Abs(h.opts.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(h.codeDir(), 0o700); err != nil {
		return err
	}
	if h.lock, err = lockDirectory(h.opts.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			h.lock.Close()
		}
	}()
	if h.cgroups, err = openCgroups(h.opts.Cgroup, h.opts.Dir); err != nil {
		h.opts.Logger.Info("functions run without control groups", "because", err)
	} else {
		h.opts.Logger.Info("functions run in control groups", "beneath", filepath.Dir(h.cgroups.prefix), "memory", h.cgroups.memory, "processes", h.cgroups.pids)
	}
	if err := errors.Join(endLeft(h.runDir()), os.RemoveAll(h.runDir())); err != nil {
		return err
	}
	return os.MkdirAll(h.runDir(), 0o700)
}

func (h *Host) runDir() string  { return filepath.Join(h.opts.Dir, "run") }
func (h *Host) codeDir() string { return filepath.Join(h.opts.Dir, "code") }

// Close kills every instance and waits until all is gone.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.stop)
	for _, p := range h.pools {
		p.close(true)
	}
	h.mu.Unlock()
	h.work.Wait()
	h.starter.close()
	for _, l := range h.logs {
		l.close(false)
	}
	return h.lock.Close()
}

// Run invokes a function and returns how that ended: an error means that the function did not run. Busy: it is at its limit.
func (h *Host) Run(ctx context.Context, f *schema.Function, call *schema.Invocation) (*schema.Invoked, error) {
	v := f.Version(call.Qualifier)
	if v == nil {
		return nil, schema.Errorf(schema.NotFound, "the function has no version %q", call.Qualifier)
	}
	if len(call.Payload) > schema.InvokeBytesMax {
		return nil, schema.Errorf(schema.TooLarge, "the payload has more than %d bytes", schema.InvokeBytesMax)
	}
	if call.RequestID == "" {
		call.RequestID = uuid.NewString()
	}
	if err := h.enter(f); err != nil {
		return nil, err
	}
	defer h.leave(f)
	p, err := h.pool(f, v)
	if err != nil {
		return nil, err
	}
	for range startTries {
		i, failed, err := p.acquire(ctx, call.Wait)
		if err != nil {
			return nil, err
		}
		if failed != nil {
			answer := *failed
			answer.Version = v.Number
			h.metrics.count(&answer)
			return &answer, nil
		}
		if answer, took := i.run(call); took {
			h.metrics.count(answer)
			return answer, nil
		}
	}
	return nil, schema.Errorf(schema.Unavailable, "the function's instances vanish before they take an invocation").Retry(time.Second)
}

// enter counts an invocation against the function's reserved concurrency.
func (h *Host) enter(f *schema.Function) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return schema.Errorf(schema.Unavailable, "the node is shutting down")
	case f.Reserved != nil && h.inFlight[f.ID] >= *f.Reserved:
		return schema.Errorf(schema.Busy, "the function's reserved concurrency of %d is used up", *f.Reserved).Retry(time.Second)
	}
	h.inFlight[f.ID]++
	return nil
}

func (h *Host) leave(f *schema.Function) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inFlight[f.ID]--; h.inFlight[f.ID] == 0 {
		delete(h.inFlight, f.ID)
	}
}

func (h *Host) pool(f *schema.Function, v *schema.FunctionVersion) (*pool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, schema.Errorf(schema.Unavailable, "the node is shutting down")
	}
	key := poolKey{f.ID, v.Number}
	p := h.pools[key]
	if p == nil {
		l, err := h.log(f.Name)
		if err != nil {
			return nil, err
		}
		p = &pool{host: h, name: f.Name, version: *v, log: l, all: map[*instance]bool{}}
		p.current.Store(f)
		h.pools[key] = p
	}
	return p, nil
}

// log returns a function's log. h.mu is held.
func (h *Host) log(name string) (*logFile, error) {
	l := h.logs[name]
	if l == nil {
		var err error
		if l, err = openLog(filepath.Join(h.opts.Dir, "logs", name+".log")); err != nil {
			return nil, err
		}
		h.logs[name] = l
	}
	return l, nil
}

// logPage bounds one answer of Logs.
const logPage = 256 << 10

// Logs returns what a function's instances on this node wrote from a place on, and the next place. It waits for more when there is nothing.
func (h *Host) Logs(ctx context.Context, f *schema.Function, after int64, wait time.Duration) ([]byte, int64, error) {
	h.mu.Lock()
	l, err := h.log(f.Name)
	h.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		text, next, changed, err := l.read(after, logPage)
		if err != nil || len(text) > 0 || wait <= 0 {
			return text, next, err
		}
		after = next
		select {
		case <-changed:
		case <-over.C:
			return nil, next, nil
		case <-h.stop:
			return nil, next, nil
		case <-ctx.Done():
			return nil, next, nil
		}
	}
}

// Deploy checks an archive, keeps it, and calls commit with its name while it is safe from being dropped as unused.
func (h *Host) Deploy(ctx context.Context, archive []byte, commit func(sha256 string) error) error {
	if err := artifact.Check(archive); err != nil {
		return err
	}
	h.deploying.RLock()
	defer h.deploying.RUnlock()
	sum, err := artifact.Save(ctx, h.opts.Artifacts, archive)
	if err != nil {
		return err
	}
	return commit(sum)
}

// code returns the directory of an artifact, and unpacks it when it is not there yet.
func (h *Host) code(sum string) (string, error) {
	dir := filepath.Join(h.codeDir(), sum)
	h.unpacking.Lock()
	defer h.unpacking.Unlock()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	archive, err := artifact.Load(ctx, h.opts.Artifacts, sum)
	if err != nil {
		return "", err
	}
	return dir, artifact.Unpack(archive, dir)
}

// noticed is told of every change of the metadata.
func (h *Host) noticed(_ context.Context, e catalog.Event) {
	if e.Kind != schema.KindFunction {
		return
	}
	if old, _ := e.Old.(*schema.Function); old != nil {
		h.mu.Lock()
		for i := range old.Versions {
			h.left[old.Versions[i].SHA256] = true
		}
		h.mu.Unlock()
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// tend keeps the pools as the functions want them.
func (h *Host) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	h.adjust()
	for {
		select {
		case <-h.stop:
			return
		case <-h.changed:
			h.adjust()
		case <-tick.C:
		}
		now := time.Now()
		for _, p := range h.poolsNow() {
			p.tend(now)
		}
	}
}

// adjust brings changed functions to their pools, makes pools for those that are kept warm, and closes those of functions and versions
// that are gone.
func (h *Host) adjust() {
	wanted := map[poolKey]*schema.Function{}
	for _, f := range h.opts.Catalog.Functions("", int(^uint(0)>>1), func(*schema.Function) bool { return true }) {
		for i := range f.Versions {
			wanted[poolKey{f.ID, f.Versions[i].Number}] = f
		}
		if f.MinInstances > 0 {
			h.pool(f, f.Version("")) // a host that closes needs none
		}
	}
	h.mu.Lock()
	unused := h.left
	h.left = map[string]bool{}
	names := map[string]bool{}
	for key, p := range h.pools {
		if f := wanted[key]; f != nil {
			p.current.Store(f)
			names[p.name] = true
			continue
		}
		p.close(false)
		delete(h.pools, key)
	}
	for name, l := range h.logs {
		if !names[name] && h.opts.Catalog.Function(name) == nil {
			l.close(true)
			delete(h.logs, name)
		}
	}
	h.mu.Unlock()
	h.dropUnused(unused)
}

// dropUnused forgets code that no function has any more. Instances that still run have their files open, or fail as any that is killed.
func (h *Host) dropUnused(sums map[string]bool) {
	for sum := range sums {
		h.deploying.Lock()
		if !h.opts.Catalog.ArtifactUsed(sum) {
			os.RemoveAll(filepath.Join(h.codeDir(), sum))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := h.opts.Artifacts.DropArtifact(ctx, sum); err != nil {
				h.opts.Logger.Warn("code that nobody uses could not be forgotten", "sha256", sum, "err", err)
			}
			cancel()
		}
		h.deploying.Unlock()
	}
}

func (h *Host) poolsNow() []*pool {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*pool, 0, len(h.pools))
	for _, p := range h.pools {
		list = append(list, p)
	}
	return list
}

// watchMemory kills the instances that have more memory than they may, all processes of the group together.
func (h *Host) watchMemory() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
		}
		limits := map[int]*instance{}
		for _, p := range h.poolsNow() {
			p.mu.Lock()
			for i := range p.all {
				limits[i.cmd.Process.Pid] = i
			}
			p.mu.Unlock()
		}
		if len(limits) == 0 {
			continue
		}
		for group, bytes := range residentBytes() {
			if i := limits[group]; i != nil && bytes > int64(i.pool.version.Memory)<<20 {
				i.kill(killedMemory)
			}
		}
	}
}

// Instances counts the processes of a function on this node.
func (h *Host) Instances(name string) int {
	n := 0
	for _, p := range h.poolsNow() {
		if p.name == name {
			n += p.instances()
		}
	}
	return n
}
