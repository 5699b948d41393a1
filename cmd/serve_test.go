package cmd_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handfast-mq/handfast/cmd"
)

// TestServeThatCannotStart holds that a start that is wrong says so in one sentence and leaves no data behind.
func TestServeThatCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.7:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "authz.rego"), []byte("package handfast.authz\ndecision :="), 0o600); err != nil {
		t.Fatal(err)
	}
	const usage, failure = 2, 1
	for args, want := range map[string]int{
		"--listen nowhere":                  usage,
		"--listen " + taken.Addr().String(): failure,
		"--log-level loud":                  usage,
		"--log-format xml":                  usage,
		"--partitions 0":                    usage,
		"--partitions many":                 usage,
		"--user-rate -1":                    usage,
		"--idempotency-keys 0":              usage,
		"--store mysql":                     usage,
		"--store cql":                       usage,
		"--public-url ftp://x":              usage,
		"--policy-dir " + filepath.Join(broken, "nowhere"): failure,
		"--policy-dir " + broken:                           failure,
		"extra":                                            usage,
	} {
		dir := filepath.Join(t.TempDir(), "data")
		var out, errs bytes.Buffer
		code := cmd.Main(append([]string{"serve", "--dir", dir, "--listen", "127.0.0.7:0"}, strings.Fields(args)...), nil, &out, &errs)
		oneLine := strings.Count(errs.String(), "\n") == 1 || strings.Contains(args, broken) // a compiler says more
		if code != want || out.Len() > 0 || !oneLine || !strings.HasPrefix(errs.String(), "handfast: ") {
			t.Errorf("%s: exit %d, %q, %q", args, code, out.String(), errs.String())
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: there is data", args)
		}
	}
}

// TestSettingsFromTheEnvironment holds that the environment says what no flag says, for all commands that work on a cluster itself.
func TestSettingsFromTheEnvironment(t *testing.T) {
	t.Setenv("HANDFAST_LOG_FORMAT", "xml")
	for _, args := range [][]string{{"serve", "--dir", filepath.Join(t.TempDir(), "data")}, {"migrate", "--cql-hosts", "127.0.0.7"}} {
		var errs bytes.Buffer
		if code := cmd.Main(args, nil, io.Discard, &errs); code != 2 || !strings.Contains(errs.String(), `not "xml"`) {
			t.Errorf("%q: exit %d, %q", args, code, errs.String())
		}
	}
	t.Setenv("HANDFAST_USER_RATE", "fast")
	var errs bytes.Buffer
	if code := cmd.Main([]string{"serve", "--log-format", "text"}, nil, io.Discard, &errs); code != 2 || !strings.Contains(errs.String(), "HANDFAST_USER_RATE") {
		t.Errorf("exit %d, %q", code, errs.String())
	}
	errs.Reset()
	if code := cmd.Main([]string{"serve", "--log-format", "text", "--user-rate", "-1"}, nil, io.Discard, &errs); code != 2 || !strings.Contains(errs.String(), "--user-rate must be") {
		t.Errorf("a flag goes before the environment: exit %d, %q", code, errs.String())
	}
}
