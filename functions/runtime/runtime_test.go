package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

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
	x.eventually("an invocation runs", func() bool { return x.inFlight(f) == 1 })
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
