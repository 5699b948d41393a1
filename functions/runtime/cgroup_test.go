package runtime

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func TestNoCgroups(t *testing.T) {
	for what, root := range map[string]string{"no directory": filepath.Join(t.TempDir(), "none"), "a file": noCgroup, "a directory without the kernel's files": t.TempDir(), "another file system of the kernel": "/proc/self"} {
		if c, err := openCgroups(root, "x"); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// TestCgroupIsRemoved looks for what instances and their groups within leave in the file system.
func TestCgroupIsRemoved(t *testing.T) {
	c := needCgroups(t)
	g, err := c.add("one", 64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&cgroups{prefix: g.dir + "/"}).add("within", 64); err != nil {
		t.Fatal(err)
	}
	if err := g.end(); err != nil {
		t.Error(err)
	}
	x := newFixture(t)
	x.wantEcho(x.deploy("f", "go", nil))
	x.host.Close()
	for _, prefix := range []string{c.prefix, x.host.cgroups.prefix} {
		if left, err := filepath.Glob(prefix + "*"); err != nil || len(left) > 0 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
}

// TestProcessesAreBounded lets a handler fork more than it may.
func TestProcessesAreBounded(t *testing.T) {
	if c := needCgroups(t); !c.pids {
		t.Skip("the kernel bounds no processes here: its pids controller is not in cgroup v2, or not to be had by this process")
	}
	x := newFixture(t)
	f := x.deploy("f", "go", func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout, v.Memory = time.Minute, 4096 })
	var n int
	if err := json.Unmarshal(x.must(f, order{Do: "fork many", Bytes: 2 * processesMax}).Payload, &n); err != nil || n < 10 || n >= processesMax {
		t.Errorf("%d processes: %v", n, err)
	}
	x.wantEcho(f)
}
