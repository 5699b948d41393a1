package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// change is what PutFunction takes.
type change = func(f *schema.Function, v *schema.FunctionVersion) error

// sum is the hash of some code.
func sum(c string) string { return strings.Repeat(c, 64) }

func code(c string) change {
	return func(_ *schema.Function, v *schema.FunctionVersion) error { v.SHA256 = sum(c); return nil }
}

func function(t *testing.T, c *Catalog, owner schema.UserID, name string, changes ...change) *schema.Function {
	t.Helper()
	f, err := c.PutFunction(ctx, name, owner, func(f *schema.Function, v *schema.FunctionVersion) (err error) {
		for _, change := range changes {
			err = errors.Join(err, change(f, v))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestVersionsOfAFunction(t *testing.T) {
	c, store := fresh(t)
	shop := user(t, c, "shop")
	f := function(t, c, shop, "f", code("a"))
	if f.ID == 0 || f.Owner != shop || f.Live != 1 || len(f.Versions) != 1 || f.Version("").Timeout != schema.FunctionTimeoutDefault || f.MaxInstances != schema.FunctionInstancesDefault {
		t.Fatalf("a new function: %+v", f)
	}
	same := function(t, c, shop, "f", func(f *schema.Function, _ *schema.FunctionVersion) error { f.MinInstances = 1; return nil })
	if len(same.Versions) != 1 || same.MinInstances != 1 || same.ID != f.ID || !same.CreatedAt.Equal(f.CreatedAt) {
		t.Errorf("a change that is no version's: %+v", same)
	}
	if f.MinInstances != 0 {
		t.Error("a function changed under those who hold it")
	}
	for n, change := range []change{code("b"),
		func(_ *schema.Function, v *schema.FunctionVersion) error { v.Memory = 512; return nil },
		func(_ *schema.Function, v *schema.FunctionVersion) error { v.Timeout = time.Minute; return nil },
		func(_ *schema.Function, v *schema.FunctionVersion) error { v.Handler = "app.other"; return nil },
		func(_ *schema.Function, v *schema.FunctionVersion) error {
			v.Env = map[string]string{"A": "1"}
			return nil
		},
		func(_ *schema.Function, v *schema.FunctionVersion) error {
			v.Env = map[string]string{"B": "1"}
			return nil
		},
	} {
		if f = function(t, c, shop, "f", change); f.Live != n+2 || f.Version(schema.QualifierLatest).Number != n+2 {
			t.Errorf("change %d makes version %d", n, f.Live)
		}
	}
	if last := f.Version(""); last.SHA256 != sum("b") || last.Memory != 512 || last.Handler != "app.other" || !maps.Equal(last.Env, map[string]string{"B": "1"}) {
		t.Errorf("the last version: %+v", last)
	}
	if f, err := c.RollBack(ctx, "f", 1); err != nil || f.Live != 1 || f.Version("").SHA256 != sum("a") || f.Version(schema.QualifierLatest).Number != 7 || f.Version("3").Memory != 512 {
		t.Errorf("rolled back: %+v %v", f, err)
	}
	before := c.Revision()
	for name, version := range map[string]int{"f": 8, "g": 1} {
		if _, err := c.RollBack(ctx, name, version); schema.KindOf(err) != schema.NotFound {
			t.Errorf("version %d of %s: %v", version, name, err)
		}
	}
	if c.Revision() != before || c.Function("f").Live != 1 {
		t.Error("a refused call changed something")
	}
	if again := open(t, store).Function("f"); again == nil || again.Live != 1 || len(again.Versions) != 7 {
		t.Errorf("as another node sees it: %+v", again)
	}
}

func TestOldVersionsGo(t *testing.T) {
	c, _ := fresh(t)
	shop := user(t, c, "shop")
	function(t, c, shop, "f", code("a"))
	if !c.ArtifactUsed(sum("a")) || c.ArtifactUsed(sum("b")) {
		t.Error("which code is used")
	}
	var f *schema.Function
	for n := range schema.FunctionVersionsMax {
		f = function(t, c, shop, "f", code("b"), func(_ *schema.Function, v *schema.FunctionVersion) error {
			v.Memory = 100 + n
			return nil
		})
	}
	if len(f.Versions) != schema.FunctionVersionsMax || f.Live != schema.FunctionVersionsMax+1 || f.Version("1") != nil || f.Version("2") == nil {
		t.Errorf("%d versions, version %d is live", len(f.Versions), f.Live)
	}
	if c.ArtifactUsed(sum("a")) || !c.ArtifactUsed(sum("b")) {
		t.Error("which code is used, after the first version went")
	}
}

func TestBadFunctionsAreRefusedAndChangeNothing(t *testing.T) {
	c, _ := fresh(t)
	shop, billing := user(t, c, "shop"), user(t, c, "billing")
	foreign := topic(t, c, billing, "foreign")
	function(t, c, shop, "f", code("a"))
	before := c.Revision()
	for _, name := range []string{"", "a b", "a/b", "ü", "a:1", strings.Repeat("x", schema.FunctionNameBytesMax+1)} {
		if _, err := c.PutFunction(ctx, name, shop, code("a")); schema.KindOf(err) != schema.Invalid {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	many, two := schema.FunctionInstancesMax+1, 2
	for what, bad := range map[string]func(f *schema.Function, v *schema.FunctionVersion){
		"no hash":             func(_ *schema.Function, v *schema.FunctionVersion) { v.SHA256 = "abc" },
		"a short timeout":     func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout = schema.FunctionTimeoutMin - 1 },
		"a long timeout":      func(_ *schema.Function, v *schema.FunctionVersion) { v.Timeout = schema.FunctionTimeoutMax + 1 },
		"little memory":       func(_ *schema.Function, v *schema.FunctionVersion) { v.Memory = schema.FunctionMemoryMin - 1 },
		"much memory":         func(_ *schema.Function, v *schema.FunctionVersion) { v.Memory = schema.FunctionMemoryMax + 1 },
		"a long handler":      func(_ *schema.Function, v *schema.FunctionVersion) { v.Handler = strings.Repeat("x", 1000) },
		"a handler with NUL":  func(_ *schema.Function, v *schema.FunctionVersion) { v.Handler = "a\x00b" },
		"the node's variable": func(_ *schema.Function, v *schema.FunctionVersion) { v.Env = map[string]string{"AWS_LAMBDA_X": ""} },
		"the task root":       func(_ *schema.Function, v *schema.FunctionVersion) { v.Env = map[string]string{"LAMBDA_TASK_ROOT": ""} },
		"an odd variable":     func(_ *schema.Function, v *schema.FunctionVersion) { v.Env = map[string]string{"A=B": ""} },
		"a value with NUL":    func(_ *schema.Function, v *schema.FunctionVersion) { v.Env = map[string]string{"A": "\x00"} },
		"much environment": func(_ *schema.Function, v *schema.FunctionVersion) {
			v.Env = map[string]string{"A": strings.Repeat("x", schema.FunctionEnvBytesMax)}
		},
		"no instances":         func(f *schema.Function, _ *schema.FunctionVersion) { f.MaxInstances = 0 },
		"many instances":       func(f *schema.Function, _ *schema.FunctionVersion) { f.MaxInstances = many },
		"more warm than there": func(f *schema.Function, _ *schema.FunctionVersion) { f.MinInstances, f.MaxInstances = two, 1 },
		"many reserved":        func(f *schema.Function, _ *schema.FunctionVersion) { f.Reserved = &many },
		"a short idle time":    func(f *schema.Function, _ *schema.FunctionVersion) { f.IdleStop = time.Millisecond },
		"an odd url":           func(f *schema.Function, _ *schema.FunctionVersion) { f.URLAuth = "open" },
		"many retries":         func(f *schema.Function, _ *schema.FunctionVersion) { f.Async.MaxRetries = schema.EventRetriesMax + 1 },
		"a short age":          func(f *schema.Function, _ *schema.FunctionVersion) { f.Async.MaxAge = time.Second },
		"no such invoker":      func(f *schema.Function, _ *schema.FunctionVersion) { f.Invokers = []schema.UserID{999} },
		"many invokers": func(f *schema.Function, _ *schema.FunctionVersion) {
			f.Invokers = slices.Repeat([]schema.UserID{shop}, schema.FunctionInvokersMax+1)
		},
		"no such topic":   func(f *schema.Function, _ *schema.FunctionVersion) { f.Async.OnSuccess = 77 },
		"someone's topic": func(f *schema.Function, _ *schema.FunctionVersion) { f.Async.DeadLetter = foreign.ID },
	} {
		for _, name := range []string{"f", "new"} { // a function that is there, and one that is not
			_, err := c.PutFunction(ctx, name, shop, func(f *schema.Function, v *schema.FunctionVersion) error {
				v.SHA256 = sum("b")
				bad(f, v)
				return nil
			})
			if schema.KindOf(err) != schema.Invalid {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if _, err := c.PutFunction(ctx, "new", 999, code("a")); schema.KindOf(err) != schema.NotFound {
		t.Errorf("no owner: %v", err)
	}
	refusal := errors.New("no")
	if _, err := c.PutFunction(ctx, "f", shop, func(f *schema.Function, _ *schema.FunctionVersion) error { f.MinInstances = 1; return refusal }); !errors.Is(err, refusal) {
		t.Errorf("the caller's own refusal: %v", err)
	}
	if c.Revision() != before || c.Function("new") != nil || c.Function("f").Live != 1 {
		t.Error("a refused call changed something")
	}
	if err := c.Grant(ctx, foreign.ID, shop); err != nil {
		t.Fatal(err)
	}
	function(t, c, shop, "f", func(f *schema.Function, _ *schema.FunctionVersion) error { f.Async.DeadLetter = foreign.ID; return nil })
}

func TestDeletingAFunctionEndsItsEvents(t *testing.T) {
	c, _ := fresh(t)
	shop := user(t, c, "shop")
	f := function(t, c, shop, "f", code("a"))
	events, err := c.EventTopic(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	sub := c.TopicSubscriptions(events.ID)
	if len(sub) != 1 || sub[0].State != schema.Active || sub[0].Target.Function != "f" {
		t.Fatalf("the subscription to its events: %+v", sub)
	}
	if err := c.DeleteFunction(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	gone, _, _ := c.Topic(events.ID)
	if c.Function("f") != nil || gone != nil || c.Subscription(sub[0].ID).State != schema.Ended || c.ArtifactUsed(sum("a")) {
		t.Error("something is left")
	}
	if err := c.DeleteFunction(ctx, "f"); schema.KindOf(err) != schema.NotFound {
		t.Errorf("twice: %v", err)
	}
	if _, err := c.EventTopic(ctx, "f"); schema.KindOf(err) != schema.NotFound {
		t.Errorf("events of none: %v", err)
	}
	again := function(t, c, shop, "f", code("a"))
	if again.ID == f.ID || again.Events != 0 || again.Live != 1 {
		t.Errorf("a new one of the same name: %+v", again)
	}
}

// TestEventTopicIsMadeOnce lets two nodes accept the first events of a function at the same time.
func TestEventTopicIsMadeOnce(t *testing.T) {
	c, store := fresh(t)
	shop := user(t, c, "shop")
	function(t, c, shop, "f", code("a"))
	nodes := []*Catalog{c, open(t, store)}
	ids := make([]schema.TopicID, 8)
	var callers sync.WaitGroup
	for i := range ids {
		callers.Go(func() {
			made, err := nodes[i%2].EventTopic(ctx, "f")
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = made.ID
		})
	}
	callers.Wait()
	if slices.Min(ids) != slices.Max(ids) {
		t.Fatalf("topics %v", ids)
	}
	if made := c.AllTopics(); len(made) != 1 || made[0].ID != ids[0] || !made[0].Internal {
		t.Errorf("topics %+v", made)
	}
	if err := c.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	function(t, c, shop, "f", func(f *schema.Function, _ *schema.FunctionVersion) error {
		f.MaxInstances, f.Async.MaxRetries = 3, 1
		return nil
	})
	if s := c.TopicSubscriptions(ids[0]); len(s) != 1 || s[0].Target.Concurrency != 3 || s[0].MaxAttempts != 2 {
		t.Errorf("its subscription does not follow the function: %+v", s)
	}
}

func TestTargetsThatAreFunctions(t *testing.T) {
	c, _ := fresh(t)
	shop := user(t, c, "shop")
	orders := topic(t, c, shop, "orders")
	function(t, c, shop, "f", code("a"), func(_ *schema.Function, v *schema.FunctionVersion) error { v.Timeout = time.Minute; return nil })
	before := c.Revision()
	for what, bad := range map[string]schema.Subscription{
		"no such function":        {Target: schema.Target{Function: "g"}, AckDeadline: time.Minute},
		"no such version":         {Target: schema.Target{Function: "f:2"}, AckDeadline: time.Minute},
		"an odd qualifier":        {Target: schema.Target{Function: "f:x"}, AckDeadline: time.Minute},
		"a deadline below it":     {Target: schema.Target{Function: "f"}, AckDeadline: 30 * time.Second},
		"a timeout above that":    {Target: schema.Target{Function: "f", Timeout: 2 * time.Minute}, AckDeadline: time.Minute},
		"more than one batch may": {Target: schema.Target{Function: "f", BatchSize: 1 << 20}, AckDeadline: time.Minute},
	} {
		bad.Topic, bad.Consumer, bad.Target.Type = orders.ID, shop, schema.TargetFunction
		if _, err := c.Subscribe(ctx, bad, true, true); schema.KindOf(err) != schema.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if c.Revision() != before {
		t.Error("a refused call changed something")
	}
	for i, function := range []string{"f", "f:1", "f:live", "f:$LATEST"} {
		consumer := user(t, c, fmt.Sprint("consumer", i))
		s := schema.Subscription{Topic: orders.ID, Consumer: consumer, AckDeadline: time.Minute, Target: schema.Target{Type: schema.TargetFunction, Function: function}}
		if made, err := c.Subscribe(ctx, s, true, true); err != nil || made.State != schema.Active {
			t.Errorf("%s: %v", function, err)
		}
	}
}

func TestFunctionsArePaged(t *testing.T) {
	c, _ := fresh(t)
	shop, billing := user(t, c, "shop"), user(t, c, "billing")
	for i, name := range []string{"d", "a", "c", "b"} {
		function(t, c, []schema.UserID{shop, billing}[i%2], name, code("a"))
	}
	names := func(after string, limit int, owner schema.UserID) (list string) {
		for _, f := range c.Functions(after, limit, func(f *schema.Function) bool { return owner == 0 || f.Owner == owner }) {
			list += f.Name
		}
		return list
	}
	if all, page, own := names("", 10, 0), names("a", 2, 0), names("", 10, shop); all != "abcd" || page != "bc" || own != "cd" {
		t.Errorf("%s, %s, %s", all, page, own)
	}
}
