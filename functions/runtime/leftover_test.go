package runtime

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/schema"
)

// fork lets a handler leave children behind: one in its process group, one that left it, and, where only a control group can find it, one
// without its environment.
func (x *fixture) fork(f *schema.Function) (pids []int) {
	x.Helper()
	orders := []string{"fork", "fork away"}
	if x.host.cgroups != nil {
		orders = append(orders, "fork bare")
	}
	for _, do := range orders {
		var pid int
		if json.Unmarshal(x.must(f, order{Do: do}).Payload, &pid); pid == 0 || gone(pid) {
			x.Fatalf("%s: no child", do)
		}
		pids = append(pids, pid)
	}
	return pids
}

// The variables with which TestKilledHost runs itself as the host that is killed.
const (
	hostDirVariable    = "TEST_HOST_DIR"
	hostCgroupVariable = "TEST_HOST_CGROUP"
)

// TestKilledHost kills the process of a host. What its handlers forked lives on, and ends with the start of the next host.
func TestKilledHost(t *testing.T) {
	if dir := os.Getenv(hostDirVariable); dir != "" {
		hostUntilKilled(newFixtureIn(t, dir, os.Getenv(hostCgroupVariable)))
	}
	t.Run("process groups", func(t *testing.T) { killHost(t, noCgroup) })
	t.Run("control groups", func(t *testing.T) {
		needCgroups(t)
		killHost(t, "")
	})
}

// hostUntilKilled prints the processes that it leaves, the handler first.
func hostUntilKilled(x *fixture) {
	f := x.deploy("f", "go", nil)
	pids := append([]int{x.wantEcho(f)}, x.fork(f)...)
	fmt.Println(pids)
	select {}
}

func killHost(t *testing.T, cgroup string) {
	dir := t.TempDir()
	host := exec.Command(os.Args[0], "-test.run=^TestKilledHost$")
	host.Env = append(os.Environ(), hostDirVariable+"="+dir, hostCgroupVariable+"="+cgroup)
	host.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	host.Process.Kill()
	host.Wait()
	var pids []int
	for word := range strings.FieldsSeq(strings.Trim(line, "[]\n")) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("the host said %q", line)
		}
		pids = append(pids, pid)
	}
	if len(pids) < 3 {
		t.Fatalf("the host said %q", line)
	}
	for _, child := range pids[1:] {
		if gone(child) {
			t.Errorf("child %d ended with its host: this test proves nothing", child)
		}
	}
	x := newFixtureIn(t, dir, cgroup)
	for _, pid := range pids {
		x.eventually("what an earlier host left is gone", func() bool { return gone(pid) })
	}
	x.wantEcho(x.deploy("f", "go", nil))
}

// TestKillGroup kills a process group by what was noted of it, and none that is not the same any more.
func TestKillGroup(t *testing.T) {
	stranger := exec.Command("/bin/sleep", "300")
	stranger.Env, stranger.SysProcAttr = []string{}, &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer stranger.Wait()
	defer stranger.Process.Kill()
	dir := t.TempDir()
	if err := writeGroup(dir, stranger.Process.Pid); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, groupFile)
	right, err := os.ReadFile(file)
	words := strings.Fields(string(right))
	if err != nil || len(words) != 3 {
		t.Fatalf("noted as %q: %v", right, err)
	}
	for what, noted := range map[string]string{
		"another start":            words[0] + " " + words[1] + "0 " + words[2] + "\n",
		"another start of machine": words[0] + " " + words[1] + " 00000000-0000-0000-0000-000000000000\n",
		"half":                     words[0], "nothing": "", "nonsense": "x y z\n", "every process": "-1 0 0\n", "init": "1 0 0\n",
	} {
		os.WriteFile(file, []byte(noted), 0o600)
		if killGroup(dir); gone(stranger.Process.Pid) {
			t.Fatalf("%s: a stranger was killed", what)
		}
	}
	os.Remove(file)
	if killGroup(dir); gone(stranger.Process.Pid) {
		t.Fatal("a stranger was killed that nothing names")
	}
	os.WriteFile(file, right, 0o600)
	killGroup(dir)
	if err := stranger.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process that was noted: %v", err)
	}
}

func TestOneHostInADirectory(t *testing.T) {
	x := newFixture(t)
	pid := x.wantEcho(x.deploy("f", "go", nil))
	o := x.host.opts
	o.Registerer, o.Logger = prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "another node runs functions in "+o.Dir) {
		t.Errorf("a second host in the same directory: %v", err)
	}
	if gone(pid) {
		t.Error("it has killed what is not its own")
	}
}
