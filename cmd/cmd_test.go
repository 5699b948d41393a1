package cmd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/handfast-mq/handfast/cmd"
	"github.com/handfast-mq/handfast/internal/node"
)

// shell runs commands against a node in this process.
type shell struct {
	t             *testing.T
	server, token string
}

func start(t *testing.T) *shell {
	cfg := node.Default()
	cfg.Dir, cfg.Listen, cfg.Partitions, cfg.AllowPrivateTargets, cfg.Logger = t.TempDir(), "127.0.0.7:0", 8, true, slog.New(slog.DiscardHandler)
	n, err := node.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(context.Background()) })
	token, err := os.ReadFile(filepath.Join(cfg.Dir, node.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HANDFAST_SERVER", n.URL())
	return &shell{t, n.URL(), strings.TrimSpace(string(token))}
}

func (s *shell) as(token string) *shell { return &shell{s.t, s.server, token} }

// try runs a command and returns its exit code and what it wrote.
func (s *shell) try(stdin string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = cmd.Main(append(args, "--token", s.token), strings.NewReader(stdin), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// run runs a command that must succeed.
func (s *shell) run(args ...string) string {
	s.t.Helper()
	code, out, errs := s.try("", args...)
	if code != 0 {
		s.t.Fatalf("%q: exit %d: %s", args, code, errs)
	}
	return out
}

// ask runs a command with --json and decodes what it wrote.
func (s *shell) ask(args ...string) map[string]any {
	s.t.Helper()
	out := s.run(append(args, "--json")...)
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(out))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		s.t.Fatalf("%q: %q is not one JSON object: %v", args, out, err)
	}
	return v
}

func TestNouns(t *testing.T) {
	s := start(t)
	alice := s.ask("user", "create", "alice", "--label", "team=red")
	owner := s.as(alice["token"].(string))
	me := fmt.Sprint(alice["user_id"])
	bob := s.ask("user", "create", "bob", "--expires-in", "1h")
	reader, him := s.as(bob["token"].(string)), fmt.Sprint(bob["user_id"])

	topic := fmt.Sprint(owner.ask("topic", "create", "orders", "--rule", "approval", "--retention", "2h")["topic_id"])
	if got := fmt.Sprint(owner.ask("topic", "update", "orders", "--label", "a=b", "--retention", "3h")["retention"]); got != "10800" {
		t.Errorf("retention is %s", got)
	}
	if out := owner.run("topic", "list"); !strings.Contains(out, "orders") || !strings.HasPrefix(out, "TOPIC") {
		t.Errorf("topics:\n%s", out)
	}
	if out := owner.run("topic", "show", "orders"); !strings.Contains(out, "topic_name    ") {
		t.Errorf("topic:\n%s", out)
	}
	owner.run("topic", "grant", "orders", him)
	if out := owner.run("topic", "grants", topic); !strings.Contains(out, him) {
		t.Errorf("grants:\n%s", out)
	}
	sub := fmt.Sprint(reader.ask("subscription", "create", topic, "--ack-deadline", "20s", "--filter", `{"kind":["x"]}`)["subscription_id"])
	owner.run("subscription", "approve", sub)
	reader.run("subscription", "update", sub, "--filter", "{}", "--max-outstanding", "7")
	reader.run("subscription", "pause", sub, "--reason", "lunch")
	reader.run("subscription", "resume", sub)
	reader.run("subscription", "verify", sub)
	reader.run("subscription", "replay", sub, "--start", "earliest")
	owner.run("subscription", "redrive", sub)
	if got := reader.ask("subscription", "show", sub); fmt.Sprint(got["max_outstanding"]) != "7" || got["state"] != "active" {
		t.Errorf("subscription: %v", got)
	}
	if out := owner.run("subscription", "list", "--state", "active"); !strings.Contains(out, sub) {
		t.Errorf("subscriptions:\n%s", out)
	}
	reader.run("publish", topic, "hello")
	reader.run("unsubscribe", topic)
	owner.run("topic", "revoke", "orders", him)
	if code, _, errs := reader.try("", "publish", topic, "hello"); code != 1 || strings.Count(errs, "\n") != 1 {
		t.Errorf("after the revocation: exit %d, %q", code, errs)
	}
	owner.run("topic", "delete", "orders")

	rego := filepath.Join(t.TempDir(), "rule.rego")
	os.WriteFile(rego, []byte("package handfast.rule\npublish := true\n"), 0o600)
	owner.run("rule", "create", "mine", "--rego", rego, "--description", "all")
	owner.run("pattern", "create", "two", "--mode", "pull", "--ordered")
	if out := owner.run("rule", "list") + owner.run("pattern", "list"); !strings.Contains(out, "mine") || !strings.Contains(out, "two") {
		t.Errorf("rules and patterns:\n%s", out)
	}
	rotated := reader.ask("token", "rotate", "--overlap", "1h")
	reader.run("user", "show")
	reader.as(rotated["token"].(string)).run("token", "revoke", fmt.Sprint(rotated["token_id"]))
	s.run("user", "disable", him)
	if code, _, _ := reader.try("", "user", "show"); code != 1 {
		t.Errorf("a disabled user: exit %d", code)
	}
	s.run("user", "enable", him)
	if out := s.run("user", "list"); !strings.Contains(out, "alice") || !strings.Contains(out, me) {
		t.Errorf("users:\n%s", out)
	}
}

func TestPublishPullSettle(t *testing.T) {
	s := start(t)
	s.run("topic", "create", "orders", "--partitions", "1", "--pattern", "ordered")
	s.run("subscription", "create", "orders", "--retry", "0s,1s")
	id := fmt.Sprint(s.ask("publish", "orders", "hello <&>", "--key", "k", "--attribute", "kind=a=b", "--idempotency-key", "once")["message_id"])
	if again := s.ask("publish", "orders", "hello <&>", "--key", "k", "--attribute", "kind=a=b", "--idempotency-key", "once"); fmt.Sprint(again["message_id"]) != id || again["duplicate"] != true {
		t.Errorf("again: %v", again)
	}
	got := s.ask("pull", "orders", "--wait", "10s")
	if fmt.Sprint(got["message_id"]) != id || got["key"] != "k" || got["attributes"].(map[string]any)["kind"] != "a=b" {
		t.Errorf("pulled %v", got)
	}
	s.run("nack", "orders", id, "--lease", got["lease"].(string))
	s.ask("pull", "orders", "--wait", "10s")
	if code, _, _ := s.try("", "ack", "orders", id, "--lease", got["lease"].(string)); code != 1 {
		t.Errorf("an ack with an old lease: exit %d", code)
	}
	s.run("ack", "orders", id)
	if out := s.run("status", id); !strings.Contains(out, "delivered: 1 of 1") {
		t.Errorf("status: %s", out)
	}
	s.run("deliveries", id)

	if code, out, errs := s.try("from stdin", "publish", "orders", "-", "--json"); code != 0 {
		t.Errorf("from stdin: %d %s %s", code, out, errs)
	}
	if out := s.run("pull", "orders", "--wait", "10s", "--ack"); !strings.Contains(out, "from stdin") {
		t.Errorf("pulled %q", out)
	}
}

func TestPublishFile(t *testing.T) {
	s := start(t)
	s.run("topic", "create", "orders", "--partitions", "1")
	s.run("subscription", "create", "orders", "--max-outstanding", "5000")
	var lines strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&lines, "line %d\r\n\n", i)
	}
	lines.WriteString(`{"message_content":"enveloped","key":"k","attributes":{"a":"b"}}` + "\n" + `{"id":1}`)
	file := filepath.Join(t.TempDir(), "x.jsonl")
	os.WriteFile(file, []byte(lines.String()), 0o600)
	if got := s.ask("publish", "orders", "--file", file); fmt.Sprint(got["published"]) != "1202" {
		t.Fatalf("published %v", got)
	}
	seen := map[string]bool{}
	for len(seen) < 1202 {
		d := json.NewDecoder(strings.NewReader(s.run("pull", "orders", "--max", "1000", "--wait", "10s", "--ack", "--json")))
		for {
			var m map[string]any
			if err := d.Decode(&m); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			seen[m["message_content"].(string)] = true
			if m["message_content"] == "enveloped" && m["key"] != "k" {
				t.Errorf("enveloped: %v", m)
			}
		}
	}
	if !seen["line 0"] || !seen["line 1199"] || !seen["enveloped"] || !seen[`{"id":1}`] {
		t.Error("lines are missing")
	}
	if code, _, errs := s.try("fine\n{\"message_content\": \"x\", \"kez\": 1}\n", "publish", "orders", "--file", "-"); code != 1 || !strings.Contains(errs, "line 2") {
		t.Errorf("a bad line: exit %d, %s", code, errs)
	}
}

func TestListenForwards(t *testing.T) {
	s := start(t)
	s.run("topic", "create", "orders", "--rule", "open")
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		if calls.Add(1) == 1 {
			w.WriteHeader(500) // comes again
			return
		}
		if string(body) != "hello" || r.Header.Get("Handfast-Attribute-Kind") != "x" || r.Header.Get("Content-Type") != "text/special" {
			t.Errorf("forwarded %q %v", body, r.Header)
		}
	}))
	defer hook.Close()
	s.run("subscription", "create", "orders") // before the message, since it begins now
	s.run("publish", "orders", "hello", "--attribute", "kind=x", "--content-type", "text/special")
	out := s.run("listen", "orders", "--forward-to", hook.URL, "--secret", secret, "--count", "2", "--retry-delay", "0s")
	if calls.Load() != 2 || !strings.Contains(out, "500") || !strings.Contains(out, "200") {
		t.Errorf("%d calls:\n%s", calls.Load(), out)
	}
}

// TestListenWaitsForApproval begins to listen to another's topic, which subscribes; the owner approves while it waits.
func TestListenWaitsForApproval(t *testing.T) {
	s := start(t)
	topic := fmt.Sprint(s.ask("topic", "create", "orders", "--rule", "approval")["topic_id"])
	reader := s.as(fmt.Sprint(s.ask("user", "create", "reader")["token"]))
	listened := make(chan string, 1)
	go func() {
		code, out, errs := reader.try("", "listen", topic, "--count", "1")
		listened <- fmt.Sprintf("exit %d: %s%s", code, out, errs)
	}()
	for approved := false; !approved; { // until it has subscribed
		select {
		case got := <-listened:
			t.Fatalf("it ended: %s", got)
		default:
		}
		var waiting []struct {
			ID int64 `json:"subscription_id"`
		}
		if err := json.Unmarshal([]byte(s.run("subscription", "list", "--state", "pending_publisher", "--json")), &waiting); err != nil {
			t.Fatal(err)
		}
		if approved = len(waiting) > 0; approved {
			s.run("subscription", "approve", fmt.Sprint(waiting[0].ID))
		}
	}
	s.run("publish", topic, "hello")
	if got := <-listened; !strings.HasPrefix(got, "exit 0: ") || !strings.Contains(got, "  hello") || !strings.Contains(got, "waiting for the topic's owner") {
		t.Errorf("%s", got)
	}
	s.run("subscription", "create", topic, "--webhook", "http://127.0.0.7:1")
	if code, _, errs := s.try("", "listen", topic); code != 1 || !strings.Contains(errs, "delivered to its webhook") {
		t.Errorf("to what is pushed: exit %d, %s", code, errs)
	}
}

func TestCert(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	var out, errs bytes.Buffer
	if code := cmd.Main([]string{"cert", "--out", dir, "--nodes", "2"}, nil, &out, &errs); code != 0 || strings.Count(out.String(), "\n") != 6 {
		t.Fatalf("exit %d: %s%s", code, out.String(), errs.String())
	}
	ca, err := os.ReadFile(filepath.Join(dir, "peer-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, node := range []string{"peer-1", "peer-2"} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, node+".pem"), filepath.Join(dir, node+"-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s: %v", node, err)
		}
		if info, err := os.Stat(filepath.Join(dir, node+"-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: its key is readable: %v %v", node, info.Mode(), err)
		}
	}
	if code := cmd.Main([]string{"cert", "--out", dir}, nil, io.Discard, &errs); code != 1 {
		t.Errorf("over files that are there: exit %d", code)
	}
	again, err := os.ReadFile(filepath.Join(dir, "peer-ca.pem"))
	if err != nil || !bytes.Equal(ca, again) {
		t.Error("the CA was overwritten")
	}
}

// ender sends this process the signal of Ctrl-C when something is written to it.
type ender struct{ bytes.Buffer }

func (e *ender) Write(p []byte) (int, error) {
	if e.Len() == 0 {
		syscall.Kill(os.Getpid(), syscall.SIGINT)
	}
	return e.Buffer.Write(p)
}

func TestListenEndsWithCtrlC(t *testing.T) {
	s := start(t)
	s.run("topic", "create", "orders", "--rule", "open")
	s.run("subscription", "create", "orders")
	id := fmt.Sprint(s.ask("publish", "orders", "hello\x1b[2J")["message_id"])
	var out ender
	var errs bytes.Buffer
	if code := cmd.Main([]string{"listen", "orders", "--token", s.token}, nil, &out, &errs); code != 0 {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if !strings.Contains(out.String(), `hello\x1b[2J`) {
		t.Errorf("wrote %q", out.String())
	}
	if m := s.ask("status", id); m["message_status"] != "delivered" {
		t.Errorf("what was printed is not acknowledged: %v", m)
	}
}

func TestMistakes(t *testing.T) {
	s := start(t)
	for _, args := range [][]string{{"topic"}, {"topic", "create"}, {"topic", "creat", "x"}, {"publish", "t"}, {"publish", "1", "x", "--file", "y"}, {"publish", "1", "x", "--attribute", "y"},
		{"ack", "1"}, {"ack", "1", "x"}, {"deliveries"}, {"status", "-1"}, {"listen", "1", "--forward-to", "x"}, {"rule", "create", "x"}, {"user", "show", "x"},
		{"pull", "1", "--max", "x"}, {"pull", "1", "--max", "0"}, {"subscription", "create", "1", "--filter", "{"}, {"subscription", "create", "1", "--timeout", "1s"},
		{"subscription", "create", "1", "--webhook", "http://x", "--function", "f"}, {"bench", "--only", "nothing of this name"},
		{"topic", "create", "x", "--rule", "nix"}, {"topic", "create", ""}, {"publish", "1", "x", "--delay", "-1s"}, {"pull", "1", "--wait", "-1s"}, {"pull", "1", "--max", "1001"},
		{"user", "create", "x", "--expires-in", "1000000h"}, {"topic", "list", "--server", "ftp://x"}, {"nothing"}, {"topic", "list", "--unknown"}} {
		if code, out, errs := s.try("", args...); code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "handfast: ") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
	for _, args := range [][]string{{"topic", "show", "nix"}, {"topic", "show", "77"}, {"pull", "77"}, {"publish", "1", "--file", "/nowhere"}, {"unsubscribe", "77"}} {
		if code, out, errs := s.try("", args...); code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "handfast: ") {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errs)
		}
	}
	if code, _, errs := s.try(strings.Repeat("x", 1<<20+1), "publish", "1", "-"); code != 2 || errs != "handfast: standard input has more than 1048576 bytes\n" {
		t.Errorf("too much on standard input: exit %d, %q", code, errs)
	}
	if code, _, errs := s.as(s.token+"\r\n").try("", "topic", "list"); code != 2 || !strings.Contains(errs, "the token") {
		t.Errorf("a token with the end of its line: exit %d, %q", code, errs)
	}
	if code, _, errs := s.as("").try("", "topic", "list"); code != 2 || !strings.Contains(errs, "HANDFAST_TOKEN") {
		t.Errorf("no token: exit %d, %q", code, errs)
	}
}

func TestNoTokenShowsWhereOneIs(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HANDFAST_SERVER", "")
	t.Setenv("HANDFAST_TOKEN", "")
	os.MkdirAll("handfast-data", 0o700)
	os.WriteFile("handfast-data/admin.token", []byte("x"), 0o600)
	var errs bytes.Buffer
	if code := cmd.Main([]string{"topic", "list"}, nil, io.Discard, &errs); code != 2 || !strings.Contains(errs.String(), "$(cat handfast-data/admin.token)") {
		t.Errorf("exit %d, %q", code, errs.String())
	}
}

func TestManual(t *testing.T) {
	dir := t.TempDir()
	if code := cmd.Main([]string{"docs", dir}, nil, io.Discard, io.Discard); code != 0 {
		t.Fatal(code)
	}
	if _, err := os.Stat(filepath.Join(dir, "handfast_topic_create.md")); err != nil {
		t.Error(err)
	}
}
