package runtime

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func TestStartsThatFail(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("exits", "exit at start", nil)
	x.wantError(f, order{}, errorExit, "exit status 3")
	x.wantError(f, order{}, errorExit, "exit status 3")
	if _, err := x.run(f, order{}); schema.KindOf(err) != schema.Busy || !strings.Contains(err.Error(), "failed to start 2 times") {
		t.Errorf("a crash loop is not held: %v", err)
	}
	x.wantError(x.deploy("reports", "init error", nil), order{}, "My.Config", "no database")
	x.wantError(x.deployScript("no-interpreter", "#!/no/such/interpreter\n", func(*schema.Function, *schema.FunctionVersion) {}), order{}, errorEntrypoint, "bootstrap cannot be run")
	x.wantError(x.deployScript("no-program", "\x00\x01", func(*schema.Function, *schema.FunctionVersion) {}), order{}, errorEntrypoint, "bootstrap cannot be run")
	x.wantEcho(x.deploy("works", "go", nil))
}

func TestNeverAsks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as an instance may take to start")
	}
	x := newFixture(t)
	x.wantError(x.deploy("f", "never asks", nil), order{}, errorTimeout, "Init timed out after 10.00 seconds")
}

func TestConcurrency(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", func(f *schema.Function, _ *schema.FunctionVersion) { f.MaxInstances = 3 })
	var wg sync.WaitGroup
	var mu sync.Mutex
	pids := map[int]bool{}
	for range 40 {
		wg.Go(func() {
			x.must(f, order{Do: "sleep", Ms: 5})
			pid := x.wantEcho(f)
			mu.Lock()
			pids[pid] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(pids) < 2 || len(pids) > 3 || x.host.Instances("f") > 3 {
		t.Errorf("%d instances worked, %d run", len(pids), x.host.Instances("f"))
	}
}

// TestOneAtATime sends more invocations than there are instances: the one that there is works on them one after the other.
func TestOneAtATime(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", func(f *schema.Function, _ *schema.FunctionVersion) { f.MaxInstances = 1 })
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if a := x.must(f, order{Do: "alone", Ms: 20}); string(a.Payload) != "0" {
				t.Errorf("beside others: %s", a.Payload)
			}
		})
	}
	wg.Wait()
	busy := make(chan struct{})
	go func() { x.run(f, order{Do: "sleep", Ms: 60_000}); close(busy) }()
	x.eventually("the instance works", func() bool { return x.waiting(f) == 0 && x.inFlight(f) == 1 })
	if _, err := x.host.Run(t.Context(), f, &schema.Invocation{Payload: []byte(`{}`)}); schema.KindOf(err) != schema.Busy {
		t.Errorf("one that does not wait: %v", err)
	}
	x.host.Close()
	<-busy
}

// TestQueueIsBounded lets as many wait as may, and one more.
func TestQueueIsBounded(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", func(f *schema.Function, v *schema.FunctionVersion) { f.MaxInstances, v.Timeout = 1, time.Minute })
	var wg sync.WaitGroup
	sleep := func() { x.run(f, order{Do: "sleep", Ms: 60_000}) }
	wg.Go(sleep)
	x.eventually("the instance works", func() bool { return x.waiting(f) == 0 && x.inFlight(f) == 1 })
	for range queueMax {
		wg.Go(sleep)
	}
	x.eventually("all others wait", func() bool { return x.waiting(f) == queueMax })
	if _, err := x.run(f, order{}); schema.KindOf(err) != schema.Busy {
		t.Errorf("one too many: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.host.Run(ctx, f, &schema.Invocation{Payload: []byte(`{}`), Wait: time.Minute}); schema.KindOf(err) != schema.Busy {
		t.Errorf("one too many, of a caller that is gone: %v", err)
	}
	x.host.Close()
	wg.Wait()
}

func (x *fixture) inFlight(f *schema.Function) int {
	x.host.mu.Lock()
	defer x.host.mu.Unlock()
	return x.host.inFlight[f.ID]
}

// waiting counts the invocations that have no instance yet.
func (x *fixture) waiting(f *schema.Function) int {
	x.host.mu.Lock()
	p := x.host.pools[poolKey{f.ID, f.Live}]
	x.host.mu.Unlock()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters)
}

func TestReserved(t *testing.T) {
	x := newFixture(t)
	one, none := 1, 0
	f := x.deploy("f", "go", func(f *schema.Function, _ *schema.FunctionVersion) { f.Reserved = &one })
	done := make(chan struct{})
	go func() { x.run(f, order{Do: "sleep", Ms: 3000}); close(done) }()
	x.eventually("the first runs", func() bool { return x.inFlight(f) == 1 })
	if _, err := x.run(f, order{}); schema.KindOf(err) != schema.Busy || !strings.Contains(err.Error(), "reserved concurrency of 1") {
		t.Errorf("over the reserved concurrency: %v", err)
	}
	<-done
	x.wantEcho(f)
	if _, err := x.run(x.deploy("never", "go", func(f *schema.Function, _ *schema.FunctionVersion) { f.Reserved = &none }), order{}); schema.KindOf(err) != schema.Busy {
		t.Errorf("with none reserved: %v", err)
	}
}

func TestScaling(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", func(f *schema.Function, _ *schema.FunctionVersion) { f.MinInstances, f.IdleStop = 2, time.Second })
	x.eventually("two are warm", func() bool { return x.host.Instances("f") == 2 })
	x.wantEcho(f)
	if _, err := x.catalog.PutFunction(t.Context(), "f", 1, func(f *schema.Function, _ *schema.FunctionVersion) error { f.MinInstances = 0; return nil }); err != nil {
		t.Fatal(err)
	}
	x.eventually("none is left", func() bool { return x.host.Instances("f") == 0 })
	x.wantEcho(x.catalog.Function("f"))
}
