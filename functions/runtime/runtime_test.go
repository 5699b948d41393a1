package runtime

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/functions/artifact"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
	"github.com/handfast-mq/handfast/schema/pebble"
)

// fixture is a host on a store of its own.
type fixture struct {
	*testing.T
	host    *Host
	catalog *catalog.Catalog
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureIn(t, t.TempDir(), "")
}

// noCgroup is a directory beneath which no control group can be made.
const noCgroup = "/dev/null"

// bothWays runs a test with control groups, where the machine gives them, and without.
func bothWays(t *testing.T, test func(x *fixture)) {
	t.Run("process groups", func(t *testing.T) { test(newFixtureIn(t, t.TempDir(), noCgroup)) })
	t.Run("control groups", func(t *testing.T) {
		needCgroups(t)
		test(newFixture(t))
	})
}

func needCgroups(t *testing.T) *cgroups {
	t.Helper()
	c, err := openCgroups("", t.TempDir())
	if err != nil {
		t.Skipf("this machine gives no control groups: %v", err)
	}
	return c
}

// newFixtureIn is for a directory with or without what an earlier host left, and a directory of control groups.
func newFixtureIn(t *testing.T, dir, cgroup string) *fixture {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	store, err := pebble.Open(filepath.Join(dir, "store"), pebble.Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.Open(t.Context(), store)
	if err == nil {
		_, err = c.Init(t.Context(), schema.Cluster{Partitions: 4}, catalog.NewToken())
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(Options{Dir: filepath.Join(dir, "functions"), Artifacts: store, Catalog: c, Cgroup: cgroup, Logger: logger, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		if left, _ := os.ReadDir(h.runDir()); len(left) > 0 {
			t.Errorf("%d working directories are left behind", len(left))
		}
		store.Close()
	})
	return &fixture{t, h, c}
}

func zipOf(t testing.TB, bootstrap string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	h := &zip.FileHeader{Name: artifact.Bootstrap}
	h.SetMode(0o755)
	f, err := w.CreateHeader(h)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte(bootstrap))
	w.Close()
	return out.Bytes()
}

// deploy makes a function of this test binary in a mode.
func (x *fixture) deploy(name, mode string, change func(f *schema.Function, v *schema.FunctionVersion)) *schema.Function {
	x.Helper()
	self, err := os.Executable()
	if err != nil {
		x.Fatal(err)
	}
	return x.deployScript(name, "#!/bin/sh\nexec "+self+"\n", func(f *schema.Function, v *schema.FunctionVersion) {
		v.Env = map[string]string{modeVariable: mode}
		v.Timeout, v.Memory = 20*time.Second, 1024
		if change != nil {
			change(f, v)
		}
	})
}

func (x *fixture) deployScript(name, script string, change func(f *schema.Function, v *schema.FunctionVersion)) *schema.Function {
	x.Helper()
	var made *schema.Function
	archive := zipOf(x, script)
	err := x.host.Deploy(x.Context(), archive, func(sum string) (err error) {
		made, err = x.catalog.PutFunction(x.Context(), name, 1, func(f *schema.Function, v *schema.FunctionVersion) error {
			v.SHA256, v.Size = sum, int64(len(archive))
			change(f, v)
			return nil
		})
		return err
	})
	if err != nil {
		x.Fatal(err)
	}
	return made
}

func (x *fixture) run(f *schema.Function, o order) (*schema.Invoked, error) {
	payload, _ := json.Marshal(o)
	return x.host.Run(context.Background(), f, &schema.Invocation{Payload: payload, Wait: 30 * time.Second})
}

func (x *fixture) must(f *schema.Function, o order) *schema.Invoked {
	x.Helper()
	a, err := x.run(f, o)
	if err != nil {
		x.Fatalf("%+v: %v", o, err)
	}
	return a
}

// wantError runs what must end with an error of a type whose words match.
func (x *fixture) wantError(f *schema.Function, o order, kind, words string) *schema.Invoked {
	x.Helper()
	a := x.must(f, o)
	var d errorDocument
	if err := json.Unmarshal(a.Payload, &d); err != nil || a.FunctionError != functionUnhandled || d.Type != kind || !regexp.MustCompile(words).MatchString(d.Message) {
		x.Errorf("%+v: %q %s, want %s %q", o, a.FunctionError, a.Payload, kind, words)
	}
	return a
}

// wantEcho shows that the function works, after whatever happened before.
func (x *fixture) wantEcho(f *schema.Function) (pid int) {
	x.Helper()
	a := x.must(f, order{Do: "hello"})
	var echo struct {
		Echo string `json:"echo"`
		PID  int    `json:"pid"`
	}
	if json.Unmarshal(a.Payload, &echo) != nil || echo.Echo != "hello" || a.FunctionError != "" {
		x.Errorf("the function answers %q %s", a.FunctionError, a.Payload)
	}
	return echo.PID
}

// eventually waits for what must come to be.
func (x *fixture) eventually(what string, is func() bool) {
	x.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			x.Fatalf("not in 20 s: %s", what)
		}
	}
}

// gone tells that a process has ended, whether its parent has noticed or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

func TestInvoke(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("echo", "go", nil)
	if first := x.wantEcho(f); first != x.wantEcho(f) {
		t.Error("a warm instance was not used again")
	}
	a := x.must(f, order{Do: "fail"})
	if a.FunctionError != functionUnhandled || !strings.Contains(string(a.Payload), `"errorMessage":"as asked"`) || a.Version != 1 {
		t.Errorf("an error of the handler: %+v %s", a, a.Payload)
	}
	if x.host.Instances("echo") != 1 {
		t.Errorf("%d instances after an error, which kills none", x.host.Instances("echo"))
	}
	if _, err := x.host.Run(t.Context(), f, &schema.Invocation{Qualifier: "7"}); schema.KindOf(err) != schema.NotFound {
		t.Errorf("a version that is not there: %v", err)
	}
	if _, err := x.host.Run(t.Context(), f, &schema.Invocation{Payload: make([]byte, schema.InvokeBytesMax+1)}); schema.KindOf(err) != schema.TooLarge {
		t.Errorf("a payload over the limit: %v", err)
	}
}

func TestHandlersThatEnd(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", nil)
	x.wantError(f, order{Do: "exit"}, errorExit, "^RequestId: [0-9a-f-]{36} Error: Runtime exited with error: exit status 42$")
	x.wantEcho(f)
	x.wantError(f, order{Do: "exit 0"}, errorExit, "Runtime exited without providing a reason")
	x.wantEcho(f)
	x.wantError(f, order{Do: "panic"}, "string", "as asked")
	x.wantEcho(f)
}

func TestTimeout(t *testing.T) {
	bothWays(t, testTimeout)
}

func testTimeout(x *fixture) {
	f := x.deploy("f", "go", func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout = 700 * time.Millisecond })
	x.wantEcho(f)
	x.wantError(f, order{Do: "sleep", Ms: 60_000}, errorTimeout, "^RequestId: .* Error: Task timed out after 0.70 seconds$")
	x.wantEcho(f)
}

func TestMemory(t *testing.T) {
	bothWays(t, testMemory)
}

func testMemory(x *fixture) {
	f := x.deploy("f", "go", func(_ *schema.Function, v *schema.FunctionVersion) { v.Memory = 400 })
	x.wantError(f, order{Do: "eat"}, errorMemory, "more than 400 MiB")
	x.wantEcho(f)
}

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

func TestLogs(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", nil)
	a := x.must(f, order{Do: "log", Bytes: 10_000})
	if len(a.Log) != schema.LogTailBytes || !regexp.MustCompile(`x+\nthe last line\nEND RequestId: \S+\nREPORT RequestId: \S+ Duration: [0-9.]+ ms\n$`).Match(a.Log) {
		t.Errorf("%d bytes of log: …%s", len(a.Log), a.Log[max(0, len(a.Log)-200):])
	}
	b := x.must(f, order{Do: "log", Bytes: 3})
	if !regexp.MustCompile(`^START RequestId: \S+ Version: 1\nxxx\nthe last line\nEND`).Match(b.Log) {
		t.Errorf("the log of the second invocation: %s", b.Log)
	}
	text, next, err := x.host.Logs(t.Context(), f, 0, 0)
	if err != nil || bytes.Count(text, []byte("START ")) != 2 {
		t.Errorf("log file: %v %s", err, clip(text))
	}
	done := make(chan []byte)
	go func() {
		more, _, _ := x.host.Logs(context.Background(), f, next, 20*time.Second)
		done <- more
	}()
	x.wantEcho(f)
	if more := <-done; !bytes.HasPrefix(more, []byte("START ")) {
		t.Errorf("following the log: %s", more)
	}
}

func clip(b []byte) string { return string(b[:min(len(b), 300)]) }

func TestEndlessLogs(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("f", "go", func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout = time.Second })
	a := x.wantError(f, order{Do: "log for ever"}, errorTimeout, "timed out")
	if len(a.Log) > schema.LogTailBytes {
		t.Errorf("%d bytes of log", len(a.Log))
	}
	files, _ := filepath.Glob(filepath.Join(x.host.opts.Dir, "logs", "*"))
	total := int64(0)
	for _, file := range files {
		info, _ := os.Stat(file)
		total += info.Size()
	}
	if total > 2*logBytesMax {
		t.Errorf("%d bytes of log in %v", total, files)
	}
	x.wantEcho(f)
}

func TestChildren(t *testing.T) {
	bothWays(t, testChildren)
}

func testChildren(x *fixture) {
	f := x.deploy("f", "go", nil)
	pids := x.fork(f)
	x.wantError(f, order{Do: "exit"}, errorExit, "42")
	for _, pid := range pids {
		x.eventually("a forked child is gone", func() bool { return gone(pid) })
	}
}

func TestCloseKillsAll(t *testing.T) {
	bothWays(t, testCloseKillsAll)
}

func testCloseKillsAll(x *fixture) {
	t := x.T
	f := x.deploy("f", "go", nil)
	pid := x.wantEcho(f)
	var child int
	json.Unmarshal(x.must(f, order{Do: "fork"}).Payload, &child)
	busy := make(chan *schema.Invoked)
	go func() {
		a, _ := x.run(f, order{Do: "sleep", Ms: 60_000})
		busy <- a
	}()
	x.eventually("an invocation runs", func() bool { x.host.mu.Lock(); defer x.host.mu.Unlock(); return x.host.inFlight[f.ID] == 1 })
	x.host.Close()
	if a := <-busy; a != nil && !strings.Contains(string(a.Payload), errorShutdown) {
		t.Errorf("an invocation that was cut off: %s", a.Payload)
	}
	if !gone(pid) || !gone(child) {
		t.Error("a process is left behind")
	}
	if _, err := x.run(f, order{}); schema.KindOf(err) != schema.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}

func TestIsolation(t *testing.T) {
	t.Setenv("HANDFAST_SECRET_OF_THE_NODE", "secret")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	x := newFixture(t)
	f := x.deploy("f", "go", func(_ *schema.Function, v *schema.FunctionVersion) { v.Env["OWN"] = "value"; v.Handler = "h.x" })
	var env, fds, dirs []string
	json.Unmarshal(x.must(f, order{Do: "environment"}).Payload, &env)
	json.Unmarshal(x.must(f, order{Do: "descriptors"}).Payload, &fds)
	json.Unmarshal(x.must(f, order{Do: "directory"}).Payload, &dirs)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "AWS_LAMBDA_") && !slices.Contains([]string{"_HANDLER", "LAMBDA_TASK_ROOT", "PATH", "LANG", "TZ", "TMPDIR", "OWN", modeVariable, "PWD", "_X_AMZN_TRACE_ID", "SHLVL", "_"}, name) {
			t.Errorf("the handler sees %s", e)
		}
	}
	for _, want := range []string{"OWN=value", "_HANDLER=h.x", "AWS_LAMBDA_FUNCTION_NAME=f", "AWS_LAMBDA_FUNCTION_VERSION=1"} {
		if !slices.Contains(env, want) {
			t.Errorf("the handler does not see %s in %v", want, env)
		}
	}
	for _, fd := range fds {
		if strings.Contains(fd, x.host.opts.Dir) || strings.Contains(fd, "store") {
			t.Errorf("the handler holds %s", fd)
		}
	}
	fds = slices.DeleteFunc(fds, func(fd string) bool { return strings.HasPrefix(fd, "/sys/fs/cgroup") }) // Go's own, which sees how many processors there are
	if len(fds) > 9 {                                                                                     // three, the poller's two, its connections, the directory
		t.Errorf("descriptors: %v", fds)
	}
	if len(dirs) != 2 || dirs[0] == dirs[1] || filepath.Dir(dirs[0]) != filepath.Dir(dirs[1]) || !strings.HasPrefix(dirs[0], x.host.runDir()) {
		t.Errorf("directories: %v", dirs)
	}
}

func TestBadProtocol(t *testing.T) {
	x := newFixture(t)
	f := x.deploy("raw", "raw", func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout = 5 * time.Second })
	for _, c := range []struct{ do, answer, functionError, noted string }{
		{"answer twice", `"first"`, "", "^202 403 403.*InvalidStateTransition"},
		{"unknown id", `"right"`, "", "^400.*InvalidRequestID"},
		{"ask twice", `"still here"`, "", "^403"},
		{"answer much", "Function.ResponseSizeTooLarge", functionUnhandled, "^413 403.*ResponseSizeTooLarge"},
		{"bad paths", "cannot be read", functionUnhandled, "^404 404"},
	} {
		file := filepath.Join(t.TempDir(), "noted")
		a := x.must(f, order{Do: c.do, File: file, Bytes: schema.InvokeBytesMax + 1})
		if !strings.Contains(string(a.Payload), c.answer) || a.FunctionError != c.functionError {
			t.Errorf("%s: %q %s", c.do, a.FunctionError, clip(a.Payload))
		}
		var noted []byte
		x.eventually(c.do+" was noted", func() (is bool) { var err error; noted, err = os.ReadFile(file); return err == nil })
		if !regexp.MustCompile(`(?s)` + c.noted).Match(noted) {
			t.Errorf("%s: the handler saw %s, want %s", c.do, noted, c.noted)
		}
	}
	if a := x.must(f, order{Do: "answer and exit"}); string(a.Payload) != `"done"` || a.FunctionError != "" {
		t.Errorf("an answer before the exit: %s", a.Payload)
	}
	if a := x.must(f, order{Do: "answer and stay"}); string(a.Payload) != `"done"` {
		t.Errorf("an answer without asking for the next: %s", a.Payload)
	}
	x.eventually("who does not ask for the next is killed", func() bool { return x.host.Instances("raw") == 0 })
	// What fits in 6 MiB comes whole.
	g := x.deploy("go", "go", nil)
	if a := x.must(g, order{Do: "answer much", Bytes: schema.InvokeBytesMax - 2}); len(a.Payload) != schema.InvokeBytesMax {
		t.Errorf("%d bytes of %d: %s", len(a.Payload), schema.InvokeBytesMax, clip(a.Payload))
	}
	x.wantError(g, order{Do: "answer much", Bytes: schema.InvokeBytesMax}, errorResponseSize, "exceeded")
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

func TestReserved(t *testing.T) {
	x := newFixture(t)
	one, none := 1, 0
	f := x.deploy("f", "go", func(f *schema.Function, _ *schema.FunctionVersion) { f.Reserved = &one })
	done := make(chan struct{})
	go func() { x.run(f, order{Do: "sleep", Ms: 3000}); close(done) }()
	x.eventually("the first runs", func() bool { x.host.mu.Lock(); defer x.host.mu.Unlock(); return x.host.inFlight[f.ID] == 1 })
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

func TestVersions(t *testing.T) {
	x := newFixture(t)
	env := func(value string) func(*schema.Function, *schema.FunctionVersion) {
		return func(_ *schema.Function, v *schema.FunctionVersion) { v.Env["OWN"] = value }
	}
	x.deploy("f", "go", env("one"))
	f := x.deploy("f", "go", env("two"))
	owns := func(f *schema.Function, qualifier, value string) {
		t.Helper()
		a, err := x.host.Run(t.Context(), f, &schema.Invocation{Qualifier: qualifier, Payload: []byte(`{"do":"environment"}`), Wait: 30 * time.Second})
		if err != nil || !strings.Contains(string(a.Payload), "OWN="+value+`"`) {
			t.Errorf("%s: %v, want %s", qualifier, err, value)
		}
	}
	owns(f, "", "two")
	owns(f, "1", "one")
	f, err := x.catalog.RollBack(t.Context(), "f", 1)
	if err != nil {
		t.Fatal(err)
	}
	owns(f, "", "one")
	owns(f, "live", "one")
	owns(f, "$LATEST", "two")
	sum := f.Versions[0].SHA256
	if err := x.catalog.DeleteFunction(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	x.eventually("its code is gone", func() bool { _, there, _ := x.host.opts.Artifacts.Artifact(t.Context(), sum, 0); return !there })
	x.eventually("its processes are gone", func() bool { return x.host.Instances("f") == 0 })
}
