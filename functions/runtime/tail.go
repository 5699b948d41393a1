package runtime

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// readAtOnce is what is read of an instance's output in one go; drainMax bounds what is read of it when an invocation ends.
const (
	readAtOnce = 16 << 10
	drainMax   = 16
)

// tail takes what one instance writes: to the function's log, and the end of it for the answer of the invocation.
type tail struct {
	log            *logFile
	reader, writer *os.File
	ended          chan struct{}

	mu     sync.Mutex
	buffer [readAtOnce]byte
	last   tailBuffer
}

func newTail(l *logFile) (*tail, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &tail{log: l, reader: r, writer: w, ended: make(chan struct{})}, nil
}

// started is called when the process has its end of the pipe, or never will.
func (t *tail) started() {
	t.writer.Close()
	go t.pump()
}

func (t *tail) pump() {
	defer close(t.ended)
	raw, err := t.reader.SyscallConn()
	if err != nil {
		return
	}
	for over := false; !over && err == nil; {
		err = raw.Read(func(fd uintptr) bool {
			got, end := t.readSome(fd)
			over = end
			return got || end
		})
	}
}

// readSome reads what is there, in one step with keeping it, so that who holds the lock knows that nothing is in between.
func (t *tail) readSome(fd uintptr) (got, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := syscall.Read(int(fd), t.buffer[:])
	switch {
	case err == syscall.EAGAIN, err == syscall.EINTR:
		return false, false
	case err != nil || n <= 0:
		return false, true
	}
	t.last.add(t.buffer[:n])
	t.log.Write(t.buffer[:n])
	return true, false
}

// begin marks the start of an invocation.
func (t *tail) begin(requestID string, version int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.bytes = t.last.bytes[:0]
	t.say("START RequestId: %s Version: %d\n", requestID, version)
}

// end marks the end of an invocation, after what the process has written up to now, and returns the last of it.
func (t *tail) end(requestID string, took time.Duration) []byte {
	if raw, err := t.reader.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			for range drainMax {
				if got, _ := t.readSome(fd); !got {
					return
				}
			}
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say("END RequestId: %s\nREPORT RequestId: %s Duration: %.2f ms\n", requestID, requestID, float64(took.Microseconds())/1000)
	return bytes.Clone(t.last.bytes)
}

// say writes a line of the node's own. t.mu is held.
func (t *tail) say(format string, args ...any) {
	line := fmt.Appendf(nil, format, args...)
	t.last.add(line)
	t.log.Write(line)
}

// close ends the reading, when nobody writes any more or whoever still does.
func (t *tail) close() {
	t.writer.Close() // closed already, unless the process never started
	soon := time.NewTimer(100 * time.Millisecond)
	defer soon.Stop()
	select {
	case <-t.ended: // all that was written is taken
	case <-soon.C:
	}
	t.reader.Close()
}
