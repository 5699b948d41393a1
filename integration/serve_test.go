package integration

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeFirstStartAndRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir, "127.0.0.1:0")
	info, err := os.Stat(filepath.Join(dir, "admin.token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	if strings.Contains(p.log.String(), p.token) {
		t.Fatal("the log holds the token")
	}
	topic := newTopic(t, p, p.token, object{"topic_name": "kept"})
	out, err := exec.Command(binary, "serve", "--dir", dir, "--listen", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), dir) {
		t.Fatalf("a second process on the directory: %v %s", err, out)
	}
	if code := p.terminate(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	p = start(t, dir, "127.0.0.1:0")
	var got struct {
		Name string `json:"topic_name"`
	}
	must(t, p, p.token, "GET", "/topic?topic_id="+str(topic), nil, &got)
	if got.Name != "kept" {
		t.Fatal(got)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.yaml"} {
		resp, err := http.Get(p.url + path)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(path, resp.StatusCode, err)
		}
		resp.Body.Close()
	}
}

func TestServeRefusesBadSettings(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "--listen", "nowhere"}, {"serve", "--partitions", "0"}, {"serve", "--partitions", "9000"}, {"serve", "--no-such-flag"},
		{"serve", "extra"}, {"serve", "--log-level", "loud"}, {"serve", "--user-rate", "-1"}, {"no-such-command"},
	} {
		cmd := exec.Command(binary, args...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || strings.Count(strings.TrimSpace(string(out)), "\n") != 0 {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
			t.Errorf("%v left %v", args, left)
		}
	}
}
