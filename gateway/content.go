package gateway

import (
	"bytes"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// span is where a JSON string stands in the body that it is decoded from. A content goes from there into its batch without a copy in
// between.
type span struct{ from, to int64 } // of the string in its quotes; 0, 0 = there is none

// UnmarshalJSONFrom notes the place of a string. null is as good as none.
func (p *span) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	switch v.Kind() {
	case 'n':
		*p = span{}
	case '"':
		*p = span{d.InputOffset() - int64(len(v)), d.InputOffset()}
	default:
		return &json.SemanticError{JSONKind: v.Kind(), GoType: reflect.TypeFor[string]()}
	}
	return nil
}

func (p span) given() bool { return p.to > 0 }

// in returns what the string says. Without an escape in it, that is a part of body.
func (p span) in(body []byte) []byte {
	quoted := body[p.from:p.to]
	if bytes.IndexByte(quoted, '\\') >= 0 {
		said, _ := jsontext.AppendUnquote(nil, quoted) // it was read before, and is valid
		return said
	}
	return quoted[1 : len(quoted)-1 : len(quoted)-1]
}
