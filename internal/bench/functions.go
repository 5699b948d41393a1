package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/functions/artifact"
)

// FunctionOptions say how to measure functions.
type FunctionOptions struct {
	Binary   string // the handfast binary that is run as server
	Handler  string // directory with the bootstrap of functions/handlers/web
	Emulator string // the AWS Runtime Interface Emulator; "" = it is not measured beside
	Measure  time.Duration
	Out      io.Writer
	JSON     string // file for the rows, "" = none
}

// FunctionRow is one line of the result.
type FunctionRow struct {
	Work     string   `json:"work"`
	Unit     string   `json:"unit"`
	Handfast float64  `json:"handfast"`
	Emulator *float64 `json:"emulator,omitempty"` // nil = not measured
	Note     string   `json:"note,omitempty"`
}

const (
	functionName    = "web"
	functionPayload = `{"rawPath":"/digest","body":"hello","requestContext":{"http":{"method":"POST"}}}`
	functionAnswer  = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	coldStarts      = 7
	warmInstances   = 16
)

// invoker calls a function over and over.
type invoker struct {
	url, token string
	http       *http.Client
}

func newInvoker(server, name, token string) *invoker {
	t := &http.Transport{MaxIdleConnsPerHost: 256}
	return &invoker{server + "/2015-03-31/functions/" + name + "/invocations", token, &http.Client{Transport: t, Timeout: 20 * time.Second}}
}

func (i *invoker) call(payload string, headers ...string) (*http.Response, []byte, error) {
	r, err := http.NewRequest(http.MethodPost, i.url, strings.NewReader(payload))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+i.token)
	for n := 0; n+1 < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	resp, err := i.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// once tells whether one invocation was answered right.
func (i *invoker) once() bool {
	resp, body, err := i.call(functionPayload)
	return err == nil && resp.StatusCode == http.StatusOK && bytes.Contains(body, []byte(functionAnswer))
}

// load invokes for a while, so many at the same time, and returns right answers a second, how long each took, and how many were wrong.
func (i *invoker) load(atOnce int, d time.Duration) (rate float64, took []time.Duration, wrong int64) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var bad atomic.Int64
	begun := time.Now()
	for range atOnce {
		wg.Go(func() {
			var own []time.Duration
			for time.Since(begun) < d {
				at := time.Now()
				if i.once() {
					own = append(own, time.Since(at))
				} else {
					bad.Add(1)
				}
			}
			mu.Lock()
			took = append(took, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(took)
	return float64(len(took)) / time.Since(begun).Seconds(), took, bad.Load()
}

func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Microseconds())
}

// RunFunctions measures the hosting of functions, prints a table and writes the rows.
func RunFunctions(o FunctionOptions) error {
	var err error
	if o.Handler, err = filepath.Abs(o.Handler); err != nil {
		return err
	}
	if o.Emulator != "" { // it runs in another directory
		if o.Emulator, err = filepath.Abs(o.Emulator); err != nil {
			return err
		}
	}
	scratch, err := os.MkdirTemp("", "handfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	dir := filepath.Join(scratch, "node")
	node, err := start(dir, o.Binary, "serve", "--dir", dir, "--listen", "127.0.0.1:0", "--log-level", "warn")
	if err != nil {
		return err
	}
	defer node.stop()
	f := &functionBench{FunctionOptions: o, server: node, scratch: scratch}
	rows, err := f.rows()
	if err != nil {
		return err
	}
	if err := writeRows(o.JSON, rows); err != nil {
		return err
	}
	return functionTable(o.Out, rows)
}

type functionBench struct {
	FunctionOptions
	server  *server
	scratch string
}

func (f *functionBench) rows() ([]FunctionRow, error) {
	cl, err := client.New(client.Options{Server: f.server.url, Token: f.server.token})
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := deploy(cl, functionName, f.Handler); err != nil {
		return nil, err
	}
	ours := newInvoker(f.server.url, functionName, f.server.token)
	rows := []FunctionRow{{Work: "handler in process, p50", Unit: "µs", Handfast: inProcess()}}
	cold, err := f.coldStart(cl, ours)
	if err != nil {
		return nil, err
	}
	rows = append(rows, FunctionRow{Work: "cold start, median", Unit: "ms", Handfast: cold})
	theirs, stop, err := f.emulator(f.Handler, (*invoker).once)
	if err != nil {
		return nil, err
	}
	defer stop()
	ours.load(warmInstances, time.Second)
	rows = append(rows, f.compare(ours, theirs)...)
	verdicts, err := f.verdicts(cl)
	if err != nil {
		return nil, err
	}
	rows = append(rows, verdicts...)
	if n, bytes := instanceMemory(); n > 0 {
		rows = append(rows, FunctionRow{Work: "memory of an idle instance", Unit: "MiB", Handfast: float64(bytes) / float64(n) / (1 << 20), Note: fmt.Sprintf("%d instances", n)})
	}
	return rows, nil
}

func deploy(cl *client.Client, name, dir string) error {
	zip, err := artifact.Pack(dir)
	if err != nil {
		return err
	}
	limit, memory, timeout := warmInstances, 512, client.Seconds(20*time.Second)
	_, err = cl.DeployFunction(context.Background(), name, zip, client.FunctionSettings{MaxInstances: &limit, Memory: &memory, Timeout: &timeout})
	return err
}

// inProcess is what calling a like handler costs without any process, by AWS's own library.
func inProcess() float64 {
	h := lambda.NewHandler(func(_ context.Context, r events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
		return events.LambdaFunctionURLResponse{StatusCode: 200, Body: r.Body}, nil
	})
	var took []time.Duration
	for range 5000 {
		at := time.Now()
		if _, err := h.Invoke(context.Background(), []byte(functionPayload)); err != nil {
			return 0
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1000
}

// coldStart makes a new version each time, whose first invocation has to start an instance.
func (f *functionBench) coldStart(cl *client.Client, i *invoker) (float64, error) {
	var took []float64
	for n := range coldStarts {
		env := map[string]string{"N": fmt.Sprint(n)}
		if _, err := cl.UpdateFunction(context.Background(), functionName, client.FunctionSettings{Env: &env}); err != nil {
			return 0, err
		}
		at := time.Now()
		if !i.once() {
			return 0, fmt.Errorf("a cold invocation was not answered right")
		}
		took = append(took, float64(time.Since(at).Microseconds())/1000)
	}
	return median(took), nil
}

func (f *functionBench) compare(ours, theirs *invoker) (rows []FunctionRow) {
	for _, atOnce := range []int{1, 16, 64} {
		rate, took, wrong := ours.load(atOnce, f.Measure)
		row := FunctionRow{Work: fmt.Sprintf("invocations/s, %d at once", atOnce), Unit: "1/s", Handfast: rate, Note: fmt.Sprintf("wrong: %d", wrong)}
		var theirTook []time.Duration
		if theirs != nil {
			var theirRate float64
			var theirWrong int64
			theirRate, theirTook, theirWrong = theirs.load(atOnce, f.Measure)
			row.Emulator = &theirRate
			row.Note += fmt.Sprintf(", emulator %d", theirWrong)
		}
		rows = append(rows, row)
		if atOnce == 1 {
			for _, q := range []float64{0.5, 0.99} {
				row := FunctionRow{Work: fmt.Sprintf("warm invocation, p%.0f", 100*q), Unit: "µs", Handfast: quantile(took, q)}
				if theirs != nil {
					their := quantile(theirTook, q)
					row.Emulator = &their
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// emulator starts the AWS Runtime Interface Emulator with the handler of a directory, where there is an emulator.
func (f *functionBench) emulator(handler string, ready func(*invoker) bool) (*invoker, func(), error) {
	if f.Emulator == "" {
		return nil, func() {}, nil
	}
	address, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	api, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(f.Emulator, "--runtime-interface-emulator-address", address, "--runtime-api-address", api, "--log-level", "error", filepath.Join(handler, artifact.Bootstrap))
	cmd.Dir = f.scratch
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() }
	i := newInvoker("http://"+address, "function", "")
	for end := time.Now().Add(20 * time.Second); !ready(i); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			stop()
			return nil, nil, fmt.Errorf("the emulator did not answer")
		}
	}
	return i, stop, nil
}

// instanceMemory returns how many instances there are and their resident bytes.
func instanceMemory() (n int, total int64) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(env, []byte("AWS_LAMBDA_FUNCTION_NAME="+functionName+"\x00")) || !bytes.Contains(env, []byte("AWS_LAMBDA_LOG_STREAM_NAME=")) {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(file), "statm"))
		var size, resident int64
		if _, scanned := fmt.Sscan(string(raw), &size, &resident); err == nil && scanned == nil {
			n++
			total += resident * int64(os.Getpagesize())
		}
	}
	return n, total
}

func functionTable(out io.Writer, rows []FunctionRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "work\thandfast\temulator\tunit\tnote")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Work, cell(r.Unit, &r.Handfast), cell(r.Unit, r.Emulator), r.Unit, r.Note)
	}
	return w.Flush()
}

func cell(unit string, value *float64) string {
	switch {
	case value == nil:
		return "-"
	case *value == 0 && unit != unitVerdict: // measured, and nothing came of it
		return "0"
	case unit != unitVerdict:
		return number(*value)
	case *value == 1:
		return "correct"
	}
	return "incorrect"
}
