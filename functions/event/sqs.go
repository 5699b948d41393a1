// Package event makes the events that functions get of messages, in the shape of Amazon SQS, and reads what they answer.
package event

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

// EncodingAttribute is the message attribute that says "base64" where a content is no text, or would be too long as text in JSON.
const EncodingAttribute = "content-encoding"

// textBytesMax bounds a body's text with JSON's escapes: above it, base64 is shorter.
const textBytesMax = 4 << 20

const region = "local"

type record struct {
	MessageID         string               `json:"messageId"`
	ReceiptHandle     string               `json:"receiptHandle"`
	Body              string               `json:"body"`
	Attributes        map[string]string    `json:"attributes"`
	MessageAttributes map[string]attribute `json:"messageAttributes"`
	MD5OfAttributes   string               `json:"md5OfMessageAttributes,omitempty"`
	MD5OfBody         string               `json:"md5OfBody"`
	EventSource       string               `json:"eventSource"`
	EventSourceARN    string               `json:"eventSourceARN"`
	Region            string               `json:"awsRegion"`
}

type attribute struct {
	StringValue      string   `json:"stringValue"`
	StringListValues []string `json:"stringListValues"`
	BinaryListValues []string `json:"binaryListValues"`
	DataType         string   `json:"dataType"`
}

// identifier is how a message is named to a function.
func identifier(d *schema.Delivery) string { return strconv.FormatInt(int64(d.ID), 10) }

// Record writes one message as a record of an SQS event.
func Record(d *schema.Delivery, now time.Time) ([]byte, error) {
	attributes := slices.Clone(d.Attributes)
	body, err := text(d.Content)
	if err != nil {
		return nil, err
	}
	if body == nil {
		encoded := base64.StdEncoding.EncodeToString(d.Content)
		body = &encoded
		attributes = append(slices.DeleteFunc(attributes, func(a schema.Attribute) bool { return a.Name == EncodingAttribute }), schema.Attribute{Name: EncodingAttribute, Value: "base64"})
	}
	r := record{MessageID: identifier(d), ReceiptHandle: d.Lease, Body: *body, MD5OfBody: sum(*body), EventSource: "aws:sqs",
		EventSourceARN: fmt.Sprintf("arn:aws:sqs:%s:000000000000:topic-%d", region, d.Topic), Region: region, MessageAttributes: map[string]attribute{}}
	if r.ReceiptHandle == "" {
		r.ReceiptHandle = r.MessageID
	}
	for _, a := range attributes {
		r.MessageAttributes[a.Name] = attribute{a.Value, []string{}, []string{}, "String"}
	}
	r.MD5OfAttributes = sumAttributes(r.MessageAttributes)
	r.Attributes = systemAttributes(d, now)
	return marshal(r)
}

func systemAttributes(d *schema.Delivery, now time.Time) map[string]string {
	first := now
	if d.Attempt > 1 {
		first = d.Time // when it was first tried is not kept; this is the earliest that it can have been
	}
	a := map[string]string{
		"ApproximateReceiveCount":          strconv.Itoa(d.Attempt),
		"SentTimestamp":                    strconv.FormatInt(d.Time.UnixMilli(), 10),
		"SenderId":                         strconv.FormatInt(int64(d.Publisher), 10),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(first.UnixMilli(), 10),
	}
	if d.Key != "" {
		a["MessageGroupId"] = d.Key
		a["SequenceNumber"] = fmt.Sprintf("%020d", int64(d.ID))
		a["MessageDeduplicationId"] = identifier(d)
	}
	return a
}

// text returns a content that can stand in JSON as it is, or nil.
func text(content []byte) (*string, error) {
	if !utf8.Valid(content) {
		return nil, nil
	}
	s := string(content)
	if len(s) > textBytesMax/6 { // six bytes are the longest escape
		escaped, err := marshal(s)
		if err != nil || len(escaped) > textBytesMax {
			return nil, err
		}
	}
	return &s, nil
}

func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func sum(s string) string {
	digest := md5.Sum([]byte(s))
	return hex.EncodeToString(digest[:])
}

// sumAttributes is the digest that SQS gives of message attributes: in order of name, each of name, type and value after its length, a 1
// before the value for strings. "" for none.
func sumAttributes(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	names := make([]string, 0, len(attributes))
	for name := range attributes {
		names = append(names, name)
	}
	slices.Sort(names)
	digest := md5.New()
	for _, name := range names {
		writeSized(digest, name)
		writeSized(digest, attributes[name].DataType)
		digest.Write([]byte{1})
		writeSized(digest, attributes[name].StringValue)
	}
	return hex.EncodeToString(digest.Sum(nil))
}

func writeSized(h hash.Hash, s string) {
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
	h.Write([]byte(s))
}
