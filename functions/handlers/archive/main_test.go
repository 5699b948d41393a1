package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

func batch() events.SQSEvent {
	value := "x"
	return events.SQSEvent{Records: []events.SQSMessage{
		{MessageId: "1", Body: "one", Attributes: map[string]string{"SentTimestamp": "1767322800000"}, MessageAttributes: map[string]events.SQSMessageAttribute{"kind": {StringValue: &value}}},
		{MessageId: "2", Body: "two", Attributes: map[string]string{"SentTimestamp": "1767322801000"}},
	}}
}

const want = `{"id":"1","sent_at":"2026-01-02T03:00:00Z","body":"one","attributes":{"kind":"x"}}
{"id":"2","sent_at":"2026-01-02T03:00:01Z","body":"two"}
`

func env(m map[string]string) func(string) string { return func(name string) string { return m[name] } }

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	p, err := target(t.Context(), env(map[string]string{"ARCHIVE_DIR": dir}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a batch that comes again is the same file
		if err := archive(t.Context(), batch(), p); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "2026/01/02/03/*"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	if got, _ := os.ReadFile(files[0]); string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestBucket puts to a server that speaks as much of S3's API as PUT needs.
func TestBucket(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	status, seen := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") && strings.Contains(string(body), want) {
			seen = r.Method + " " + r.URL.Path
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	p, err := target(t.Context(), env(map[string]string{"ARCHIVE_BUCKET": "b", "ARCHIVE_ENDPOINT": server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	if err := archive(t.Context(), batch(), p); err != nil || !strings.HasPrefix(seen, "PUT /b/2026/01/02/03/1-") {
		t.Errorf("%v, put %q", err, seen)
	}
	status = http.StatusForbidden
	if err := archive(t.Context(), batch(), p); err == nil {
		t.Error("a refusal is no error")
	}
}

func TestNowhere(t *testing.T) {
	if _, err := target(t.Context(), env(nil)); err == nil {
		t.Error("no target is no error")
	}
	if err := archive(t.Context(), events.SQSEvent{}, nil); err != nil {
		t.Error(err)
	}
}
