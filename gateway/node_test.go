package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handfast-mq/handfast/internal/node"
)

// server is a node under test, and its administrator.
type server struct {
	t     testing.TB
	url   string
	admin string
	node  *node.Node
	seen  func(r *http.Request, a *answer) // is told of every answer; nil = nobody is
}

// start runs a node in this process until the test ends.
func start(t testing.TB, change ...func(*node.Config)) *server {
	t.Helper()
	cfg := node.Default()
	cfg.Dir, cfg.Listen, cfg.Partitions, cfg.AllowPrivateTargets = t.TempDir(), "127.0.0.7:0", 8, true
	cfg.UserRate = 0
	cfg.Logger = slog.New(slog.DiscardHandler)
	for _, fn := range change {
		fn(&cfg)
	}
	n, err := node.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	token, err := os.ReadFile(filepath.Join(cfg.Dir, node.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return &server{t: t, url: n.URL(), admin: strings.TrimSpace(string(token)), node: n}
}

// answer is what came back of a call.
type answer struct {
	status int
	header http.Header
	body   []byte
	json   map[string]any // nil when it is none
}

func (a *answer) id(name string) int64 {
	n, _ := a.json[name].(json.Number)
	id, _ := n.Int64()
	return id
}

func (a *answer) word(name string) string {
	s, _ := a.json[name].(string)
	return s
}

// send makes one request. body may be a string, bytes, or what becomes JSON; nil = none.
func (s *server) send(token, method, path string, body any, headers ...string) *answer {
	s.t.Helper()
	var reader io.Reader
	isJSON := false
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		reader, isJSON = bytes.NewReader(text), true
	}
	r, err := http.NewRequest(method, s.url+path, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if isJSON {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.do(r)
}

func (s *server) do(r *http.Request) *answer {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	if d.Decode(&a.json) != nil {
		a.json = nil
	}
	if err := conforms(r, a); err != nil {
		s.t.Errorf("%s %s: %d %s is not as openapi.yaml says: %v", r.Method, r.URL, a.status, clip(a.body), err)
	}
	if s.seen != nil {
		s.seen(r, a)
	}
	return a
}

type fields map[string]any

// post makes a call that must succeed.
func (s *server) post(token, path string, body any) *answer {
	s.t.Helper()
	a := s.send(token, "POST", path, body)
	if a.status != http.StatusOK {
		s.t.Fatalf("POST %s %v: %d %s", path, body, a.status, a.body)
	}
	return a
}

// get makes a call that must succeed.
func (s *server) get(token, path string) *answer {
	s.t.Helper()
	a := s.send(token, "GET", path, nil)
	if a.status != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", path, a.status, a.body)
	}
	return a
}

// person is a user with its token.
type person struct {
	id    int64
	token string
}

func (s *server) person(name string) person {
	s.t.Helper()
	a := s.post(s.admin, "/create_user", fields{"user_name": name})
	return person{a.id("user_id"), a.word("token")}
}

// topic makes a topic and returns its id.
func (s *server) topic(p person, name string, rule any) int64 {
	s.t.Helper()
	return s.post(p.token, "/create_topic", fields{"topic_name": name, "rule_id": rule}).id("topic_id")
}

// refused checks that an answer is a well-formed problem document with a status.
func (s *server) refused(a *answer, status int, what string) {
	s.t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" || a.word("kind") == "" || a.word("detail") == "" ||
		a.id("status") != int64(status) {
		s.t.Errorf("%s: want a problem document with %d, got %d %s %s", what, status, a.status, a.header.Get("Content-Type"), clip(a.body))
	}
	for _, leak := range []string{"goroutine", "json:", "github.com", ".go:", "strconv", "runtime error", "pebble", "unmarshal", "fasthttp"} {
		if bytes.Contains(a.body, []byte(leak)) {
			s.t.Errorf("%s: the answer leaks %q: %s", what, leak, clip(a.body))
		}
	}
}

func clip(b []byte) string { return string(b[:min(len(b), 300)]) }
