package runtime

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// TestLateAnswer has an invocation answered after its deadline, by a child that nothing but a control group could have found.
func TestLateAnswer(t *testing.T) {
	x := newFixtureIn(t, t.TempDir(), noCgroup)
	f := x.deploy("f", "raw", func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout = 700 * time.Millisecond })
	file := filepath.Join(t.TempDir(), "noted")
	x.wantError(f, order{Do: "answer late", File: file}, errorTimeout, "timed out")
	var noted []byte
	x.eventually("the late answer was given", func() (is bool) { var err error; noted, err = os.ReadFile(file); return err == nil })
	if !strings.HasPrefix(string(noted), "refused") {
		t.Errorf("the late answer: %s", noted)
	}
	if a := x.must(f, order{Do: "half an answer"}); string(a.Payload) != `"whole"` {
		t.Errorf("the next invocation: %s", a.Payload)
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
		{"former id", `"mine"`, "", "^400.*InvalidRequestID"},
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
	if a := x.must(f, order{Do: "half an answer"}); string(a.Payload) != `"whole"` || a.FunctionError != "" {
		t.Errorf("an answer after one that broke off: %s", a.Payload)
	}
	x.wantError(f, order{Do: "report much", Bytes: errorBytesMax}, "Runtime.Unknown", "cannot be read")
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
