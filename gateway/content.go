package gateway

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/handfast-mq/handfast/schema"
)

// text is where a JSON string stands in the body that it is decoded from. A content goes from there into its batch without a copy in
// between.
type text struct{ from, to int64 } // of the string in its quotes; 0, 0 = there is none

// UnmarshalJSONFrom notes the place of a string. null is as good as none.
func (t *text) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	switch v.Kind() {
	case 'n':
		*t = text{}
	case '"':
		*t = text{d.InputOffset() - int64(len(v)), d.InputOffset()}
	default:
		return schema.Errorf(schema.Invalid, "%s: want a string, not %s", clip(string(d.StackPointer())), found(v.Kind()))
	}
	return nil
}

func (t text) given() bool { return t.to > 0 }

// in returns what the string says. Without an escape in it, that is a part of body.
func (t text) in(body []byte) []byte {
	quoted := body[t.from:t.to]
	if bytes.IndexByte(quoted, '\\') >= 0 {
		said, _ := jsontext.AppendUnquote(nil, quoted) // it was read before, and is valid
		return said
	}
	return quoted[1 : len(quoted)-1 : len(quoted)-1]
}
