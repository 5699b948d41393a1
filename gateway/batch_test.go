package gateway_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

// results are the ids of a batch, and how many of them were known before.
func (s *server) results(a *answer) (ids []int64, duplicates int) {
	s.t.Helper()
	for _, r := range a.json["results"].([]any) {
		r := r.(map[string]any)
		n, is := r["message_id"].(json.Number)
		if !is {
			s.t.Fatalf("a result without id: %s", a.body)
		}
		id, _ := n.Int64()
		ids = append(ids, id)
		if r["duplicate"] == true {
			duplicates++
		}
	}
	return ids, duplicates
}

// TestBatchIsKnownByItsKey publishes batches under keys of their own, twice each.
func TestBatchIsKnownByItsKey(t *testing.T) {
	s := start(t)
	topic := s.topic(person{token: s.admin}, "t", "open")
	partitions := map[schema.PartitionID]bool{}
	for b := range 16 {
		key := fmt.Sprintf("batch %d", b)
		batch := fields{"topic_id": topic, "idempotency_key": key, "messages": []any{fields{"message_content": "a"}, fields{"message_content": "b"}, fields{"message_content": "c"}}}
		first, known := s.results(s.post(s.admin, "/publish_messages", batch))
		if known != 0 {
			t.Errorf("%d messages of a new batch were known", known)
		}
		for _, id := range first {
			if schema.MessageID(id).Partition() != schema.MessageID(first[0]).Partition() {
				t.Fatalf("the keyless messages of a batch are spread: %d", first)
			}
		}
		partitions[schema.MessageID(first[0]).Partition()] = true
		delete(batch, "idempotency_key")
		again, known := s.results(s.send(s.admin, "POST", "/publish_messages", batch, "Idempotency-Key", `"`+key+`"`))
		if known != 3 || fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("the batch again, its key in the header: %d of %d are known as %d", known, again, first)
		}
	}
	if len(partitions) < 2 {
		t.Error("all batches are in one partition")
	}
}

// TestOwnKeysInABatch holds that a message with an idempotency key of its own is known by that, in the batch and alone.
func TestOwnKeysInABatch(t *testing.T) {
	s := start(t)
	topic := s.topic(person{token: s.admin}, "t", "open")
	own := fields{"message_content": "b", "idempotency_key": "own"}
	batch := fields{"topic_id": topic, "idempotency_key": "all", "messages": []any{fields{"message_content": "a", "key": "k"}, own}}
	first, _ := s.results(s.post(s.admin, "/publish_messages", batch))
	alone := s.post(s.admin, "/publish_message", fields{"topic_id": topic, "message_content": "b", "idempotency_key": "own"})
	if alone.id("message_id") != first[1] || alone.json["duplicate"] != true {
		t.Errorf("alone it is %s, in the batch %d", alone.body, first)
	}
	if again, known := s.results(s.post(s.admin, "/publish_messages", batch)); known != 2 || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("again: %d of %d are known as %d", known, again, first)
	}
	batch["messages"] = []any{fields{"message_content": "another", "key": "k"}, own}
	if a := s.post(s.admin, "/publish_messages", batch); a.word("status") != "partial" {
		t.Errorf("another message under the batch's key: %s", a.body)
	}
	events := `[{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"x"},{"specversion":"1.0","id":"2","source":"/s","type":"t","data":"y"}]`
	path := fmt.Sprintf("/publish_messages?topic_id=%d&idempotency_key=events", topic)
	ids, _ := s.results(s.send(s.admin, "POST", path, events, "Content-Type", "application/cloudevents-batch+json"))
	if again, known := s.results(s.send(s.admin, "POST", path, events, "Content-Type", "application/cloudevents-batch+json")); known != 2 || fmt.Sprint(again) != fmt.Sprint(ids) {
		t.Errorf("events again: %d of %d are known as %d", known, again, ids)
	}
}
