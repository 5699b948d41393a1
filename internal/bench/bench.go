// Package bench measures a node beside the reference: the least that a durable queue must do on the same machine, in the same minutes;
// and a cluster beside its database.
package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Options say how to measure.
type Options struct {
	Binary  string        // the handfast binary that is run as server and as reference
	Rounds  int           // of which the median counts
	Warm    time.Duration // before each measurement
	Measure time.Duration
	Only    string // measure rows whose name contains it; "" = all
	Out     io.Writer
	JSON    string // file for the rows, "" = none
}

// Row is one line of the result.
type Row struct {
	Work      string  `json:"work"`
	Unit      string  `json:"unit"`
	Handfast  float64 `json:"handfast"`
	Reference float64 `json:"reference,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"` // handfast / reference
	Goal      string  `json:"goal"`
	CPU       float64 `json:"cpu_s_per_million,omitempty"`
}

// server is a child process under load.
type server struct {
	*target
	cmd *exec.Cmd
	dir string
}

// start runs a command that prints its address as the last word of its first line.
func start(dir, binary string, args ...string) (*server, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, fmt.Errorf("%s %v did not start: %w", binary, args, err)
	}
	go io.Copy(io.Discard, lines)
	words := strings.Fields(line)
	token, _ := os.ReadFile(filepath.Join(dir, "admin.token"))
	return &server{newTarget(words[len(words)-1], strings.TrimSpace(string(token))), cmd, dir}, nil
}

func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	s.cmd.Wait()
}

// cpu returns the seconds of processor time that the process has used.
func (s *server) cpu() float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// memory returns the resident MiB of the process.
func (s *server) memory() float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if fields := strings.Fields(string(raw)); len(fields) > 1 {
		pages, _ := strconv.ParseFloat(fields[1], 64)
		return pages * float64(os.Getpagesize()) / (1 << 20)
	}
	return 0
}

// work is one thing to measure.
type work struct {
	name, unit, goal string
	run              func(b *bench, s *server) (value, cpuPerMillion float64, err error)
	reference        bool // the reference can do it too
}

type bench struct {
	Options
	node, reference *server
	scratch         string
	crowd           []int64 // topics, see gather
}

// Run measures everything, prints a table and writes the rows.
func Run(o Options) error {
	chosen := slices.DeleteFunc(works(), func(w work) bool { return !strings.Contains(w.name, o.Only) })
	if len(chosen) == 0 {
		return schema.Errorf(schema.Invalid, "no measurement has %q in its name", o.Only)
	}
	scratch, err := os.MkdirTemp("", "handfast-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	b := &bench{Options: o, scratch: scratch}
	if err := b.startBoth(); err != nil {
		return err
	}
	defer b.node.stop()
	defer b.reference.stop()
	var rows []Row
	for _, w := range chosen {
		row, err := b.row(w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		fmt.Fprintf(o.Out, "%s: %.0f %s\n", row.Work, row.Handfast, row.Unit)
		rows = append(rows, row)
	}
	if err := writeRows(o.JSON, rows); err != nil {
		return err
	}
	return table(o.Out, rows)
}

func (b *bench) startBoth() (err error) {
	dir := filepath.Join(b.scratch, "node")
	if b.node, err = start(dir, b.Binary, "serve", "--dir", dir, "--listen", "127.0.0.1:0", "--allow-private-targets", "--log-level", "warn"); err != nil {
		return err
	}
	b.reference, err = start(b.scratch, b.Binary, "bench", "reference", "--dir", b.scratch)
	if err != nil {
		b.node.stop()
	}
	return err
}

// row measures one work in several rounds, the reference beside it in each, and takes the medians.
func (b *bench) row(w work) (Row, error) {
	row := Row{Work: w.name, Unit: w.unit, Goal: w.goal}
	var ours, theirs, cpus, ratios []float64
	for range b.Rounds {
		v, cpu, err := w.run(b, b.node)
		if err != nil {
			return row, err
		}
		ours, cpus = append(ours, v), append(cpus, cpu)
		if !w.reference {
			continue
		}
		r, _, err := w.run(b, b.reference)
		if err != nil {
			return row, err
		}
		theirs, ratios = append(theirs, r), append(ratios, v/r)
	}
	row.Handfast, row.Reference, row.Ratio, row.CPU = median(ours), median(theirs), median(ratios), median(cpus)
	return row, nil
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func writeRows[R any](path string, rows []R) error {
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

func table(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nwork\thandfast\treference\tratio\tCPU s/million\tgoal\tunit")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Work, number(r.Handfast), number(r.Reference), number(r.Ratio), number(r.CPU), r.Goal, r.Unit)
	}
	return w.Flush()
}

func number(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v < 100:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Reference serves the reference on a free port and prints its address.
func Reference(dir string, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the reference serves at http://%s\n", l.Addr())
	return ServeReference(l, dir)
}
