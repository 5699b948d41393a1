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

func clip(b []byte) string { return string(b[:min(len(b), 300)]) }
