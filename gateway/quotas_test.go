package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/handfast-mq/handfast/internal/node"
)

// TestPolicyLimits sets limits by a policy beside the built-in one.
func TestPolicyLimits(t *testing.T) {
	dir := t.TempDir()
	policy := `package handfast.authz

limits := {"content_bytes": 10, "rate": 0.001} if {
	input.action == "publish"
	input.principal.name == "small"
}

limits := {"rate": 2.5} if input.principal.name == "batches"
`
	if err := os.WriteFile(filepath.Join(dir, "limits.rego"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *node.Config) { c.PolicyDir = dir })
	free, small, batches := s.person("free"), s.person("small"), s.person("batches")
	topic, other := s.topic(free, "t", "open"), s.topic(free, "other", "open")
	one := func(topic int64, content string) fields { return fields{"topic_id": topic, "message_content": content} }
	s.refused(s.send(small.token, "POST", "/publish_message", one(topic, strings.Repeat("x", 11))), 413, "11 bytes where 10 are allowed")
	s.post(small.token, "/publish_message", one(topic, strings.Repeat("x", 10)))
	a := s.send(small.token, "POST", "/publish_message", one(topic, "x"))
	if s.refused(a, 429, "a second message within 1000 seconds"); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.post(small.token, "/publish_message", one(other, "x")) // each topic by itself
	s.refused(s.send(small.token, "POST", fmt.Sprintf("/publish_message?topic_id=%d", other), "x", "Content-Type", "text/plain"), 429, "a raw body")
	for range 5 {
		s.post(free.token, "/publish_message", one(topic, strings.Repeat("x", 1000)))
	}
	batch := func(n int) fields {
		return fields{"topic_id": topic, "messages": []any{fields{"message_content": "1"}, fields{"message_content": "2"}, fields{"message_content": "3"}, fields{"message_content": "4"}}[:n]}
	}
	s.refused(s.send(batches.token, "POST", "/publish_messages", batch(4)), 413, "a batch that could never pass")
	s.post(batches.token, "/publish_messages", batch(3))
}
