package gateway

import (
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// params are the query parameters of a request. The first that is wrong stays in err; whoever reads them looks at it once, at the end.
type params struct {
	given []param
	err   error
}

type param struct{ name, value string }

// paramsOf reads query parameters: each at most once, and none that the route does not know.
func paramsOf(c *fiber.Ctx, names ...string) *params {
	q := &params{given: make([]param, 0, len(names))}
	for k, v := range c.Context().QueryArgs().All() {
		i := slices.IndexFunc(names, func(name string) bool { return name == string(k) })
		switch {
		case i < 0:
			q.refuse("there is no query parameter %q here", clip(string(k)))
		case q.has(names[i]):
			q.refuse("query parameter %q is there twice", names[i])
		default:
			q.given = append(q.given, param{names[i], string(v)})
		}
	}
	return q
}

func (q *params) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = schema.Errorf(schema.Invalid, format, args...)
	}
}

func (q *params) find(name string) (string, bool) {
	for i := range q.given {
		if q.given[i].name == name {
			return q.given[i].value, true
		}
	}
	return "", false
}

// has tells whether a parameter was given.
func (q *params) has(name string) bool {
	_, given := q.find(name)
	return given
}

// text is a parameter as it stands; "" when it is not there.
func (q *params) text(name string) string {
	value, _ := q.find(name)
	return value
}

// number reads a whole number between low and high.
func (q *params) number(name string, fallback, low, high int) int {
	raw, given := q.find(name)
	if !given {
		return fallback
	}
	n, err := strconv.Atoi(raw)
	if err != nil || n < low || n > high {
		q.refuse("%s must be a whole number from %d to %d", name, low, high)
	}
	return n
}

// wait is how long a long poll may last.
func (q *params) wait() time.Duration {
	if q.text("wait") == "" {
		return 0
	}
	d, err := parseSeconds(q.text("wait"))
	if err != nil || d < 0 || d > schema.PullWaitMax {
		q.refuse("wait must be between 0 and %v", schema.PullWaitMax)
	}
	return d
}

// limit is how many a listing shows.
func (q *params) limit() int { return q.number("limit", 100, 1, schema.ListMax) }

// optionalID reads an identifier that may be left out.
func optionalID[T ~int64](q *params, name string) T {
	raw, given := q.find(name)
	if !given {
		return 0
	}
	id, err := schema.ParseID(raw)
	if err != nil || id == 0 {
		q.refuse("%s must be a whole number from 1 to %d", name, int64(schema.IDMax))
	}
	return T(id)
}

// neededID reads an identifier that must be there.
func neededID[T ~int64](q *params, name string) T {
	if !q.has(name) {
		q.refuse("query parameter %q is missing", name)
	}
	return optionalID[T](q, name)
}
