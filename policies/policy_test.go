package policies

import (
	"context"
	"testing"

	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/tester"
)

// The built-in policy's own tests pass, and together they run every line of it.
func TestBuiltinPolicy(t *testing.T) {
	src, err := loadEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	coverage := cover.New()
	ctx := context.Background()
	store := src.store()
	ran := 0
	err = storage.Txn(ctx, store, storage.WriteParams, func(txn storage.Transaction) error {
		results, err := tester.NewRunner().SetStore(store).SetModules(src.modules()).SetCoverageQueryTracer(coverage).RunTests(ctx, txn)
		if err != nil {
			return err
		}
		for r := range results {
			ran++
			if !r.Pass() {
				t.Errorf("%s", r)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran < 20 {
		t.Errorf("only %d tests ran", ran)
	}
	report := coverage.Report(src.policies())
	for name, file := range report.Files {
		if len(file.NotCovered) > 0 {
			t.Errorf("%s: lines without a test: %v", name, file.NotCovered)
		}
	}
	if len(report.Files) == 0 {
		t.Error("no file was covered")
	}
}
