package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/handfast-mq/handfast/"

// below says what a folder may import of this module, beside its own subfolders and schema. What is not named here stands above everything.
var below = map[string][]string{
	"schema":      {},
	"partitions":  {"schema"},
	"functions":   {"schema"},
	"policies":    {"schema"},
	"gateway":     {"schema"},
	"client":      {"schema"},
	"integration": {"client", "internal", "schema"},
}

// TestArrowsPointDown reads the imports of every package, tests left out, and refuses those that point up or sideways.
func TestArrowsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	packages := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages++
		from, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, module), "/")
		allowed, limited := below[from]
		for _, i := range p.Imports {
			path, ours := strings.CutPrefix(i, module)
			to, _, _ := strings.Cut(path, "/")
			switch {
			case p.ImportPath == module+"schema" && strings.Contains(strings.Split(i, "/")[0], "."):
				t.Errorf("schema imports %s: its root has the standard library alone", i)
			case ours && limited && to != from && !contains(allowed, to):
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
	if packages < 15 {
		t.Fatalf("only %d packages were looked at", packages)
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
