package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"mime"
	"strconv"
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
	body := bytes.TrimLeft(c.Request().Body(), " \t\r\n")
	if len(body) == 0 || body[0] != '{' { // null would count as an object with nothing in it
		return schema.Errorf(schema.Invalid, "the body must be a JSON object")
	}
	return decodeJSON(body, v)
}

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
		return schema.WrapError(schema.Invalid, err, "%s: %s is not of the type that belongs here", where, semantic.JSONKind)
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

// ok answers with a JSON object.
func ok(c *fiber.Ctx, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Send(body)
}

// status begins every answer.
type status struct {
	Status string `json:"status"`
}

var okay = status{"ok"}

// queries reads query parameters: each at most once, and none that the route does not know.
func queries(c *fiber.Ctx, known ...string) (map[string]string, error) {
	values := map[string]string{}
	var failed error
	c.Context().QueryArgs().VisitAll(func(k, v []byte) {
		name := string(k)
		switch _, again := values[name]; {
		case again:
			failed = schema.Errorf(schema.Invalid, "query parameter %q is there twice", clip(name))
		case !contains(known, name):
			failed = schema.Errorf(schema.Invalid, "there is no query parameter %q here", clip(name))
		}
		values[name] = string(v)
	})
	return values, failed
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "�") }

// queryID reads an identifier; needed says whether it must be there.
func queryID(q map[string]string, name string, needed bool) (int64, error) {
	raw, there := q[name]
	if !there {
		if needed {
			return 0, schema.Errorf(schema.Invalid, "query parameter %q is missing", name)
		}
		return 0, nil
	}
	id, err := schema.ParseID(raw)
	if err != nil || id == 0 {
		return 0, schema.Errorf(schema.Invalid, "%s must be a whole number from 1 to %d", name, int64(schema.IDMax))
	}
	return id, nil
}

// queryInt reads a whole number between low and high.
func queryInt(q map[string]string, name string, fallback, low, high int) (int, error) {
	raw, there := q[name]
	if !there {
		return fallback, nil
	}
	n, err := strconv.Atoi(raw)
	if err != nil || n < low || n > high {
		return 0, schema.Errorf(schema.Invalid, "%s must be a whole number from %d to %d", name, low, high)
	}
	return n, nil
}

// id checks an identifier of a JSON body.
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

// seconds is a duration in JSON: a number of seconds, or words such as "90s" or "1h30m".
type seconds time.Duration

// UnmarshalJSON reads both forms.
func (s *seconds) UnmarshalJSON(raw []byte) error {
	text, _ := unquote(raw)
	d, err := parseSeconds(text)
	*s = seconds(d)
	return err
}

// unquote returns what a JSON string says, or any other JSON value as it stands.
func unquote(raw []byte) (text string, quoted bool) {
	if s, err := jsontext.AppendUnquote(nil, raw); err == nil {
		return string(s), true
	}
	return string(raw), false
}

// parseSeconds reads a number of seconds or a Go duration.
func parseSeconds(text string) (time.Duration, error) {
	bad := schema.Errorf(schema.Invalid, "%q is not a duration: want seconds, or words such as \"90s\" or \"1h30m\"", clip(text))
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(n) || n < -1e9 || n > 1e9 {
			return 0, bad
		}
		return time.Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, bad
	}
	return d, nil
}

// MarshalJSON writes seconds.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

func secondsOf(list []time.Duration) []seconds {
	out := make([]seconds, len(list))
	for i, d := range list {
		out[i] = seconds(d)
	}
	return out
}

func durationsOf(list []seconds) []time.Duration {
	out := make([]time.Duration, len(list))
	for i, s := range list {
		out[i] = time.Duration(s)
	}
	return out
}

// stamp writes a time as the API shows it: RFC 3339, UTC, milliseconds; "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// actor checks that the user that a request names acts for itself, where the field is left out. Whether one may act for
// somebody else is for the policies.
func actor(u *schema.User, named schema.UserID) schema.UserID {
	if named == 0 {
		return u.ID
	}
	return named
}
