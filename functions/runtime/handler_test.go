package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"go.uber.org/goleak"
)

// modeVariable makes the test binary a handler.
const modeVariable = "TEST_HANDLER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		handle(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

func handle(mode string) {
	switch mode {
	case "go":
		lambda.Start(goHandler)
	case "exit at start":
		fmt.Println("giving up")
		os.Exit(3)
	case "init error":
		post("init/error", `{"errorType":"My.Config","errorMessage":"no database"}`)
		os.Exit(1)
	case "never asks":
		select {}
	case "late":
		answerLate()
	case "raw":
		for {
			id, payload := next()
			rawHandler(id, payload)
		}
	}
}

type order struct {
	Do    string `json:"do"`
	Ms    int    `json:"ms"`
	Bytes int    `json:"bytes"`
	File  string `json:"file"`
}

// working counts the invocations that goHandler is at.
var working atomic.Int32

// goHandler is a handler on AWS's own library.
func goHandler(ctx context.Context, o order) (any, error) {
	switch o.Do {
	case "fail":
		return nil, errors.New("as asked")
	case "panic":
		panic("as asked")
	case "exit":
		os.Exit(42)
	case "exit 0":
		os.Exit(0)
	case "sleep":
		time.Sleep(time.Duration(o.Ms) * time.Millisecond)
	case "log":
		fmt.Println(strings.Repeat("x", o.Bytes))
		fmt.Fprintln(os.Stderr, "the last line")
	case "log for ever":
		for {
			fmt.Println(strings.Repeat("y", 1000))
		}
	case "eat":
		var held [][]byte
		for {
			held = append(held, bytes.Repeat([]byte{1}, 8<<20))
			time.Sleep(5 * time.Millisecond)
		}
	case "answer much":
		return strings.Repeat("z", o.Bytes), nil
	case "fork":
		return fork(nil, false), nil
	case "fork away":
		return fork(nil, true), nil
	case "fork bare":
		return fork([]string{}, true), nil
	case "fork many":
		n := 0
		for n < o.Bytes && fork(nil, false) > 0 {
			n++
		}
		return n, nil
	case "environment":
		return os.Environ(), nil
	case "descriptors":
		list, err := os.ReadDir("/proc/self/fd")
		names := []string{}
		for _, e := range list {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			names = append(names, to)
		}
		return names, err
	case "directory":
		wd, err := os.Getwd()
		return []string{wd, os.Getenv("TMPDIR")}, err
	case "alone":
		defer working.Add(-1)
		others := working.Add(1) - 1
		time.Sleep(time.Duration(o.Ms) * time.Millisecond)
		return others, nil
	}
	return map[string]any{"echo": o.Do, "pid": os.Getpid()}, nil
}

// fork leaves a child behind that outlives the handler, and returns its pid; nil = with the handler's environment. away takes it out of the
// process group.
func fork(env []string, away bool) int {
	cmd := exec.Command("/bin/sleep", "300")
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setsid: away}
	if cmd.Start() != nil {
		return 0
	}
	return cmd.Process.Pid
}

func api(path string) string {
	return "http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2018-06-01/runtime/" + path
}

func post(path, body string) (status int, answer string) {
	resp, err := http.Post(api(path), "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

func next() (id string, payload []byte) {
	resp, err := http.Get(api("invocation/next"))
	if err != nil {
		os.Exit(9)
	}
	defer resp.Body.Close()
	payload, _ = io.ReadAll(resp.Body)
	return resp.Header.Get("Lambda-Runtime-Aws-Request-Id"), payload
}

// half breaks off in the middle of an answer.
func half(id string) {
	conn, err := net.Dial("tcp", os.Getenv("AWS_LAMBDA_RUNTIME_API"))
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /2018-06-01/runtime/invocation/%s/response HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n\"half", id)
}

// late leaves a child that the host cannot know, to answer in its parent's stead when that was killed.
func late(id, file string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{modeVariable + "=late", "AWS_LAMBDA_RUNTIME_API=" + os.Getenv("AWS_LAMBDA_RUNTIME_API"), "ID=" + id, "NOTES=" + file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		note(file, err)
	}
}

// answerLate is that child.
func answerLate() {
	for parent := os.Getppid(); os.Getppid() == parent; time.Sleep(10 * time.Millisecond) {
	}
	for { // the host takes calls until it has seen its instance's end
		status, words := post("invocation/"+os.Getenv("ID")+"/response", `"late"`)
		if status == 0 {
			note(os.Getenv("NOTES"), "refused", words)
			return
		}
		if status == http.StatusAccepted {
			note(os.Getenv("NOTES"), "accepted")
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// formerID is that of the invocation before.
var formerID string

// rawHandler speaks the Runtime API by itself, and badly.
func rawHandler(id string, payload []byte) {
	defer func() { formerID = id }()
	var o order
	json.Unmarshal(payload, &o)
	switch o.Do {
	case "answer twice":
		first, _ := post("invocation/"+id+"/response", `"first"`)
		second, words := post("invocation/"+id+"/response", `"second"`)
		third, _ := post("invocation/"+id+"/error", `{}`)
		note(o.File, first, second, third, words)
	case "unknown id":
		status, words := post("invocation/other/response", `"x"`)
		note(o.File, status, words)
		post("invocation/"+id+"/response", `"right"`)
	case "ask twice":
		resp, err := http.Get(api("invocation/next"))
		if err == nil {
			resp.Body.Close()
			note(o.File, resp.StatusCode)
		}
		post("invocation/"+id+"/response", `"still here"`)
	case "answer much":
		status, words := post("invocation/"+id+"/response", strings.Repeat("z", o.Bytes))
		report, _ := post("invocation/"+id+"/error", `{"errorType":"Mine"}`)
		note(o.File, status, report, words)
	case "bad paths":
		a, _ := post("invocation/"+id+"/nonsense", "")
		b, _ := post("nonsense", "")
		note(o.File, a, b)
		post("invocation/"+id+"/error", "no json")
	case "half an answer":
		half(id)
		post("invocation/"+id+"/response", `"whole"`)
	case "report much":
		post("invocation/"+id+"/error", `{"errorType":"`+strings.Repeat("z", o.Bytes)+`"}`)
	case "former id":
		status, words := post("invocation/"+formerID+"/response", `"late"`)
		note(o.File, status, words)
		post("invocation/"+id+"/response", `"mine"`)
	case "answer late":
		late(id, o.File)
		time.Sleep(time.Minute)
	case "answer and stay":
		post("invocation/"+id+"/response", `"done"`)
		select {}
	case "answer and exit":
		post("invocation/"+id+"/response", `"done"`)
		os.Exit(1)
	}
}

// note writes what a handler saw where its test reads it.
func note(file string, values ...any) {
	half := file + ".half"
	os.WriteFile(half, []byte(fmt.Sprint(values...)), 0o600)
	os.Rename(half, filepath.Clean(file))
}
