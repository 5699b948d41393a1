package pebble

import (
	"fmt"
	"log/slog"
)

// logger routes Pebble's words to slog.
type logger struct{ *slog.Logger }

func (l logger) Infof(format string, args ...any)  { l.Debug(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// Fatalf ends the process, as Pebble expects: after a failed write of its own log it must not go on.
func (l logger) Fatalf(format string, args ...any) {
	l.Error(fmt.Sprintf(format, args...))
	panic("pebble: " + fmt.Sprintf(format, args...))
}
