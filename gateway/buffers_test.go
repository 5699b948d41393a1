package gateway_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestNothingOfARequestChangesAfterwards publishes from many connections at the same time, so that the framework reuses its buffers all
// the time, and holds what is delivered against what was sent.
func TestNothingOfARequestChangesAfterwards(t *testing.T) {
	s := start(t)
	const writers, each = 8, 40
	topic := s.topic(person{token: s.admin}, "t", "open")
	s.post(s.admin, "/subscribe", fields{"topic_id": topic, "max_outstanding": 20000})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				text := strings.Repeat(fmt.Sprintf("%d/%d ", w, i), 1+i%7)
				s.publishOneOf(topic, i%4, text)
			}
		})
	}
	all.Wait()
	for seen := map[string]bool{}; len(seen) < writers*each; {
		got := s.get(s.admin, fmt.Sprintf("/message?topic_id=%d&max=1000&wait=20", topic)).json["messages"].([]any)
		if len(got) == 0 {
			t.Fatalf("%d of %d messages came", len(seen), writers*each)
		}
		for _, m := range got {
			m := m.(map[string]any)
			text, _ := m["message_content"].(string)
			if b64, is := m["message_content_base64"].(string); is {
				raw, _ := base64.StdEncoding.DecodeString(b64)
				text = strings.TrimSuffix(string(raw), "\xff")
			}
			attributes, _ := m["attributes"].(map[string]any)
			word := strings.TrimSpace(text)
			if seen[text] || m["key"] != "k"+word || attributes["a"] != word || m["content_type"] != fmt.Sprintf("text/x-%d", len(text)) {
				t.Fatalf("delivered: %v", m)
			}
			seen[text] = true
		}
	}
}

// publishOneOf publishes a text in one of the ways that there are. Key, attribute and media type tell the text again.
func (s *server) publishOneOf(topic int64, way int, text string) {
	word := strings.TrimSpace(text)
	media := fmt.Sprintf("text/x-%d", len(text))
	message := fields{"message_content": text, "key": "k" + word, "attributes": fields{"a": word}, "content_type": media}
	switch way {
	case 0:
		message["topic_id"] = topic
		s.post(s.admin, "/publish_message", message)
	case 1:
		s.post(s.admin, "/publish_messages", fields{"topic_id": topic, "messages": []any{message}})
	default:
		if way == 3 {
			text += "\xff"
		}
		path := fmt.Sprintf("/publish_message?topic_id=%d&key=k%s", topic, strings.ReplaceAll(word, " ", "%20"))
		a := s.send(s.admin, "POST", path, text, "Content-Type", media, "Handfast-Attribute-A", word, "Idempotency-Key", `"`+word+`"`)
		if a.status != 200 {
			s.t.Errorf("raw: %d %s", a.status, a.body)
		}
	}
}
