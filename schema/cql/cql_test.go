package cql

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestMigrationsCanRunAgain: a migrator that died between two statements leaves the next one to run all of them.
func TestMigrationsCanRunAgain(t *testing.T) {
	ms, err := Migrations()
	if err != nil || len(ms) == 0 {
		t.Fatal(len(ms), err)
	}
	for _, m := range ms {
		for _, s := range m.Statements {
			if !strings.Contains(s, "IF NOT EXISTS") {
				t.Errorf("%s: a statement that cannot run twice:\n%s", m.Name, s)
			}
			if strings.Contains(s, ";") || strings.Contains(s, "--") {
				t.Errorf("%s: not one plain statement:\n%s", m.Name, s)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	got := split("-- a; comment\nCREATE a (\n  b int, -- no comment here\n  c text);\n\nCREATE d;\n-- end\n")
	want := []string{"CREATE a (\n  b int, -- no comment here\n  c text)", "CREATE d"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNumbersAreDense(t *testing.T) {
	_, err := read(fstest.MapFS{"0001_a.cql": {}, "0003_c.cql": {}})
	if err == nil || !strings.Contains(err.Error(), "0003_c.cql") {
		t.Errorf("a gap is not told: %v", err)
	}
}
