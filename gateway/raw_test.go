package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/internal/node"
)

// wire is one connection on which a test writes what it likes.
type wire struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (s *server) dial(t *testing.T) *wire {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute)) // a hang ends the test
	return &wire{t, c, bufio.NewReader(c)}
}

// send writes in the background: a server that answers early does not read on.
func (w *wire) send(parts ...string) *wire {
	go func() {
		for _, p := range parts {
			if _, err := io.WriteString(w.Conn, p); err != nil {
				return
			}
		}
	}()
	return w
}

func (w *wire) answer(s *server) *answer {
	w.t.Helper()
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		w.t.Fatalf("half an answer: %v", err)
	}
	d := json.NewDecoder(strings.NewReader(string(a.body)))
	d.UseNumber()
	d.Decode(&a.json)
	return a
}

func (w *wire) ended() {
	w.t.Helper()
	if n, err := w.r.Read(make([]byte, 1)); err != io.EOF {
		w.t.Errorf("the connection is not ended: %d, %v", n, err)
	}
}

// head is a request's head with more header lines.
func (s *server) head(line string, more ...string) string {
	return line + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.admin + "\r\nContent-Type: application/json\r\n" + strings.Join(more, "\r\n") + "\r\n\r\n"
}

const mib = 1 << 20

func TestBodyOverTheLimitIsAnswered(t *testing.T) {
	s := start(t)
	before := s.node.Revision()
	chunk := fmt.Sprintf("%x\r\n%s\r\n", mib, strings.Repeat(" ", mib))
	for _, size := range []int{9, 40} {
		body := strings.Repeat(" ", size*mib)
		w := s.dial(t).send(s.head("POST /create_topic", fmt.Sprintf("Content-Length: %d", len(body))), body)
		s.refused(w.answer(s), 413, "with Content-Length")
		w.ended()
		w = s.dial(t).send(s.head("POST /create_topic", "Transfer-Encoding: chunked"), strings.Repeat(chunk, size), "0\r\n\r\n")
		s.refused(w.answer(s), 413, "chunked")
		w.ended()
		// As real clients send it.
		s.refused(s.send(s.admin, "POST", "/create_topic", body), 413, "net/http")
	}
	w := s.dial(t).send(s.head("POST /create_topic", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", 9*mib)))
	s.refused(w.answer(s), 413, "Expect: 100-continue")
	w.ended()
	if s.node.Revision() != before {
		t.Error("something was changed")
	}
}

func TestExpectedBodyIsTaken(t *testing.T) {
	s := start(t)
	body := `{"topic_name":"asked"}`
	w := s.dial(t).send(s.head("POST /create_topic", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", len(body))))
	if a, err := http.ReadResponse(w.r, nil); err != nil || a.StatusCode != 100 {
		t.Fatalf("%v %v", a, err)
	}
	w.send(body)
	if a := w.answer(s); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestHeadersOverTheLimitAreAnswered(t *testing.T) {
	s := start(t)
	for _, size := range []int{40 << 10, 4 * mib} {
		w := s.dial(t).send(s.head("GET /user", "X-Large: "+strings.Repeat("x", size)))
		s.refused(w.answer(s), 431, "a large header")
		w.ended()
	}
	w := s.dial(t).send(s.head("GET /user?" + strings.Repeat("x", 40<<10)))
	s.refused(w.answer(s), 431, "a long request line")
}

func TestSlowRequestsAreEnded(t *testing.T) {
	s := start(t, func(c *node.Config) { c.ReadTimeout, c.IdleTimeout = 100*time.Millisecond, 100*time.Millisecond })
	w := s.dial(t).send("POST /create_topic HTTP/1.1\r\nHost: x\r\nX-Never-")
	s.refused(w.answer(s), 408, "a header that does not end")
	w.ended()
	w = s.dial(t).send(s.head("POST /create_topic", "Content-Length: 100"), `{"topic_name":`)
	s.refused(w.answer(s), 408, "a body that does not end, or a lying Content-Length")
	w.ended()
	w = s.dial(t).send(s.head("POST /create_topic", "Transfer-Encoding: chunked"), "5\r\n{\"top")
	s.refused(w.answer(s), 408, "a chunk that does not end")
	w.ended()
	s.dial(t).send().quiet()
}

// quiet waits until the server ends a connection on which nothing was sent.
func (w *wire) quiet() {
	w.t.Helper()
	if _, err := io.ReadAll(w.r); err != nil {
		w.t.Errorf("an idle connection: %v", err)
	}
}

func TestBrokenHTTPIsAnswered(t *testing.T) {
	s := start(t)
	for name, text := range map[string]string{
		"no HTTP":              "hello\r\n\r\n",
		"a bad length":         s.head("POST /create_topic", "Content-Length: x"),
		"a negative length":    s.head("POST /create_topic", "Content-Length: -5"),
		"two lengths":          s.head("POST /create_topic", "Content-Length: 5", "Content-Length: 6") + "{}   ",
		"a bad chunk":          s.head("POST /create_topic", "Transfer-Encoding: chunked") + "zz\r\n",
		"length and chunks":    s.head("POST /create_topic", "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		"a space in a header":  s.head("GET /user", "X Y: z"),
		"a folded header":      s.head("GET /user", "X: a", " b"),
		"an unknown encoding":  s.head("POST /create_topic", "Transfer-Encoding: gzip") + "x",
		"a strange expectance": s.head("GET /user", "Expect: miracles"),
	} {
		a := s.dial(t).send(text).answer(s)
		if a.status == 200 && (name == "a strange expectance" || name == "a folded header" || name == "a space in a header") {
			continue // may be taken
		}
		if a.status < 400 || a.status > 499 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
			continue
		}
		s.refused(a, a.status, name)
	}
}

func TestLengthThatIsTooShort(t *testing.T) {
	s := start(t)
	w := s.dial(t).send(s.head("POST /ack", "Content-Length: 2"), "{}\"topic_id\":1}\r\n\r\n")
	s.refused(w.answer(s), 422, "the part that counts")
	s.refused(w.answer(s), 400, "the rest")
	w.ended()
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := start(t)
	var all strings.Builder
	for i := range 50 {
		body := fmt.Sprintf(`{"topic_name":"t%d"}`, i)
		all.WriteString(s.head("POST /create_topic", fmt.Sprintf("Content-Length: %d", len(body))) + body)
	}
	w := s.dial(t).send(all.String())
	for i := range 50 {
		if a := w.answer(s); a.status != 200 || a.word("topic_name") != fmt.Sprintf("t%d", i) {
			t.Fatalf("answer %d: %d %s", i, a.status, a.body)
		}
	}
}

func TestWrongPathsAndMethods(t *testing.T) {
	s := start(t)
	for _, path := range paths(t) {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			r, _ := http.NewRequest(method, s.url+path, nil)
			if router, _ := document(); router != nil {
				if _, _, err := router.FindRoute(r); err == nil {
					continue
				}
			}
			a := s.send(s.admin, method, path, nil)
			if s.refused(a, 405, method+" "+path); a.header.Get("Allow") == "" {
				t.Errorf("%s %s: no Allow header", method, path)
			}
		}
		s.refused(s.send(s.admin, "POST", path+"/", "{}"), 404, path+"/")
		s.refused(s.send(s.admin, "POST", strings.ToUpper(path), "{}"), 404, strings.ToUpper(path))
	}
	s.refused(s.send("", "GET", "/", nil), 404, "/")
	s.refused(s.send("", "GET", "/%2e%2e/%2e%2e/etc/passwd", nil), 404, "a path upwards")
}
