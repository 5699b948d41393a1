package gateway

import (
	"bytes"
	"errors"
	"mime"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// decode reads a JSON body into v. Unknown and duplicated members, wrong types and invalid UTF-8 are refused with the
// place where they are.
func decode(c *fiber.Ctx, v any) error {
	if err := wantJSON(c); err != nil {
		return err
	}
	body := jsonBody(c)
	if len(body) == 0 || body[0] != '{' { // null would count as an object with nothing in it
		return schema.Errorf(schema.Invalid, "the body must be a JSON object")
	}
	return decodeJSON(body, v)
}

// jsonBody is the body without white space before it.
func jsonBody(c *fiber.Ctx) []byte { return bytes.TrimLeft(c.Request().Body(), " \t\r\n") }

func wantJSON(c *fiber.Ctx) error {
	switch mediaType(c) {
	case "", fiber.MIMEApplicationJSON, fiber.MIMEApplicationForm: // the last is what curl -d says when it is not told
		return wantPlain(c)
	}
	return schema.Errorf(schema.Unsupported, "Content-Type must be application/json")
}

// wantPlain refuses compressed bodies.
func wantPlain(c *fiber.Ctx) error {
	if e := c.Request().Header.ContentEncoding(); len(e) > 0 && string(e) != "identity" {
		return schema.Errorf(schema.Unsupported, "bodies with a Content-Encoding are not taken")
	}
	return nil
}

func mediaType(c *fiber.Ctx) string {
	raw := string(c.Request().Header.ContentType())
	if raw == "application/json" {
		return raw
	}
	t, _, err := mime.ParseMediaType(raw)
	if err != nil {
		return strings.ToLower(strings.TrimSpace(raw))
	}
	return t
}

var decodeOptions = json.JoinOptions(json.RejectUnknownMembers(true))

func decodeJSON(body []byte, v any) error {
	err := json.Unmarshal(body, v, decodeOptions)
	if err == nil {
		return nil
	}
	var ours *schema.Error
	if errors.As(err, &ours) {
		return ours
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		where := clip(string(semantic.JSONPointer))
		if where == "" {
			where = "the body"
		}
		if errors.Is(err, json.ErrUnknownName) {
			return schema.WrapError(schema.Invalid, err, "%s: no such field", where)
		}
		return schema.WrapError(schema.Invalid, err, "%s: want %s, not %s", where, wanted(semantic.GoType), found(semantic.JSONKind))
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return schema.WrapError(schema.Invalid, err, "%s: the field is there twice", clip(string(syntactic.JSONPointer)))
		}
		return schema.WrapError(schema.Invalid, err, "the body is not valid JSON: at byte %d", syntactic.ByteOffset)
	}
	return schema.WrapError(schema.Invalid, err, "the body is not a valid JSON document")
}

// wanted says what JSON goes into a type.
func wanted(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return "something else"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "a whole number"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "an array"
	}
	return "an object"
}

// found names a kind of JSON.
func found(k jsontext.Kind) string {
	switch k {
	case '0':
		return "this number"
	case '"':
		return "a string"
	case '[':
		return "an array"
	case '{':
		return "an object"
	}
	return k.String()
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "�") }

// checkID checks an identifier of a JSON body.
func checkID[T ~int64](name string, id T) error {
	if id < 1 || int64(id) > schema.IDMax {
		return schema.Errorf(schema.Invalid, "%s must be a whole number from 1 to %d", name, int64(schema.IDMax))
	}
	return nil
}

// checkOptionalID is checkID for a field that may be left out.
func checkOptionalID[T ~int64](name string, id T) error {
	if id == 0 {
		return nil
	}
	return checkID(name, id)
}

// stamp writes a time as the API shows it: RFC 3339, UTC, milliseconds; "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
