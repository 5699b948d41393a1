package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFunctions does with the deployable web handler what its documentation says.
func TestFunctions(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bootstrap"), "github.com/handfast-mq/handfast/functions/handlers/web")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made := s.ask("function", "deploy", "web", dir, "--timeout", "10s", "--env", "A=b", "--max-retries", "1")
	if made["function_name"] != "web" || fmt.Sprint(made["live"]) != "1" {
		t.Fatalf("deployed %v", made)
	}
	payload := `{"rawPath":"/digest","body":"hello","requestContext":{"http":{"method":"POST"}}}`
	code, out, errs := s.try(payload, "function", "invoke", "web", "-", "--log")
	if code != 0 || !strings.Contains(out, "2cf24dba5fb0") || !strings.Contains(errs, "REPORT RequestId") {
		t.Errorf("exit %d: %s %s", code, out, errs)
	}
	s.run("function", "update", "web", "--memory", "300", "--url-auth", "none")
	if out := s.run("function", "invoke", "web:2", payload); !strings.Contains(out, "2cf24dba5fb0") {
		t.Errorf("invoked: %s", out)
	}
	if out := s.run("function", "rollback", "web", "1"); !strings.Contains(out, "version 1 of web is live") {
		t.Errorf("rolled back: %s", out)
	}
	if out := s.run("function", "list"); !strings.HasPrefix(out, "FUNCTION") || !strings.Contains(out, "web") {
		t.Errorf("functions:\n%s", out)
	}
	if out := s.run("function", "show", "web"); !strings.Contains(out, "function_name") {
		t.Errorf("function:\n%s", out)
	}
	if out := s.run("function", "logs", "web"); strings.Count(out, "START RequestId") != 2 {
		t.Errorf("logs:\n%s", out)
	}
	if out := s.run("function", "invoke", "web", "{}", "--event"); !strings.Contains(out, "accepted as ") {
		t.Errorf("event: %s", out)
	}
	if code, out, _ := s.try("", "function", "invoke", "web", `"not an object"`); code != 1 || !strings.Contains(out, "errorMessage") {
		t.Errorf("a function's error: exit %d %s", code, out)
	}
	if key := s.ask("token", "access-key"); !strings.HasPrefix(fmt.Sprint(key["access_key_id"]), "HF") || key["secret_access_key"] == "" {
		t.Errorf("access key: %v", key)
	}
	s.run("topic", "create", "orders")
	sub := s.ask("subscription", "create", "orders", "--function", "web", "--batch-size", "5", "--timeout", "7s")
	if target := fmt.Sprint(sub["target"]); target != "map[batch_size:5 function:web timeout:7 type:function]" {
		t.Errorf("subscribed: %s", target)
	}
	sub = s.ask("subscription", "update", fmt.Sprint(sub["subscription_id"]), "--batch-window", "2s")
	if target := fmt.Sprint(sub["target"]); target != "map[batch_size:5 batch_window:2 function:web timeout:7 type:function]" {
		t.Errorf("updated: %s", target)
	}
	s.run("function", "delete", "web")
	if code, _, errs := s.try("", "function", "invoke", "web"); code != 1 || !strings.Contains(errs, "no such function") {
		t.Errorf("after its end: exit %d %s", code, errs)
	}
	if code, _, errs := s.try("", "function", "deploy", "web", t.TempDir()); code != 2 || !strings.Contains(errs, "bootstrap") {
		t.Errorf("an empty directory: exit %d %s", code, errs)
	}
}
