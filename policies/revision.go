package policies

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/handfast-mq/handfast/schema"
)

const (
	query = "data.handfast.authz.decision"
	// testsTimeout bounds all tests of a bundle together.
	testsTimeout = 30 * time.Second
)

// revision is one loaded state of the policies, ready to be asked. It never changes.
type revision struct {
	number   uint64
	volatile bool // the policies look at the request's circumstances, at the clock or at chance
	query    rego.PreparedEvalQuery
}

// newRevision compiles the sources, runs their tests and prepares the query.
func newRevision(ctx context.Context, number uint64, src *sources) (*revision, error) {
	if err := runTests(ctx, src); err != nil {
		return nil, err
	}
	compiler := ast.NewCompiler().WithCapabilities(ast.CapabilitiesForThisVersion())
	compiler.Compile(src.policies())
	if compiler.Failed() {
		return nil, fmt.Errorf("compile: %w", compiler.Errors)
	}
	prepared, err := rego.New(rego.Compiler(compiler), rego.Store(src.store()), rego.Query(query),
		rego.StrictBuiltinErrors(true)).PrepareForEval(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return &revision{number: number, volatile: volatile(compiler), query: prepared}, nil
}

// decide evaluates the policies. With an error the decision is a refusal too.
func (v *revision) decide(ctx context.Context, doc document, at time.Time) (schema.Decision, error) {
	input, err := ast.InterfaceToValue(doc)
	if err != nil {
		return refuse("the policy failed"), err
	}
	results, err := v.query.Eval(ctx, rego.EvalParsedInput(input), rego.EvalTime(at))
	switch {
	case ctx.Err() != nil:
		return refuse("the policy did not decide in time"), ctx.Err()
	case err != nil:
		return refuse("the policy failed"), err
	}
	return decisionOf(results)
}

// runTests runs the test rules that came with the policies, if any, and fails when one of them does.
func runTests(ctx context.Context, src *sources) error {
	if !src.tested() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, testsTimeout)
	defer cancel()
	store := src.store()
	var failed []string
	err := storage.Txn(ctx, store, storage.WriteParams, func(txn storage.Transaction) error {
		results, err := tester.NewRunner().SetStore(store).SetParallel(1).CapturePrintOutput(true).
			SetModules(src.modules()).RaiseBuiltinErrors(true).RunTests(ctx, txn)
		if err != nil {
			return err
		}
		for r := range results {
			if !r.Pass() && !r.Skip {
				failed = append(failed, r.Package+"."+r.Name)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("run the policies' tests: %w", err)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of the policies' tests fail: %s", len(failed), clip(strings.Join(failed, ", ")))
	}
	return nil
}

// volatile tells whether compiled modules look at anything that is not in the cache's key: input.request, input as a
// whole or by a variable, or a built-in function whose answer changes.
func volatile(c *ast.Compiler) bool {
	found := false
	for _, m := range c.Modules {
		ast.WalkRefs(m, func(ref ast.Ref) bool {
			if ref.HasPrefix(ast.InputRootRef) {
				found = found || len(ref) < 2 || !isString(ref[1]) || ref[1].Equal(ast.StringTerm("request"))
			} else if changing()[ref.String()] {
				found = true
			}
			return found
		})
	}
	return found
}

// changing are the built-in functions whose answer is not given by their arguments.
var changing = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if b.IsNondeterministic() {
			names[b.Name] = true
		}
	}
	return names
})

func isString(t *ast.Term) bool {
	_, ok := t.Value.(ast.String)
	return ok
}

func newStore(data map[string]any) storage.Store {
	return inmem.NewFromObjectWithOpts(data, inmem.OptRoundTripOnWrite(false))
}
