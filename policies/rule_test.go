package policies

import (
	"strings"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func TestCheckRule(t *testing.T) {
	const head = "package handfast.rule\n"
	for name, c := range map[string]struct {
		text string
		want schema.Kind // 0 = accepted
	}{
		"plain":         {head + `publish if input.principal.labels.team == "red"`, 0},
		"all three":     {head + "publish := true\nsubscribe := true\ndefault auto_approve := false", 0},
		"helper":        {head + "publish if red(input.principal)\nred(u) if u.labels.team == \"red\"", 0},
		"functions":     {head + `publish if { regex.match("^a", input.topic.name); net.cidr_contains("10.0.0.0/8", input.request.address); "x" in input.principal.roles; time.now_ns() > 0 }`, 0},
		"empty":         {"", schema.Invalid},
		"syntax":        {head + "publish if {", schema.Invalid},
		"package":       {"package handfast.authz\npublish := true", schema.Invalid},
		"no answer":     {head + "other := true", schema.Invalid},
		"set":           {head + "publish contains 1", schema.Invalid},
		"function":      {head + "publish(x) := true", schema.Invalid},
		"nested":        {head + "publish.x := true", schema.Invalid},
		"http":          {head + `publish if http.send({"method": "get", "url": "http://127.0.0.1"}).status_code == 200`, schema.Invalid},
		"dns":           {head + `publish if net.lookup_ip_addr("localhost")`, schema.Invalid},
		"runtime":       {head + `publish if opa.runtime().env.HOME`, schema.Invalid},
		"parse":         {head + `publish if rego.parse_module("x", "package x")`, schema.Invalid},
		"random":        {head + `publish if rand.intn("x", 2) == 1`, schema.Invalid},
		"memory":        {head + `publish if sprintf("%1000000d", [1]) != ""`, schema.Invalid},
		"join":          {head + `publish if concat("", ["a", "b"]) == "ab"`, schema.Invalid},
		"shift":         {head + `publish if bits.lsh(1, 1000000000000) > 0`, schema.Invalid},
		"range":         {head + `publish if count(numbers.range(1, 1000000000)) > 0`, schema.Invalid},
		"interpolation": {head + `publish if $"{input.topic.name}" == "x"`, schema.Invalid},
		"recursive":     {head + "publish if subscribe\nsubscribe if publish", schema.Invalid},
		"deep":          {head + "publish if x := " + strings.Repeat("[", 101) + strings.Repeat("]", 101), schema.Invalid},
		"deep enough":   {head + "publish if x := " + strings.Repeat("[", 100) + strings.Repeat("]", 100), 0},
		"large":         {head + strings.Repeat("# comment\n", schema.RegoBytesMax/10) + "publish := true", schema.TooLarge},
	} {
		err := CheckRule(c.text)
		if c.want == 0 && err != nil || c.want != 0 && (err == nil || schema.KindOf(err) != c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOwnRule(t *testing.T) {
	a := newTest(t, Options{})
	ask := func(text string, action schema.Action, u *schema.User) bool {
		r := &schema.Rule{ID: 100, Name: "mine", Rego: text}
		topic := &schema.Topic{ID: 1, Owner: 2, Rule: 100}
		return a.Authorize(t.Context(), &schema.AuthRequest{Principal: u, Action: action, Topic: topic, Rule: r}).Allow
	}
	const red = "package handfast.rule\npublish if input.principal.labels.team == \"red\"\nauto_approve := true"
	redUser := &schema.User{ID: 7, Labels: map[string]string{"team": "red"}}
	for _, c := range []struct {
		text   string
		action schema.Action
		user   *schema.User
		want   bool
	}{
		{red, schema.ActionPublish, redUser, true},
		{red, schema.ActionPublish, stranger, false},
		{red, schema.ActionPublish, owner, true},
		{red, schema.ActionSubscribe, redUser, false},
		{red, schema.ActionAutoApprove, redUser, true},
		{red, schema.ActionDeleteTopic, redUser, false},
		{red, schema.ActionReadTopic, redUser, true},
		{red, schema.ActionReadTopic, stranger, false},
		{"package handfast.rule\nsubscribe := true", schema.ActionReadTopic, stranger, true},
		{"package handfast.rule\nauto_approve := true", schema.ActionReadTopic, stranger, false},
		{"package handfast.rule\npublish := true\ndelete_topic := true", schema.ActionDeleteTopic, stranger, false},
		{"package handfast.rule\npublish := \"true\"", schema.ActionPublish, stranger, false},
		{"package handfast.rule\npublish := 1", schema.ActionPublish, stranger, false},
		{"package handfast.rule\npublish if data.handfast.authz.decision", schema.ActionPublish, stranger, false},
		{"package handfast.rule\npublish if not to_number(\"x\") == 1", schema.ActionPublish, stranger, false},
		{"not rego", schema.ActionPublish, stranger, false},
		{"", schema.ActionPublish, stranger, false},
	} {
		if got := ask(c.text, c.action, c.user); got != c.want {
			t.Errorf("%s by %d under %q: %v", c.action, c.user.ID, c.text, got)
		}
	}
}

// A rule that takes too long refuses those whom it speaks on, and nobody else.
func TestSlowRule(t *testing.T) {
	a := newTest(t, Options{Timeout: 2 * time.Second})
	slow := "package handfast.rule\nlist := [" + strings.Repeat("1,", 999) + "1]\n" +
		"publish if count([1 | some a in list; some b in list; some c in list; a + b + c == 0]) == 0"
	if err := CheckRule(slow); err != nil {
		t.Fatal(err)
	}
	r := &schema.Rule{ID: 100, Rego: slow}
	topic := &schema.Topic{ID: 1, Owner: 2, Rule: 100}
	if d := a.Authorize(t.Context(), publish(stranger, topic, r)); d.Allow || len(d.Reasons) == 0 {
		t.Errorf("%+v", d)
	}
	if !a.compiled(slow).rests(time.Now()) {
		t.Error("it is asked again by everybody")
	}
	if d := a.Authorize(t.Context(), publish(owner, topic, r)); !d.Allow {
		t.Errorf("the topic's owner: %+v", d)
	}
}

// A rule that does not answer in time rests, longer each time in a row, and is asked as before once it does.
func TestSlowRuleRests(t *testing.T) {
	var r rule
	now := time.Now()
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if r.rests(now) {
			t.Fatal("it rests after its rest")
		}
		r.asked(now, false)
		if now = now.Add(want*time.Second - 1); !r.rests(now) {
			t.Errorf("it does not rest %v s", int64(want))
		}
		now = now.Add(1)
	}
	r.asked(now, true)
	r.asked(now, false)
	if !r.rests(now) || r.rests(now.Add(restMin)) {
		t.Error("a rule that answered is not forgiven")
	}
}

// A rule that looks at the request is asked each time.
func TestVolatileRule(t *testing.T) {
	a := newTest(t, Options{})
	r := &schema.Rule{ID: 100, Rego: "package handfast.rule\npublish if input.request.tls"}
	req := publish(stranger, &schema.Topic{ID: 1, Owner: 2, Rule: 100}, r)
	for _, tls := range []bool{true, false, true} {
		req.TLS = tls
		if d := a.Authorize(t.Context(), req); d.Allow != tls {
			t.Errorf("tls %v: %+v", tls, d)
		}
	}
}
