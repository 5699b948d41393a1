package gateway

import (
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/handfast-mq/handfast/schema"
)

// secondsMax is above every duration that means something here.
const secondsMax = 1e9

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
	if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
		if n < -secondsMax || n > secondsMax {
			return 0, schema.Errorf(schema.Invalid, "%s seconds are too many", clip(text))
		}
		return time.Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, schema.Errorf(schema.Invalid, "%q is not a duration: want seconds, or words such as \"90s\" or \"1h30m\"", clip(text))
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

// setSeconds copies a duration that a request gave.
func setSeconds(to *time.Duration, from *seconds) {
	if from != nil {
		*to = time.Duration(*from)
	}
}
