package event

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/handfast-mq/handfast/schema"
)

func delivery(id int, key, content string) schema.Delivery {
	return schema.Delivery{Message: schema.Message{ID: schema.MessageID(id), Topic: 7, Publisher: 3, Time: time.UnixMilli(1700000000123), Key: key, Content: []byte(content),
		Attributes: []schema.Attribute{{Name: "test_attribute_name_2", Value: "test_attribute_value_2"}, {Name: "test_attribute_name_1", Value: "test_attribute_value_1"}}}, Attempt: 2, Lease: "lease"}
}

func TestRecord(t *testing.T) {
	d := delivery(42, "k", "This is a test message")
	raw, err := Record(&d, time.UnixMilli(1700000009000))
	if err != nil {
		t.Fatal(err)
	}
	var m events.SQSMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	if m.MessageId != "42" || m.Body != "This is a test message" || m.Md5OfBody != "fafb00f5732ab283681e124bf8747ed1" || m.ReceiptHandle != "lease" || m.EventSource != "aws:sqs" ||
		m.EventSourceARN != "arn:aws:sqs:local:000000000000:topic-7" || *m.MessageAttributes["test_attribute_name_1"].StringValue != "test_attribute_value_1" {
		t.Errorf("record %+v", m)
	}
	want := map[string]string{"ApproximateReceiveCount": "2", "SentTimestamp": "1700000000123", "SenderId": "3", "ApproximateFirstReceiveTimestamp": "1700000000123",
		"MessageGroupId": "k", "SequenceNumber": "00000000000000000042", "MessageDeduplicationId": "42"}
	if fmt.Sprint(m.Attributes) != fmt.Sprint(want) {
		t.Errorf("attributes %v, want %v", m.Attributes, want)
	}
}

func TestAttributesDigest(t *testing.T) {
	// length, name, length, type, 1, length, value: worked out by hand for one attribute.
	a := map[string]attribute{"n": {StringValue: "v", DataType: "String"}}
	if got, want := sumAttributes(a), sum("\x00\x00\x00\x01n\x00\x00\x00\x06String\x01\x00\x00\x00\x01v"); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	if sumAttributes(nil) != "" {
		t.Error("no attributes have a digest")
	}
}

func TestBinaryContent(t *testing.T) {
	d := delivery(1, "", "\xff\x00")
	raw, _ := Record(&d, time.Now())
	var m events.SQSMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	got, err := base64.StdEncoding.DecodeString(m.Body)
	if err != nil || string(got) != "\xff\x00" || *m.MessageAttributes[EncodingAttribute].StringValue != "base64" {
		t.Errorf("body %q: %v", m.Body, err)
	}
}

func TestJudge(t *testing.T) {
	batch := []schema.Delivery{delivery(1, "a", ""), delivery(2, "b", ""), delivery(3, "a", ""), delivery(4, "", "")}
	for _, c := range []struct {
		answer  string
		ordered bool
		want    string // d = delivered, f = failed
	}{
		{``, false, "dddd"},
		{"  \n", false, "dddd"},
		{`null`, false, "dddd"},
		{`{}`, false, "dddd"},
		{`{"other":1}`, false, "dddd"},
		{`{"batchItemFailures":[]}`, false, "dddd"},
		{`{"batchItemFailures":null}`, false, "dddd"},
		{`{"batchItemFailures":[{"itemIdentifier":"2"}]}`, false, "dfdd"},
		{`{"batchItemFailures":[{"itemIdentifier":"1"},{"itemIdentifier":"4"},{"itemIdentifier":"1"}]}`, false, "fddf"},
		{`{"batchItemFailures":[{"itemIdentifier":"1"}]}`, false, "fddd"},
		{`{"batchItemFailures":[{"itemIdentifier":"1"}]}`, true, "fdfd"},
		{`{"batchItemFailures":[{"itemIdentifier":"3"}]}`, true, "ddfd"},
		{`{"batchItemFailures":[{"itemIdentifier":"4"}]}`, true, "dddf"},
		{`{"batchItemFailures":[{"itemIdentifier":""}]}`, false, "ffff"},
		{`{"batchItemFailures":[{"itemIdentifier":null}]}`, false, "ffff"},
		{`{"batchItemFailures":[{"id":"2"}]}`, false, "ffff"},
		{`{"batchItemFailures":[null]}`, false, "ffff"},
		{`{"batchItemFailures":[{"itemIdentifier":"9"}]}`, false, "ffff"},
		{`{"batchItemFailures":[{"itemIdentifier":"2"},{"itemIdentifier":"9"}]}`, false, "ffff"},
		{`{"batchItemFailures":[{"itemIdentifier":2}]}`, false, "ffff"},
		{`{"batchItemFailures":"2"}`, false, "ffff"},
		{`{"batchItemFailures":[`, false, "ffff"},
		{`"ok"`, false, "ffff"},
		{`[]`, false, "ffff"},
		{`<html>`, false, "ffff"},
	} {
		got := ""
		for _, r := range Judge([]byte(c.answer), batch, c.ordered) {
			got += r.Outcome.String()[:1]
		}
		if got != c.want {
			t.Errorf("%s ordered=%v: %s, want %s", c.answer, c.ordered, got, c.want)
		}
	}
}

// TestSplit holds every payload to the limit, and every message to exactly one of them.
func TestSplit(t *testing.T) {
	var batch []schema.Delivery
	for i := range 20 {
		batch = append(batch, delivery(i+1, "", strings.Repeat("\x01", schema.ContentBytesMax)))
	}
	batch = append(batch, delivery(21, "", strings.Repeat("x", schema.ContentBytesMax)))
	seen, calls := map[string]int{}, 0
	results := Deliver(t.Context(), &schema.Subscription{}, batch, func(_ context.Context, payload []byte) (*schema.Invoked, error) {
		calls++
		if len(payload) > schema.InvokeBytesMax {
			t.Errorf("a payload of %d bytes", len(payload))
		}
		var e events.SQSEvent
		if err := json.Unmarshal(payload, &e); err != nil {
			t.Fatal(err)
		}
		for _, r := range e.Records {
			seen[r.MessageId]++
		}
		return &schema.Invoked{}, nil
	})
	for i := range batch {
		if seen[identifier(&batch[i])] != 1 || results[i].Outcome != schema.Delivered {
			t.Errorf("message %d: %d times, %v", batch[i].ID, seen[identifier(&batch[i])], results[i])
		}
	}
	if calls < 4 || calls > 8 {
		t.Errorf("%d calls", calls)
	}
}

// TestSplitOrdered does not send what follows on a failure of the same key in an earlier call.
func TestSplitOrdered(t *testing.T) {
	big := strings.Repeat("x", schema.ContentBytesMax)
	var batch []schema.Delivery
	for i := range 8 {
		batch = append(batch, delivery(i+1, "k", big))
	}
	calls := 0
	results := Deliver(t.Context(), &schema.Subscription{Ordered: true}, batch, func(_ context.Context, payload []byte) (*schema.Invoked, error) {
		calls++
		return &schema.Invoked{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"2"}]}`)}, nil
	})
	if calls != 1 || results[0].Outcome != schema.Delivered || results[1].Outcome != schema.Failed || results[2].Outcome != schema.Failed || results[7].Outcome != schema.Held {
		t.Errorf("%d calls: %v", calls, results)
	}
}

func TestFromError(t *testing.T) {
	for kind, want := range map[schema.Kind]schema.Outcome{schema.Busy: schema.Held, schema.Unavailable: schema.Held, schema.Internal: schema.Held, schema.Forbidden: schema.Held,
		schema.NotFound: schema.EndpointGone, schema.TooLarge: schema.Refused, schema.Unknown: schema.Failed} {
		if got := FromError(t.Context(), schema.Errorf(kind, "x")); got.Outcome != want {
			t.Errorf("%v: %v, want %v", kind, got.Outcome, want)
		}
	}
	failed := Deliver(t.Context(), &schema.Subscription{}, []schema.Delivery{delivery(1, "", ""), delivery(2, "", "")}, func(context.Context, []byte) (*schema.Invoked, error) {
		return &schema.Invoked{FunctionError: "Unhandled", Payload: []byte(`{"errorType":"T","errorMessage":"m"}`)}, nil
	})
	if failed[0].Outcome != schema.Failed || failed[1].Outcome != schema.Failed || failed[0].Error != "T: m" {
		t.Errorf("a function's error: %v", failed)
	}
}
