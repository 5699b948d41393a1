package main

import (
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

func message(id, group, body string) events.SQSMessage {
	return events.SQSMessage{MessageId: id, Body: body, Attributes: map[string]string{"MessageGroupId": group}}
}

func TestHandle(t *testing.T) {
	got, err := handle(t.Context(), events.SQSEvent{Records: []events.SQSMessage{
		message("1", "", `{"id":"a","amount":5}`),
		message("2", "", `no order`),
		message("3", "g", `{"id":"","amount":5}`),
		message("4", "g", `{"id":"b","amount":5}`),
		message("5", "h", `{"id":"c","amount":5}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"2", "3", "4"}
	if len(got.BatchItemFailures) != len(want) {
		t.Fatalf("failed: %v, want %v", got.BatchItemFailures, want)
	}
	for i, f := range got.BatchItemFailures {
		if f.ItemIdentifier != want[i] {
			t.Errorf("failed: %v, want %v", got.BatchItemFailures, want)
		}
	}
}
