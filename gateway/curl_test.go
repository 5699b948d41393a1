package gateway_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestCurl does what a newcomer does: curl -d, without a word about the media type.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl here")
	}
	s := start(t)
	run := func(path string, args ...string) string {
		t.Helper()
		out, err := exec.Command(curl, append([]string{"-sS", "--noproxy", "*", "-H", "Authorization: Bearer " + s.admin, s.url + path}, args...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return string(out)
	}
	made := run("/create_topic", "-d", `{"topic_name": "orders"}`)
	if !strings.Contains(made, `"status":"ok"`) {
		t.Fatal(made)
	}
	topic := s.get(s.admin, "/topic?topic_name=orders").id("topic_id")
	run("/subscribe", "-d", fmt.Sprintf(`{"topic_id": %d}`, topic))
	pull := func() *answer {
		a := s.get(s.admin, fmt.Sprintf("/message?topic_id=%d&wait=10", topic))
		s.post(s.admin, "/ack", fields{"topic_id": topic, "message_ids": []int64{a.id("message_id")}})
		return a
	}
	run("/publish_message", "-d", fmt.Sprintf(`{"topic_id": %d, "message_content": "enveloped"}`, topic))
	if a := pull(); a.word("message_content") != "enveloped" {
		t.Errorf("%s", a.body)
	}
	run("/publish_message", "-d", fmt.Sprintf(`{"topic_id": %d, "message_content": "untyped"}`, topic), "-H", "Content-Type:")
	if a := pull(); a.word("message_content") != "untyped" {
		t.Errorf("%s", a.body)
	}
	run(fmt.Sprintf("/publish_message?topic_id=%d", topic), "-d", "a=b&c=d")
	if a := pull(); a.word("message_content") != "a=b&c=d" || a.word("content_type") != "application/x-www-form-urlencoded" {
		t.Errorf("%s", a.body)
	}
	form := "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\nepilogue"
	run(fmt.Sprintf("/publish_message?topic_id=%d", topic), "--data-binary", form, "-H", "Content-Type: multipart/form-data; boundary=x")
	if a := pull(); a.word("message_content") != form {
		t.Errorf("a multipart body was changed: %q", a.word("message_content"))
	}
}
