package webhook

import (
	"net"
	"strconv"
	"testing"
	"time"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestIdleConns(t *testing.T) {
	p := newIdleConns()
	defer p.close()
	good, _ := pair(t)
	p.put("h", good)
	if p.take("other", true) != nil || p.take("h", true) != good || p.take("h", true) != nil {
		t.Error("not the connection that was kept")
	}
	closed, far := pair(t)
	far.Close()
	p.put("h", closed)
	if p.take("h", true) != nil {
		t.Error("a closed connection was handed out")
	}
	noisy, far := pair(t)
	far.Write([]byte("HTTP/1.1 408 Request Timeout\r\n\r\n"))
	p.put("h", noisy)
	if p.take("h", true) != nil {
		t.Error("a connection with an answer to nothing was handed out")
	}
}

func TestIdleConnsAreBounded(t *testing.T) {
	p := newIdleConns()
	var all []net.Conn
	for range idleConnsPerHost + 10 {
		c, _ := net.Pipe()
		all = append(all, c)
		p.put("h", c)
	}
	if p.total != idleConnsPerHost {
		t.Errorf("%d for one host", p.total)
	}
	if _, err := all[len(all)-1].Write(nil); err == nil {
		t.Error("one too many stays open")
	}
	for i := range idleConnsMax {
		c, _ := net.Pipe()
		p.put(strconv.Itoa(i), c)
	}
	if p.total != idleConnsMax {
		t.Errorf("%d together", p.total)
	}
	p.drop(time.Now().Add(time.Second))
	if p.total != 0 || len(p.hosts) != 0 {
		t.Errorf("%d of %d hosts stay", p.total, len(p.hosts))
	}
	p.close()
	c, _ := net.Pipe()
	p.put("h", c)
	if p.total != 0 {
		t.Error("kept after close")
	}
	p.close() // twice is harmless
}
