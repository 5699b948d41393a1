package webhook

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// An endpoint can answer slowly, endlessly, compressed or with nonsense: a delivery ends in time, bounded, with words.
func TestHostileAnswers(t *testing.T) { eachTransport(t, testHostileAnswers) }

func testHostileAnswers(t *testing.T, w *Webhook) {
	stop := make(chan struct{})
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 32<<20))
	z.Close()
	handlers := map[string]http.HandlerFunc{
		"/slow-header": func(w http.ResponseWriter, r *http.Request) { <-stop },
		"/slow-body": func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("a"))
			w.(http.Flusher).Flush()
			<-stop
		},
		"/endless": func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 8<<10)); err != nil {
					return
				}
			}
		},
		"/gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		},
		"/headers": func(w http.ResponseWriter, r *http.Request) {
			for i := range 100 {
				w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("y", 4096))
			}
		},
		"/reset": func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"))
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		},
		"/nonsense": func(w http.ResponseWriter, r *http.Request) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Write([]byte("SSH-2.0-OpenSSH\x00\x01\r\n\r\n"))
			conn.Close()
		},
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) })
	t.Cleanup(func() { close(stop) })
	for path, want := range map[string]schema.Outcome{"/slow-header": schema.Failed, "/slow-body": schema.Failed, "/endless": schema.Delivered,
		"/gzip": schema.Delivered, "/headers": schema.Failed, "/reset": schema.Failed, "/nonsense": schema.Failed} {
		sub := subscription(s.URL + path)
		if strings.HasPrefix(path, "/slow") {
			sub.Target.Timeout = 50 * time.Millisecond
		}
		r := invoke(t, w, sub, delivery("{}"))
		if r.Outcome != want || len(r.Response) > schema.ResponseBytesMax || want == schema.Failed && r.Error == "" || len(r.Error) > 300 {
			t.Errorf("%s: %s %q, %d bytes", path, r.Outcome, r.Error, len(r.Response))
		}
		if path == "/gzip" && !bytes.HasPrefix(bomb.Bytes(), r.Response) {
			t.Error("the answer was inflated")
		}
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	w := newLocal(t)
	if r := invoke(t, w, subscription("http://"+l.Addr().String()), delivery("{}")); r.Outcome != schema.Failed || !strings.Contains(r.Error, "refused") {
		t.Errorf("%+v", r)
	}
	tlsServer := httptest.NewTLSServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer tlsServer.Close()
	if r := invoke(t, w, subscription(tlsServer.URL), delivery("{}")); r.Outcome != schema.Failed || !strings.Contains(r.Error, "unknown authority") {
		t.Errorf("%+v", r)
	}
}

// A connection that was closed while it was idle is not used, even where a second try is forbidden.
func TestAtMostOnce(t *testing.T) {
	var hits atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1) })
	w := newLocal(t)
	sub := subscription(s.URL)
	sub.Guarantee = schema.AtMostOnce
	for i := range 20 {
		if r := invoke(t, w, sub, delivery("{}")); r.Outcome != schema.Delivered || hits.Load() != int64(i+1) {
			t.Fatalf("delivery %d: %+v, %d requests", i, r, hits.Load())
		}
		s.CloseClientConnections() // returns when they are closed
	}
	if d := w.metrics.dials.Load(); d < 2 {
		t.Errorf("%d connections", d)
	}
}

// A kept connection that the endpoint closed meanwhile is no failed attempt.
func TestIdleConnectionClosed(t *testing.T) { eachTransport(t, testIdleConnectionClosed) }

func testIdleConnectionClosed(t *testing.T, w *Webhook) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				// One answer, then the next request is read and dropped without a word.
				defer conn.Close()
				br := bufio.NewReader(conn)
				req, err := http.ReadRequest(br)
				if err != nil {
					return
				}
				io.Copy(io.Discard, req.Body)
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				br.ReadByte()
			}()
		}
	}()
	for i := range 20 {
		if r := invoke(t, w, subscription("http://"+l.Addr().String()), delivery(strings.Repeat("x", 1000))); r.Outcome != schema.Delivered {
			t.Fatalf("delivery %d: %+v", i, r)
		}
	}
}

func newTLS(t testing.TB, h http.HandlerFunc) (*httptest.Server, *tls.Config) {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, &tls.Config{RootCAs: roots}
}

// HTTP/2 is spoken, and a server that says goodbye on a connection is asked again on a new one.
func TestHTTP2GoAway(t *testing.T) {
	var n atomic.Int64
	s, conf := newTLS(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		}
		if n.Add(1)%5 == 0 {
			w.Header().Set("Connection", "close") // the server's HTTP/2 turns it into GOAWAY
		}
	})
	w := newTest(t, Options{Targets: Targets{AllowPrivate: true}, TLS: conf})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if r := invoke(t, w, subscription(s.URL), delivery(strings.Repeat("x", 4000))); r.Outcome != schema.Delivered {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
	if d := w.metrics.dials.Load(); d < 2 {
		t.Errorf("%d connections: no GOAWAY was met", d)
	}
}

// Many deliveries at a time share few connections.
func TestConnectionsAreReused(t *testing.T) { eachTransport(t, testConnectionsAreReused) }

func testConnectionsAreReused(t *testing.T, w *Webhook) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 30<<10)) })
	const workers, each = 50, 20
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				if r := invoke(t, w, subscription(s.URL), delivery("{}")); r.Outcome != schema.Delivered {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
	if n := w.metrics.dials.Load() + w.metrics.reused.Load(); n < workers*each {
		t.Errorf("%d connections counted for %d deliveries", n, workers*each)
	}
	if d := w.metrics.dials.Load(); d > workers+idleConnsPerHost {
		t.Errorf("%d connections for %d deliveries", d, workers*each)
	}
}
