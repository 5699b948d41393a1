// Package cql holds the numbered migrations of the cluster store's tables. A released file never changes.
package cql

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

//go:embed *.cql
var files embed.FS

// Migration is one file.
type Migration struct {
	Version    int // dense from 1
	Name       string
	Checksum   string // of the file, SHA-256 in hex
	Statements []string
}

// Migrations returns all of them in order.
func Migrations() ([]Migration, error) { return read(files) }

func read(dir fs.FS) (ms []Migration, err error) {
	names, err := fs.Glob(dir, "*.cql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for i, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(name, "_")
		if v, err := strconv.Atoi(number); err != nil || v != i+1 {
			return nil, fmt.Errorf("migration %s: want number %d", name, i+1)
		}
		sum := sha256.Sum256(text)
		ms = append(ms, Migration{Version: i + 1, Name: name, Checksum: hex.EncodeToString(sum[:]), Statements: split(string(text))})
	}
	return ms, nil
}

// split cuts a file into statements. A comment has a line of its own; a statement ends with a semicolon at a line's end.
func split(text string) (statements []string) {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\n")
		if line == "" || strings.HasPrefix(strings.TrimSpace(line), "--") {
			continue
		}
		lines = append(lines, strings.TrimSuffix(line, ";"))
		if strings.HasSuffix(line, ";") {
			statements = append(statements, strings.Join(lines, "\n"))
			lines = nil
		}
	}
	if len(lines) > 0 {
		statements = append(statements, strings.Join(lines, "\n"))
	}
	return statements
}
