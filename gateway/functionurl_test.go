package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/handfast-mq/handfast/schema"
)

func answerRequest(ctx context.Context, r events.LambdaFunctionURLRequest) (any, error) {
	if r.RawPath == "/plain" {
		return "plain", nil
	}
	if r.RawPath == "/fail" {
		return nil, errors.New("no")
	}
	seen, _ := json.Marshal(r)
	return events.LambdaFunctionURLResponse{StatusCode: 418, Headers: map[string]string{"content-type": "application/x-seen", "X-Mine": "yes", "Connection": "close"},
		Cookies: []string{"a=1", "b=2"}, Body: base64.StdEncoding.EncodeToString(seen), IsBase64Encoded: true}, nil
}

// streamPage is an ordinary HTTP handler, which AWS's library makes a streaming one.
func streamPage(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/bare" {
		w.Write([]byte("bare"))
		return
	}
	w.Header().Set("Content-Type", "text/html")
	http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
	http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
	w.WriteHeader(http.StatusAccepted)
	body, _ := io.ReadAll(r.Body)
	for _, part := range []string{"<p>", r.Method + " " + r.URL.Path + " ", string(body), "\x00\x00\x00\x00\x00\x00\x00\x00", "</p>"} {
		fmt.Fprint(w, part)
	}
}

// brokenReader fails after a part of its content.
type brokenReader struct{ r io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = errors.New("broke in the middle")
	}
	return n, err
}

// streamed is an answer that AWS's library sends as it comes, since it is no JSON.
type streamed struct{ io.Reader }

func (streamed) MarshalJSON() ([]byte, error) { return nil, errors.New("not JSON") }

// stream answers in pieces that are no JSON as a whole.
func stream(ctx context.Context, in struct {
	Do      string `json:"do"`
	RawPath string `json:"rawPath"`
	Bytes   int64  `json:"bytes"`
}) (any, error) {
	part := strings.NewReader("first ")
	switch in.Do + in.RawPath {
	case "break", "/break":
		return streamed{brokenReader{part}}, nil
	case "break page", "/break-page":
		return &events.LambdaFunctionURLStreamingResponse{StatusCode: 200, Body: brokenReader{part}}, nil
	case "/bad-status":
		return &events.LambdaFunctionURLStreamingResponse{StatusCode: 99, Body: part}, nil
	case "much":
		return streamed{io.LimitReader(zeros{}, in.Bytes)}, nil
	}
	return streamed{io.MultiReader(part, strings.NewReader("second"))}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestFunctionURL(t *testing.T) {
	s := start(t)
	alice, bob := s.person("alice"), s.person("bob")
	s.deploy(alice, "web", "url", nil)
	s.refused(s.send("", "GET", "/functions/web/url/x", nil), 404, "a function without a URL")
	s.post(alice.token, "/update_function", fields{"function_name": "web", "url_auth": "none"})
	a := s.send("", "PUT", "/functions/web/url/some%20path/x?a=1&b=2&a=3", "\xff\xfe", "Cookie", "k=v; l=w", "X-Twice", "1", "Content-Type", "application/octet-stream")
	var seen events.LambdaFunctionURLRequest
	if err := json.Unmarshal(a.body, &seen); err != nil || a.status != 418 || a.header.Get("Content-Type") != "application/x-seen" || a.header.Get("X-Mine") != "yes" || len(a.header.Values("Set-Cookie")) != 2 {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	body, _ := base64.StdEncoding.DecodeString(seen.Body)
	if seen.Version != "2.0" || seen.RawPath != "/some%20path/x" || seen.RawQueryString != "a=1&b=2&a=3" || seen.QueryStringParameters["a"] != "1,3" || len(seen.Cookies) != 2 ||
		seen.Headers["x-twice"] != "1" || seen.RequestContext.HTTP.Method != "PUT" || !seen.IsBase64Encoded || string(body) != "\xff\xfe" || seen.RequestContext.HTTP.SourceIP == "" {
		t.Errorf("the handler saw %+v", seen)
	}
	if a := s.send("", "GET", "/functions/web/url/plain", nil); a.status != 200 || string(a.body) != `"plain"` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("a plain answer: %d %s", a.status, a.body)
	}
	if a := s.send("", "HEAD", "/functions/web/url/plain", nil); a.status != 200 || len(a.body) != 0 {
		t.Errorf("a HEAD: %d %s", a.status, a.body)
	}
	s.refused(s.send("", "GET", "/functions/web/url/fail", nil), 502, "a function that fails")
	s.post(alice.token, "/update_function", fields{"function_name": "web", "url_auth": "token"})
	s.refused(s.send("", "GET", "/functions/web/url/", nil), 401, "without a token")
	s.refused(s.send(bob.token, "GET", "/functions/web/url/", nil), 404, "with another's token")
	a = s.send(alice.token, "GET", "/functions/web/url/", nil)
	if json.Unmarshal(a.body, &seen); a.status != 418 || bytes.Contains(a.body, []byte(alice.token)) {
		t.Errorf("with a token: %d %s", a.status, a.body)
	}
}

// TestStreamedPage lets a handler stream the answer to a request.
func TestStreamedPage(t *testing.T) {
	s := start(t)
	s.deploy(s.person("alice"), "page", "http", fields{"url_auth": "none"})
	a := s.send("", "PUT", "/functions/page/url/some/path", "hello")
	if want := "<p>PUT /some/path hello\x00\x00\x00\x00\x00\x00\x00\x00</p>"; a.status != 202 || a.header.Get("Content-Type") != "text/html" || string(a.body) != want || len(a.header.Values("Set-Cookie")) != 2 {
		t.Errorf("%d %v %q, want %q", a.status, a.header, a.body, want)
	}
	if a := s.send("", "GET", "/functions/page/url/bare", nil); a.status != 200 || a.header.Get("Content-Type") != "application/octet-stream" || string(a.body) != "bare" {
		t.Errorf("no content type: %d %v %q", a.status, a.header, a.body)
	}
}

// TestStreamedAnswers lets a handler answer in pieces, break off between them, and exceed the limit.
func TestStreamedAnswers(t *testing.T) {
	s := start(t)
	alice := s.person("alice")
	s.deploy(alice, "f", "stream", fields{"url_auth": "none"})
	if a := s.send("", "GET", "/functions/f/url/", nil); a.status != 200 || a.header.Get("Content-Type") != "application/octet-stream" || string(a.body) != "first second" {
		t.Errorf("a stream without a prelude: %d %v %q", a.status, a.header, a.body)
	}
	for _, path := range []string{"break", "break-page", "bad-status"} {
		s.refused(s.send("", "GET", "/functions/f/url/"+path, nil), 502, path)
	}
	for _, do := range []string{"break", "break page"} {
		if a := s.invoke(alice, "f", fields{"do": do}); a.status != 200 || a.header.Get("X-Amz-Function-Error") != "Unhandled" || a.word("errorMessage") != "broke in the middle" {
			t.Errorf("%s: %d %v %s", do, a.status, a.header, a.body)
		}
	}
	if a := s.invoke(alice, "f", fields{"do": "much", "bytes": schema.InvokeBytesMax}); len(a.body) != schema.InvokeBytesMax {
		t.Errorf("the largest stream: %d %v, %d bytes", a.status, a.header, len(a.body))
	}
	if a := s.invoke(alice, "f", fields{"do": "much", "bytes": schema.InvokeBytesMax + 1}); a.word("errorType") != "Function.ResponseSizeTooLarge" {
		t.Errorf("a stream that is too large: %d %v %s", a.status, a.header, clip(a.body))
	}
}
