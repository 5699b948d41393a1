package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/functions/artifact"
)

// unitVerdict is of rows that tell whether something is as at AWS.
const unitVerdict = "1 = as at AWS"

const (
	faultName = "fault"
	faultExit = 42
	// faultWork is how long an event takes: long enough to tell whether its caller was kept waiting.
	faultWork = 500 * time.Millisecond
	eventWait = 10 * time.Second
)

// faultOrder is what the handler of faults is asked to do.
type faultOrder struct {
	Do   string `json:"do"`
	File string `json:"file,omitempty"`
}

// ServeFaults is the handler of faults. It never returns.
func ServeFaults() {
	lambda.Start(func(_ context.Context, o faultOrder) (string, error) {
		switch o.Do {
		case "fail":
			return "", errors.New("as asked")
		case "exit":
			os.Exit(faultExit)
		case "note":
			time.Sleep(faultWork)
			return "", os.WriteFile(o.File, nil, 0o600)
		}
		return "well", nil
	})
}

// verdicts has both sides do what handlers and callers do at AWS beside being right, and says how they did.
func (f *functionBench) verdicts(cl *client.Client) ([]FunctionRow, error) {
	handler, err := f.faultHandler()
	if err != nil {
		return nil, err
	}
	if err := deploy(cl, faultName, handler); err != nil {
		return nil, err
	}
	theirs, stop, err := f.emulator(handler, func(i *invoker) bool { return i.well() == nil })
	if err != nil {
		return nil, err
	}
	defer stop()
	ours := newInvoker(f.server.url, faultName, f.server.token)
	var rows []FunctionRow
	for _, c := range []struct {
		work  string
		check func(i *invoker, scratch string) error
	}{{"function error header", checkError}, {"Event", checkEvent}, {"exit of the handler", checkExit}} {
		row := FunctionRow{Work: c.work, Unit: unitVerdict}
		row.Handfast = row.judge("handfast", c.check(ours, f.scratch))
		if theirs != nil {
			verdict := row.judge("emulator", c.check(theirs, f.scratch))
			row.Emulator = &verdict
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// judge returns 1 for what was right, and notes what was not.
func (r *FunctionRow) judge(who string, wrong error) float64 {
	if wrong == nil {
		return 1
	}
	if r.Note != "" {
		r.Note += "; "
	}
	r.Note += who + ": " + wrong.Error()
	return 0
}

// faultHandler makes the directory of a function that is this program as the handler of faults.
func (f *functionBench) faultHandler() (string, error) {
	dir := filepath.Join(f.scratch, faultName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, artifact.Bootstrap), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' bench faults\n", f.Binary), 0o755)
}

// do invokes the handler of faults.
func (i *invoker) do(o faultOrder, headers ...string) (*http.Response, []byte, error) {
	payload, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	return i.call(string(payload), headers...)
}

func (i *invoker) well() error {
	resp, body, err := i.do(faultOrder{Do: "nothing"})
	if err == nil && (resp.StatusCode != http.StatusOK || string(body) != `"well"`) {
		err = answered(resp, body)
	}
	return err
}

// answered is the error of an answer that is not the right one.
func answered(resp *http.Response, body []byte) error {
	return fmt.Errorf("answers %d, error header %q, body %.100q", resp.StatusCode, resp.Header.Get("X-Amz-Function-Error"), body)
}

// wantFunctionError tells whether an invocation ended as one whose function failed: with 200, the header and the error's document.
func (i *invoker) wantFunctionError(do string, is func(kind, message string) bool) error {
	resp, body, err := i.do(faultOrder{Do: do})
	if err != nil {
		return err
	}
	var document struct {
		Type    string `json:"errorType"`
		Message string `json:"errorMessage"`
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Amz-Function-Error") != "Unhandled" || json.Unmarshal(body, &document) != nil || !is(document.Type, document.Message) {
		return answered(resp, body)
	}
	return nil
}

func checkError(i *invoker, _ string) error {
	return i.wantFunctionError("fail", func(_, message string) bool { return message == "as asked" })
}

func checkExit(i *invoker, _ string) error {
	err := i.wantFunctionError("exit", func(kind, message string) bool {
		return kind == "Runtime.ExitError" && strings.HasSuffix(message, fmt.Sprintf("exit status %d", faultExit))
	})
	if err != nil {
		return err
	}
	if err := i.well(); err != nil {
		return fmt.Errorf("the next invocation: %w", err)
	}
	return nil
}

// checkEvent wants an answer before the function has done its work, and that it does it.
func checkEvent(i *invoker, scratch string) error {
	dir, err := os.MkdirTemp(scratch, "event-")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "done")
	resp, body, err := i.do(faultOrder{"note", file}, "X-Amz-Invocation-Type", "Event")
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusAccepted || len(body) > 0 {
		return answered(resp, body)
	}
	if _, err := os.Stat(file); err == nil {
		return errors.New("the caller waited for the function")
	}
	for end := time.Now().Add(eventWait); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("accepted, and not done after %v", eventWait)
		}
	}
}
