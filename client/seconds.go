package client

import (
	"encoding/json"
	"strconv"
	"time"
)

// Seconds is a duration that JSON shows in seconds.
type Seconds time.Duration

// MarshalJSON writes seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// UnmarshalJSON reads seconds.
func (s *Seconds) UnmarshalJSON(raw []byte) error {
	var n float64
	err := json.Unmarshal(raw, &n)
	*s = Seconds(n * float64(time.Second))
	return err
}

func (s Seconds) String() string { return time.Duration(s).String() }
