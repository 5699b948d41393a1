// Package integration tests the built binary from outside, as its users meet it.
package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "handfast-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "handfast")
	build := exec.Command("go", "build", "-o", binary, "..")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	database.Main(m, func() { os.RemoveAll(dir) })
}

// process is one running node.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	token string
	ended chan error
	log   *bytes.Buffer
}

// start runs a node on the embedded store in a directory and waits until it serves.
func start(t *testing.T, dir, listen string, more ...string) *process {
	t.Helper()
	p := run(t, append([]string{"serve", "--dir", dir, "--listen", listen, "--allow-private-targets"}, more...)...)
	p.token = adminToken(t, dir)
	return p
}

func adminToken(t *testing.T, dir string) string {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// run starts the binary and waits for its first line, which ends with its address.
func run(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan error, 1), log: &bytes.Buffer{}}
	p.cmd = exec.Command(binary, args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	drained := make(chan struct{})
	go func() { io.Copy(io.Discard, lines); close(drained) }()
	go func() { <-drained; p.ended <- p.cmd.Wait() }()
	t.Cleanup(p.kill)
	if err != nil {
		<-p.ended
		p.ended <- nil
		t.Fatalf("the node did not start: %v\n%s", err, p.log)
	}
	words := strings.Fields(first)
	p.url = words[len(words)-1]
	return p
}

// kill ends the process as a power switch does, and waits for it.
func (p *process) kill() {
	p.cmd.Process.Kill()
	err := <-p.ended
	p.ended <- err
}

// terminate asks the process to end and returns its exit code.
func (p *process) terminate() int {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		p.ended <- err
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		return 0
	case <-time.After(10 * time.Second):
		p.t.Fatal("SIGTERM did not end the node within 10 s")
		return -1
	}
}

// client is for the whole test binary: its connections are kept.
var client = &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// request sends JSON and decodes the answer. An answer other than 200 is an *answerError.
func request(url, token, method, path string, body, answer any) error {
	var reader io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, url+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return &answerError{resp.StatusCode, string(raw)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(raw, answer)
}

type answerError struct {
	status int
	body   string
}

func (e *answerError) Error() string { return fmt.Sprintf("%d %s", e.status, e.body) }

// must is request for what cannot fail.
func must(t *testing.T, p *process, token, method, path string, body, answer any) {
	t.Helper()
	if err := request(p.url, token, method, path, body, answer); err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, p.log)
	}
}

type object = map[string]any

// newUser makes a user and returns its id and token.
func newUser(t *testing.T, p *process, name string) (int64, string) {
	t.Helper()
	var u struct {
		ID    int64 `json:"user_id"`
		Token string
	}
	must(t, p, p.token, "POST", "/create_user", object{"user_name": name}, &u)
	return u.ID, u.Token
}

func newTopic(t *testing.T, p *process, token string, body object) int64 {
	t.Helper()
	var topic struct {
		ID int64 `json:"topic_id"`
	}
	must(t, p, token, "POST", "/create_topic", body, &topic)
	return topic.ID
}
