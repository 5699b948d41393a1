package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"sort"
	"strconv"
	"unicode/utf8"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// StructuredType is the media type of one event in the JSON format.
	StructuredType = "application/cloudevents+json; charset=UTF-8"
	// BatchType is the media type of a JSON array of events.
	BatchType = "application/cloudevents-batch+json; charset=UTF-8"
)

// DecodeStructured reads one event in the JSON format. JSON data keeps its bytes as they stand in the document.
func DecodeStructured(body []byte) (Event, error) {
	if !utf8.Valid(body) {
		return Event{}, invalid("the document is not valid UTF-8")
	}
	return decodeObject(body)
}

// DecodeBatch reads a JSON array of up to schema.BatchMessagesMax events. It may be empty. One bad event refuses all.
func DecodeBatch(body []byte) ([]Event, error) {
	if !utf8.Valid(body) {
		return nil, invalid("the document is not valid UTF-8")
	}
	var items []json.RawMessage
	if err := json.Unmarshal(body, &items); err != nil || items == nil {
		return nil, schema.WrapError(schema.Invalid, err, "cloudevent: a batch is a JSON array of events")
	}
	if len(items) > schema.BatchMessagesMax {
		return nil, schema.Errorf(schema.TooLarge, "cloudevent: more than %d events in a batch", schema.BatchMessagesMax)
	}
	events := make([]Event, len(items))
	for i, item := range items {
		e, err := decodeObject(item)
		if err != nil {
			return nil, schema.WrapError(schema.KindOf(err), err, "event %d: %v", i, err)
		}
		events[i] = e
	}
	return events, nil
}

func decodeObject(body []byte) (Event, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return Event{}, schema.WrapError(schema.Invalid, err, "cloudevent: an event is a JSON object")
	}
	data, hasData := fields["data"]
	encoded, hasEncoded := fields["data_base64"]
	if string(encoded) == "null" {
		hasEncoded = false
	}
	if hasData && hasEncoded {
		return Event{}, invalid("data and data_base64 exclude each other")
	}
	delete(fields, "data")
	delete(fields, "data_base64")
	var e Event
	if err := e.addFields(fields); err != nil {
		return Event{}, err
	}
	var err error
	switch {
	case hasData:
		e.Data, err = decodeData(data, e.ContentType)
	case hasEncoded:
		e.Data, err = decodeBase64(encoded)
	}
	if err != nil {
		return Event{}, err
	}
	return e, e.check()
}

// addFields takes the attributes in the order of their names, so that equal documents give equal events.
func (e *Event) addFields(fields map[string]json.RawMessage) error {
	if len(fields) > schema.AttributesMax+1 {
		return schema.Errorf(schema.TooLarge, "cloudevent: more than %d attributes", schema.AttributesMax)
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		value, set, err := decodeValue(name, fields[name])
		if err != nil {
			return err
		}
		switch {
		case !set:
		case name == "datacontenttype":
			e.ContentType = value
		default:
			e.Attributes = append(e.Attributes, schema.Attribute{Name: name, Value: value})
		}
	}
	return nil
}

// decodeValue reads an attribute: a string, a boolean or an integer, in its canonical string form. null is not set.
func decodeValue(name string, raw json.RawMessage) (value string, set bool, err error) {
	switch raw[0] {
	case 'n':
		return "", false, nil
	case 't', 'f':
		return string(raw), true, nil
	case '"':
		if err := json.Unmarshal(raw, &value); err != nil {
			return "", false, invalid("the attribute %q is not a string", clip(name))
		}
		return value, true, checkValue(name, value)
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil {
		return "", false, invalid("the attribute %q must be a string, a boolean or a 32-bit integer", clip(name))
	}
	return strconv.FormatInt(n, 10), true, nil
}

// decodeData returns the bytes of the data member. JSON stays JSON, a JSON string too; for another declared media type
// a string is the content itself.
func decodeData(raw json.RawMessage, contentType string) ([]byte, error) {
	if isJSON(contentType) || raw[0] != '"' {
		return append([]byte{}, raw...), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, invalid("data is not a string")
	}
	return []byte(s), nil
}

func decodeBase64(raw json.RawMessage) ([]byte, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, invalid("data_base64 must be a string")
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, invalid("data_base64 is not base64")
	}
	return b, nil
}

// EncodeStructured writes the event in the JSON format. Valid JSON data goes in with its own bytes, text as a string,
// anything else as base64.
func (e *Event) EncodeStructured() []byte {
	b := make([]byte, 0, 256+len(e.Data)*4/3)
	b = append(b, '{')
	for i, a := range e.Attributes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMember(b, a.Name, a.Value)
	}
	if e.ContentType != "" {
		b = appendMember(append(b, ','), "datacontenttype", e.ContentType)
	}
	if e.Data != nil {
		b = e.appendData(append(b, ','))
	}
	return append(b, '}')
}

func (e *Event) appendData(b []byte) []byte {
	switch {
	case isJSON(e.ContentType) && utf8.Valid(e.Data) && json.Valid(e.Data):
		return append(append(b, `"data":`...), e.Data...)
	case isText(e.ContentType) && utf8.Valid(e.Data):
		return appendMember(b, "data", string(e.Data))
	}
	b = append(b, `"data_base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, e.Data)
	return append(b, '"')
}

func appendMember(b []byte, name, value string) []byte {
	return appendString(append(appendString(b, name), ':'), value)
}

func appendString(b []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always encodes
	return append(b, quoted...)
}
