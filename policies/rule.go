package policies

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/handfast-mq/handfast/schema"
)

// RulePackage is the package that a user's rule is written in. It may define publish, subscribe and auto_approve, each
// true or false (undefined is false), over the same input as the policies'.
const RulePackage = "handfast.rule"

// questions are what a user's rule is asked on an action; one yes is a yes. Who may publish or subscribe by a rule may
// also see the topic.
var questions = map[schema.Action][]schema.Action{
	schema.ActionPublish:     {schema.ActionPublish},
	schema.ActionSubscribe:   {schema.ActionSubscribe},
	schema.ActionAutoApprove: {schema.ActionAutoApprove},
	schema.ActionReadTopic:   {schema.ActionPublish, schema.ActionSubscribe},
}

// answers are the names that a user's rule may define.
var answers = map[schema.Action]bool{schema.ActionPublish: true, schema.ActionSubscribe: true, schema.ActionAutoApprove: true}

// ruleBuiltins are the functions that a user's rule may call. A rule answers yes or no, so it gets what looks at
// things: nothing that reaches the network, the process or other policies, and nothing that makes large things of
// small ones, since a deadline does not bound memory.
var ruleBuiltins = wordSet(`eq equal neq lt lte gt gte assign plus minus div rem abs ceil floor round
	and or count sum max min sort internal.member_2 internal.member_3
	startswith endswith contains lower upper trim trim_left trim_right trim_prefix trim_suffix trim_space split
	substring indexof strings.any_prefix_match strings.any_suffix_match regex.match glob.match
	net.cidr_contains object.get object.keys array.slice to_number
	is_number is_string is_boolean is_array is_set is_object is_null type_name
	time.now_ns time.parse_rfc3339_ns time.parse_duration_ns time.date time.clock time.weekday
	semver.compare semver.is_valid`)

func wordSet(s string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(s) {
		out[w] = true
	}
	return out
}

// ruleCapabilities are what a user's rule is compiled with.
var ruleCapabilities = sync.OnceValue(func() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	kept := make([]*ast.Builtin, 0, len(ruleBuiltins))
	for _, b := range c.Builtins {
		if ruleBuiltins[b.Name] {
			kept = append(kept, b)
		}
	}
	c.Builtins = kept
	c.AllowNet = []string{}
	return c
})

const (
	// nestingMax bounds how deep a rule's brackets go. Evaluating what is nested thousands deep does not look at its deadline.
	nestingMax = 100
	// restMin and restMax bound how long a rule rests that did not answer in time, longer each time in a row: everybody who lists
	// topics would wait for it.
	restMin = time.Second
	restMax = time.Minute
)

// rule is one user's rule, ready to be asked.
type rule struct {
	err      error // it does not compile: every answer is no
	volatile bool
	answers  map[schema.Action]rego.PreparedEvalQuery // of what it defines

	mu    sync.Mutex
	rest  time.Duration // the last one; 0 = it answered in time
	until time.Time     // its end
}

// rests tells whether a rule is left alone, because it did not answer in time a moment ago.
func (u *rule) rests(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return now.Before(u.until)
}

// asked notes whether a rule answered in time.
func (u *rule) asked(now time.Time, inTime bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if inTime {
		u.rest = 0
		return
	}
	u.rest = min(max(2*u.rest, restMin), restMax)
	u.until = now.Add(u.rest)
}

// CheckRule says, with words for the author, what is wrong with a user's rule.
func CheckRule(text string) error {
	_, err := compileRule(text)
	return err
}

func compileRule(text string) (r *rule, err error) {
	defer func() {
		if p := recover(); p != nil {
			r, err = nil, schema.Errorf(schema.Invalid, "the rule cannot be compiled")
		}
	}()
	if len(text) > schema.RegoBytesMax {
		return nil, schema.Errorf(schema.TooLarge, "the rule has more than %d bytes", schema.RegoBytesMax)
	}
	if nesting(text) > nestingMax {
		return nil, schema.Errorf(schema.Invalid, "the rule's brackets are nested more than %d deep", nestingMax)
	}
	module, err := ast.ParseModule("rule.rego", text)
	if err != nil {
		return nil, schema.Errorf(schema.Invalid, "the rule cannot be read: %s", clip(err.Error()))
	}
	defined, err := checkModule(module)
	if err != nil {
		return nil, err
	}
	compiler := ast.NewCompiler().WithCapabilities(ruleCapabilities())
	compiler.Compile(map[string]*ast.Module{"rule.rego": module})
	if compiler.Failed() {
		return nil, schema.Errorf(schema.Invalid, "the rule cannot be compiled: %s", clip(compiler.Errors.Error()))
	}
	r = &rule{volatile: volatile(compiler), answers: map[schema.Action]rego.PreparedEvalQuery{}}
	for action := range defined {
		r.answers[action], err = rego.New(rego.Compiler(compiler), rego.Query("data."+RulePackage+"."+string(action)),
			rego.StrictBuiltinErrors(true)).PrepareForEval(context.Background())
		if err != nil {
			return nil, schema.WrapError(schema.Invalid, err, "the rule cannot be compiled")
		}
	}
	return r, nil
}

// nesting is how deep the brackets of a text go, those in words and comments included.
func nesting(text string) (deepest int) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// checkModule returns the actions that a rule decides on.
func checkModule(m *ast.Module) (map[schema.Action]bool, error) {
	if got := strings.TrimPrefix(m.Package.Path.String(), "data."); got != RulePackage {
		return nil, schema.Errorf(schema.Invalid, "the rule must begin with: package %s", RulePackage)
	}
	defined := map[schema.Action]bool{}
	for _, r := range m.Rules {
		name := schema.Action(strings.Trim(r.Head.Ref()[0].Value.String(), `"`))
		if !answers[name] {
			continue
		}
		if len(r.Head.Ref()) != 1 || len(r.Head.Args) > 0 || r.Head.Key != nil {
			return nil, schema.Errorf(schema.Invalid, "%s must be true or false", name)
		}
		defined[name] = true
	}
	if len(defined) == 0 {
		return nil, schema.Errorf(schema.Invalid, "the rule must define publish, subscribe or auto_approve")
	}
	return defined, nil
}

// ownRule returns the user's rule that governs the request's topic, when it has a say in the action.
func ownRule(r *schema.AuthRequest) *schema.Rule {
	if r.Topic == nil || r.Rule == nil || r.Rule.ID != r.Topic.Rule || builtin(r.Rule) || questions[r.Action] == nil {
		return nil
	}
	return r.Rule
}

// askRule asks a user's rule about an action. Any failure is a no. stable is true when the answer depends on nothing
// but the nouns.
func (a *Authorizer) askRule(ctx context.Context, own *schema.Rule, r *schema.AuthRequest, doc document) (says, stable bool) {
	compiled, began := a.compiled(own.Rego), time.Now()
	switch {
	case compiled.err != nil:
		return false, true
	case compiled.rests(began):
		return false, false
	}
	timeout := a.opts.Timeout / 2 // leaves the policies time to decide without it
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	says, err := compiled.ask(ctx, r, doc)
	ended := time.Now()
	compiled.asked(ended, ended.Sub(began) < timeout) // a request that ended before is not the rule's fault
	if err != nil {
		a.opts.Logger.Info("no answer from a topic's own rule", "rule_id", int64(own.ID), "action", string(r.Action), "error", clip(err.Error()))
		return false, false
	}
	return says, !compiled.volatile
}

// compiled returns the rule of a text, compiling it when it is new. Two may compile the same at once; one stays.
func (a *Authorizer) compiled(text string) *rule {
	if r, ok := a.rules.Get(text); ok {
		return r
	}
	r, err := compileRule(text)
	if err != nil {
		r = &rule{err: err}
	}
	a.rules.Add(text, r)
	return r
}

func (u *rule) ask(ctx context.Context, r *schema.AuthRequest, doc document) (bool, error) {
	input, err := ast.InterfaceToValue(doc)
	if err != nil {
		return false, err
	}
	for _, question := range questions[r.Action] {
		query, ok := u.answers[question]
		if !ok {
			continue
		}
		results, err := query.Eval(ctx, rego.EvalParsedInput(input), rego.EvalTime(r.At))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return false, err
		}
		if yes(results) {
			return true, nil
		}
	}
	return false, nil
}

// yes is one result that is the literal true.
func yes(results rego.ResultSet) bool {
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		return false
	}
	says, _ := results[0].Expressions[0].Value.(bool)
	return says
}

// setSays puts a rule's answer where the policies look for it.
func setSays(doc document, says bool) {
	topic, _ := doc["topic"].(document)
	if own, ok := topic["rule"].(document); ok {
		own["says"] = says
	}
}
