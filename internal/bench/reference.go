package bench

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// referenceBytes is the preallocated size of the reference's log; it is overwritten from the start when full.
const referenceBytes = 1 << 30

// reference is the least that a durable queue must do, on the same HTTP library: length, checksum and body to a preallocated log, one
// write and one fdatasync shared by all who wait, then the answer. What a node reaches of its rate is the figure to look at.
type reference struct {
	file *os.File

	mu      sync.Mutex
	buf     []byte
	waiting []chan error
	busy    bool
	at      int64
}

// ServeReference answers POST /publish with the reference until the listener closes.
func ServeReference(l net.Listener, dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "reference.log"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < referenceBytes; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	r := &reference{file: f}
	server := fasthttp.Server{Handler: r.handle, MaxRequestBodySize: 8 << 20}
	return server.Serve(l)
}

func (r *reference) handle(ctx *fasthttp.RequestCtx) {
	if err := r.append(ctx.PostBody()); err != nil {
		ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBodyString(`{"status":"ok","message_id":32985349881857}`)
}

// append waits until body is on disk. The first of those who wait writes for all that came meanwhile.
func (r *reference) append(body []byte) error {
	done := make(chan error, 1)
	r.mu.Lock()
	r.buf = binary.LittleEndian.AppendUint32(r.buf, uint32(len(body)))
	r.buf = binary.LittleEndian.AppendUint32(r.buf, crc32.Checksum(body, castagnoli))
	r.buf = append(r.buf, body...)
	r.waiting = append(r.waiting, done)
	lead := !r.busy
	r.busy = true
	r.mu.Unlock()
	if lead {
		go r.write()
	}
	return <-done
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *reference) write() {
	var spare []byte
	for {
		r.mu.Lock()
		buf, waiting := r.buf, r.waiting
		if len(waiting) == 0 {
			r.busy = false
			r.mu.Unlock()
			return
		}
		r.buf, r.waiting = spare[:0], nil
		r.mu.Unlock()
		if r.at+int64(len(buf)) > referenceBytes {
			r.at = 0
		}
		_, err := r.file.WriteAt(buf, r.at)
		r.at += int64(len(buf))
		if err == nil {
			err = unix.Fdatasync(int(r.file.Fd()))
		}
		for _, w := range waiting {
			w <- err
		}
		spare = buf
	}
}
