package runtime

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/handfast-mq/handfast/schema"
)

// logBytesMax bounds a function's log file; one former file is kept beside it.
const logBytesMax = 4 << 20

// logFile is the log of one function on this node: what its instances wrote, in the order in which it came. Places in it are counted in bytes
// from its beginning, whatever of it is still there.
type logFile struct {
	mu      sync.Mutex
	path    string
	file    *os.File
	former  int64         // place where the former file begins
	begin   int64         // place where the file begins
	end     int64         // place where the next byte goes
	changed chan struct{} // closed with the next write
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l := &logFile{path: path, changed: make(chan struct{})}
	if info, err := os.Stat(path + ".1"); err == nil {
		l.begin = info.Size()
	}
	return l, l.open()
}

func (l *logFile) open() (err error) {
	if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err == nil {
		l.end = l.begin + info.Size()
	}
	return err
}

// Write appends. A disk that is full costs log lines, no invocation.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return 0, os.ErrClosed
	}
	if l.end-l.begin+int64(len(b)) > logBytesMax {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(b)
	l.end += int64(n)
	close(l.changed)
	l.changed = make(chan struct{})
	return n, err
}

func (l *logFile) rotate() error {
	err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1"))
	l.former, l.begin = l.begin, l.end
	return errors.Join(err, l.open())
}

// read returns up to limit bytes from a place on, and the place after them. What is no longer there is passed over. changed is closed when
// there is more.
func (l *logFile) read(after int64, limit int) (text []byte, next int64, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < l.former || after > l.end {
		after = l.former
	}
	file, begin := l.file, l.begin
	if after < l.begin {
		if file, err = os.Open(l.path + ".1"); err != nil {
			after, file = l.begin, l.file
		} else {
			defer file.Close()
			begin = l.former
		}
	}
	if file == nil {
		return nil, after, l.changed, os.ErrClosed
	}
	text = make([]byte, limit)
	n, err := file.ReadAt(text, after-begin)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text[:n], after + int64(n), l.changed, err
}

func (l *logFile) close(remove bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
	if remove {
		os.Remove(l.path)
		os.Remove(l.path + ".1")
	}
}

// tailBuffer keeps the last bytes that were written to it.
type tailBuffer struct{ bytes []byte }

func (t *tailBuffer) add(b []byte) {
	t.bytes = append(t.bytes, b[max(0, len(b)-schema.LogTailBytes):]...)
	if over := len(t.bytes) - schema.LogTailBytes; over > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[over:]...)
	}
}
