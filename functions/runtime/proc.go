package runtime

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
)

// instanceMark begins the variable by which the processes of an instance are known, wherever they have gone.
const instanceMark = "AWS_LAMBDA_LOG_STREAM_NAME="

// starter starts processes from one thread that lives as long as the host does: the kernel ties Pdeathsig to the thread that forked.
type starter struct {
	commands chan startRequest
	ended    chan struct{}
}

type startRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func newStarter() *starter {
	s := &starter{make(chan startRequest), make(chan struct{})}
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(s.ended)
		for r := range s.commands {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd) error {
	r := startRequest{cmd, make(chan error, 1)}
	s.commands <- r
	return <-r.done
}

// close ends the thread, and with it what it started and nobody reaped.
func (s *starter) close() {
	close(s.commands)
	<-s.ended
}

// processes calls see with the id and directory in /proc of every process.
func processes(see func(pid int, dir string)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			see(pid, "/proc/"+e.Name())
		}
	}
}

// Fields of /proc/PID/stat, counted from the state.
const (
	statGroup = 2
	statStart = 19 // in ticks since the machine's start
	statPages = 21 // resident
	statCount = 22
)

// readStat returns the fields of a process's state. The name before them, in brackets, can hold anything.
func readStat(dir string) ([]string, error) {
	raw, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < statCount {
		return nil, fmt.Errorf("%s/stat has %d fields", dir, len(fields))
	}
	return fields, nil
}

// residentBytes returns the memory of each process group.
func residentBytes() map[int]int64 {
	bytesOf, page := map[int]int64{}, int64(os.Getpagesize())
	processes(func(_ int, dir string) {
		stat, err := readStat(dir)
		if err != nil {
			return
		}
		group, _ := strconv.Atoi(stat[statGroup])
		pages, _ := strconv.ParseInt(stat[statPages], 10, 64)
		bytesOf[group] += pages * page
	})
	return bytesOf
}
