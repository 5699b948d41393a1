package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printer writes what a verb found: aligned for people, or JSON for programs.
type printer struct {
	w    io.Writer
	json bool
}

// document writes v as one line of JSON.
func (p *printer) document(v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := p.w.Write(line.Bytes())
	return err
}

// one writes one noun: for people, a line for each of its fields.
func (p *printer) one(v any) error {
	if p.json {
		return p.document(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.Token()
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		word := string(value)
		var s string
		if json.Unmarshal(value, &s) == nil {
			word = clean(s)
		}
		fmt.Fprintf(t, "%s\t%s\n", name, word)
	}
	return t.Flush()
}

// list writes many nouns: for people, a line for each, under the column names.
func list[T any](p *printer, items []T, columns string, row func(T) []any) error {
	if p.json {
		if items == nil {
			items = []T{}
		}
		return p.document(items)
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(columns, " ", "\t"))
	for _, item := range items {
		words := row(item)
		for i, w := range words {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, word(w))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// say tells people what was done; programs learn it from the exit code and an empty object.
func (p *printer) say(format string, args ...any) error {
	if p.json {
		return p.document(struct{}{})
	}
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	return err
}

// word writes one cell: "-" for nothing, and no character that would move the cursor.
func word(v any) string {
	s := ""
	switch v := v.(type) {
	case time.Time:
		if !v.IsZero() {
			s = v.UTC().Format("2006-01-02 15:04:05")
		}
	default:
		s = clean(fmt.Sprint(v))
	}
	if s == "" || s == "0" {
		return "-"
	}
	return s
}

// clean makes text safe for a terminal: control characters come as Go writes them.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			q := fmt.Sprintf("%q", r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
