package cloudevents

import (
	"strconv"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// MessageType is the event type of a message whose publisher gave none.
const MessageType = "handfast.message"

// FromMessage makes an event of a message. Attributes that the publisher gave under CloudEvents' own names are kept
// (those of a CloudEvent that came in make the same event again); the required ones that are missing are filled in
// from the message: its id, its topic as the source, its time. Names are brought to CloudEvents' alphabet.
// The event shares the message's content.
func FromMessage(m *schema.Message) Event {
	e := Event{ContentType: m.ContentType, Data: m.Content}
	if len(m.Content) == 0 {
		e.Data = nil
	}
	e.Attributes = make([]schema.Attribute, 0, len(m.Attributes)+6)
	e.setDefault("specversion", SpecVersion)
	for _, a := range m.Attributes {
		if name := eventName(a.Name); name != "" {
			e.setDefault(name, printable(a.Value))
		}
	}
	e.setDefault("id", strconv.FormatInt(int64(m.ID), 10))
	e.setDefault("source", "/topics/"+strconv.FormatInt(int64(m.Topic), 10))
	e.setDefault("type", MessageType)
	if !m.Time.IsZero() {
		e.setDefault("time", m.Time.UTC().Format(time.RFC3339Nano))
	}
	if m.Key != "" {
		e.setDefault("partitionkey", printable(m.Key))
	}
	return e
}

func (e *Event) setDefault(name, value string) {
	if value != "" && e.Get(name) == "" {
		e.Attributes = append(e.Attributes, schema.Attribute{Name: name, Value: value})
	}
}

// eventName brings a name to a-z and 0-9; "" when nothing is left or the name is taken by the data.
func eventName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && nameByte(byte(r)) {
			return r
		}
		return -1
	}, strings.ToLower(name))
	switch name {
	case "data", "datacontenttype", "database64", "specversion":
		return ""
	}
	return name
}

// printable drops what CloudEvents' String type excludes.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r <= 0x9f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
