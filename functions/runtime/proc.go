package runtime

import (
	"bytes"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
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

// sweep kills the processes that have a variable in their environment.
func sweep(variable string) {
	processes(func(pid int, dir string) {
		env, err := os.ReadFile(dir + "/environ")
		if err == nil && (bytes.HasPrefix(env, []byte(variable+"\x00")) || bytes.Contains(env, []byte("\x00"+variable+"\x00"))) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

// residentBytes returns the memory of each process group.
func residentBytes() map[int]int64 {
	bytesOf, page := map[int]int64{}, int64(os.Getpagesize())
	processes(func(_ int, dir string) {
		raw, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return
		}
		// The name in brackets can hold anything; fields are counted from behind it: state, ppid, pgrp … rss.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) < 22 {
			return
		}
		group, _ := strconv.Atoi(fields[2])
		pages, _ := strconv.ParseInt(fields[21], 10, 64)
		bytesOf[group] += pages * page
	})
	return bytesOf
}
