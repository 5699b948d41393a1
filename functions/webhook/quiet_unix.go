//go:build unix

package webhook

import (
	"net"
	"syscall"
)

// quiet tells whether an idle connection is still open and nothing came in on it unasked.
func quiet(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) // never blocks: the descriptor is non-blocking
		alive = err == syscall.EAGAIN
		return true
	})
	return err == nil && alive
}
