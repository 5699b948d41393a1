package catalog

import (
	"context"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// functionsMax bounds the functions of a cluster: each node keeps all of them in memory.
const functionsMax = 10_000

// eventTimeoutSlack is what the delivery of an asynchronous invocation may take beyond the function's own timeout.
const eventTimeoutSlack = time.Minute

var (
	functionName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	envName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Function returns a function by its name, nil when there is none.
func (c *Catalog) Function(name string) *schema.Function {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state.functions[name]
}

// Functions returns the functions after a name, in order of name, up to limit.
func (c *Catalog) Functions(after string, limit int, pass func(*schema.Function) bool) []*schema.Function {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return page(c.state.functions, after, limit, pass)
}

// ArtifactUsed tells whether a version of any function is of this code.
func (c *Catalog) ArtifactUsed(sha256 string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, f := range c.state.functions {
		if slices.ContainsFunc(f.Versions, func(v schema.FunctionVersion) bool { return v.SHA256 == sha256 }) {
			return true
		}
	}
	return false
}

// CheckFunctionName refuses names that Lambda's clients could not send.
func CheckFunctionName(name string) error {
	if name == "" || len(name) > schema.FunctionNameBytesMax || !functionName.MatchString(name) {
		return schema.Errorf(schema.Invalid, "function_name must have 1 to %d letters, digits, - and _", schema.FunctionNameBytesMax)
	}
	return nil
}

// PutFunction makes a function, or changes one. fn gets a copy of what is there, or a new one with the defaults, and a version to
// fill; when it changes that version, the change becomes the newest version and goes live. fn may run several times.
func (c *Catalog) PutFunction(ctx context.Context, name string, owner schema.UserID, fn func(f *schema.Function, v *schema.FunctionVersion) error) (*schema.Function, error) {
	if err := CheckFunctionName(name); err != nil {
		return nil, err
	}
	err := c.update(ctx, func(tx *Tx) error {
		f, v := tx.functionToChange(name, owner)
		before := v
		if err := fn(&f, &v); err != nil {
			return err
		}
		if !sameVersion(&before, &v) {
			if err := checkVersion(&v); err != nil {
				return err
			}
			addVersion(&f, v, tx.Now)
		}
		return tx.putFunction(&f)
	})
	if err != nil {
		return nil, err
	}
	return c.Function(name), nil
}

func (tx *Tx) functionToChange(name string, owner schema.UserID) (schema.Function, schema.FunctionVersion) {
	if old := tx.s.functions[name]; old != nil {
		f := *old
		f.Versions = slices.Clone(old.Versions)
		return f, f.Versions[len(f.Versions)-1]
	}
	return schema.Function{Name: name, Owner: owner, MaxInstances: schema.FunctionInstancesDefault, IdleStop: schema.FunctionIdleDefault,
			Async: schema.AsyncConfig{MaxRetries: schema.EventRetriesMax, MaxAge: schema.EventAgeDefault}, CreatedAt: tx.Now},
		schema.FunctionVersion{Timeout: schema.FunctionTimeoutDefault, Memory: schema.FunctionMemoryDefault}
}

func sameVersion(a, b *schema.FunctionVersion) bool {
	same := a.SHA256 == b.SHA256 && a.Handler == b.Handler && a.Timeout == b.Timeout && a.Memory == b.Memory && len(a.Env) == len(b.Env)
	for k, v := range a.Env {
		w, there := b.Env[k]
		same = same && there && v == w
	}
	return same
}

// addVersion appends a version and makes it live. Above the limit the oldest one goes.
func addVersion(f *schema.Function, v schema.FunctionVersion, now time.Time) {
	v.Number, v.CreatedAt = 1, now
	if n := len(f.Versions); n > 0 {
		v.Number = f.Versions[n-1].Number + 1
	}
	f.Versions = append(f.Versions, v)
	f.Live = v.Number
	if len(f.Versions) > schema.FunctionVersionsMax {
		f.Versions = f.Versions[1:]
	}
}

func checkVersion(v *schema.FunctionVersion) error {
	if sum, err := hex.DecodeString(v.SHA256); err != nil || len(sum) != 32 {
		return schema.Errorf(schema.Invalid, "the function has no code yet: deploy some")
	}
	bytes := 0
	for k, w := range v.Env {
		bytes += len(k) + len(w)
		if !envName.MatchString(k) || strings.ContainsRune(w, 0) {
			return schema.Errorf(schema.Invalid, "env: names have letters, digits and _, and values no NUL")
		}
		if strings.HasPrefix(k, "AWS_LAMBDA_") || k == "_HANDLER" || k == "LAMBDA_TASK_ROOT" {
			return schema.Errorf(schema.Invalid, "env: %s is set by the node", k)
		}
	}
	switch {
	case bytes > schema.FunctionEnvBytesMax:
		return schema.Errorf(schema.Invalid, "env has more than %d bytes", schema.FunctionEnvBytesMax)
	case v.Timeout < schema.FunctionTimeoutMin || v.Timeout > schema.FunctionTimeoutMax:
		return schema.Errorf(schema.Invalid, "timeout must be between %v and %v", schema.FunctionTimeoutMin, schema.FunctionTimeoutMax)
	case v.Memory < schema.FunctionMemoryMin || v.Memory > schema.FunctionMemoryMax:
		return schema.Errorf(schema.Invalid, "memory must be between %d and %d MiB", schema.FunctionMemoryMin, schema.FunctionMemoryMax)
	case len(v.Handler) > schema.NameBytesMax || strings.ContainsRune(v.Handler, 0):
		return schema.Errorf(schema.Invalid, "handler has more than %d bytes", schema.NameBytesMax)
	}
	return nil
}

func (tx *Tx) checkFunction(f *schema.Function) error {
	switch {
	case len(f.Versions) == 0:
		return schema.Errorf(schema.Invalid, "the function has no code yet: deploy some")
	case f.MaxInstances < 1 || f.MaxInstances > schema.FunctionInstancesMax || f.MinInstances < 0 || f.MinInstances > f.MaxInstances:
		return schema.Errorf(schema.Invalid, "max_instances must be between 1 and %d, min_instances between 0 and max_instances", schema.FunctionInstancesMax)
	case f.Reserved != nil && (*f.Reserved < 0 || *f.Reserved > schema.FunctionInstancesMax):
		return schema.Errorf(schema.Invalid, "reserved_concurrency must be between 0 and %d", schema.FunctionInstancesMax)
	case f.IdleStop < time.Second || f.IdleStop > schema.FunctionIdleMax:
		return schema.Errorf(schema.Invalid, "idle_stop must be between 1s and %v", schema.FunctionIdleMax)
	case len(f.Invokers) > schema.FunctionInvokersMax:
		return schema.Errorf(schema.Invalid, "invokers names more than %d users", schema.FunctionInvokersMax)
	case f.URLAuth != "" && f.URLAuth != schema.URLAuthNone && f.URLAuth != schema.URLAuthToken:
		return schema.Errorf(schema.Invalid, "url_auth must be none, token or empty")
	case f.Async.MaxRetries < 0 || f.Async.MaxRetries > schema.EventRetriesMax:
		return schema.Errorf(schema.Invalid, "async: max_retries must be between 0 and %d", schema.EventRetriesMax)
	case f.Async.MaxAge < schema.EventAgeMin || f.Async.MaxAge > schema.EventAgeMax:
		return schema.Errorf(schema.Invalid, "async: max_age must be between %v and %v", schema.EventAgeMin, schema.EventAgeMax)
	}
	for _, u := range f.Invokers {
		if tx.s.users[u] == nil {
			return schema.Errorf(schema.Invalid, "invokers: there is no user %d", u)
		}
	}
	for _, id := range []schema.TopicID{f.Async.OnSuccess, f.Async.OnFailure, f.Async.DeadLetter} {
		t := tx.s.topics[id]
		if id != 0 && (t == nil || !t.DeletedAt.IsZero() || t.Owner != f.Owner && tx.s.grants[grantKey{id, f.Owner}] == nil) {
			return schema.Errorf(schema.Invalid, "async: %d is not a topic that the function's owner may publish to", id)
		}
	}
	return nil
}

func (tx *Tx) putFunction(f *schema.Function) error {
	if err := tx.checkFunction(f); err != nil {
		return err
	}
	if f.ID == 0 {
		if len(tx.s.functions) >= functionsMax {
			return schema.Errorf(schema.Conflict, "a cluster has at most %d functions", functionsMax)
		}
		if tx.s.users[f.Owner] == nil {
			return schema.Errorf(schema.NotFound, "there is no user %d", f.Owner)
		}
		f.ID = schema.FunctionID(tx.newID())
	}
	f.UpdatedAt = tx.Now
	tx.put(schema.KindFunction, f.Name, f)
	if s := tx.eventSubscription(f); s != nil {
		changed := *s
		setEventTerms(&changed, f)
		tx.put(schema.KindSubscription, key(s.ID), changed)
	}
	return nil
}

// RollBack makes another version of a function the live one.
func (c *Catalog) RollBack(ctx context.Context, name string, version int) (*schema.Function, error) {
	err := c.update(ctx, func(tx *Tx) error {
		old := tx.s.functions[name]
		if old == nil {
			return errNoFunction
		}
		if !slices.ContainsFunc(old.Versions, func(v schema.FunctionVersion) bool { return v.Number == version }) {
			return schema.Errorf(schema.NotFound, "the function has no version %d", version)
		}
		changed := *old
		changed.Live = version
		return tx.putFunction(&changed)
	})
	if err != nil {
		return nil, err
	}
	return c.Function(name), nil
}

var errNoFunction = schema.Errorf(schema.NotFound, "there is no such function")

// DeleteFunction removes a function with its versions and its pending asynchronous invocations.
func (c *Catalog) DeleteFunction(ctx context.Context, name string) error {
	return c.update(ctx, func(tx *Tx) error {
		f := tx.s.functions[name]
		if f == nil {
			return errNoFunction
		}
		tx.remove(schema.KindFunction, name)
		if t := tx.s.topics[f.Events]; t != nil && t.DeletedAt.IsZero() {
			for _, s := range tx.s.ofTopic[t.ID] {
				if !s.State.Final() {
					tx.end(s, "the function was deleted")
				}
			}
			gone := *t
			gone.DeletedAt = tx.Now
			tx.put(schema.KindTopic, key(t.ID), gone)
		}
		return nil
	})
}

// eventRetention leaves room for an event that is tried to its last minute.
const eventRetention = schema.EventAgeMax + time.Hour

// EventTopic returns the internal topic of a function's asynchronous invocations, and makes it with its subscription when it is the first time.
func (c *Catalog) EventTopic(ctx context.Context, name string) (*schema.Topic, error) {
	if f := c.Function(name); f != nil && f.Events != 0 {
		if t, _, _ := c.Topic(f.Events); t != nil {
			return t, nil
		}
	}
	var id schema.TopicID
	err := c.update(ctx, func(tx *Tx) error {
		f := tx.s.functions[name]
		if f == nil {
			return errNoFunction
		}
		if id = f.Events; id != 0 {
			return nil
		}
		id = schema.TopicID(tx.newID())
		changed := *f
		changed.Events = id
		tx.put(schema.KindFunction, name, changed)
		tx.put(schema.KindTopic, key(id), schema.Topic{ID: id, Name: "function events " + key(f.ID), Owner: f.Owner, Rule: schema.RuleClosed, Pattern: schema.PatternStandard,
			Partitions: min(schema.TopicPartitionsDefault, tx.s.cluster.Partitions), RetentionTime: eventRetention, Internal: true, CreatedAt: tx.Now})
		s := schema.Subscription{ID: schema.SubscriptionID(tx.newID()), Topic: id, Consumer: f.Owner, PublisherConsent: schema.ConsentGiven, ConsumerConsent: schema.ConsentGiven,
			Guarantee: schema.AtLeastOnce, Start: schema.StartAt{Position: "earliest"}, MaxOutstanding: schema.OutstandingDefault, CreatedAt: tx.Now}
		setEventTerms(&s, &changed)
		tx.transition(&s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t, _, _ := c.Topic(id)
	if t == nil {
		return nil, errNoFunction
	}
	return t, nil
}

// eventRetries are the pauses before the tries of an asynchronous invocation that the function failed.
var eventRetries = []time.Duration{0, time.Minute, 2 * time.Minute}

// setEventTerms derives the terms of the subscription to a function's events.
func setEventTerms(s *schema.Subscription, f *schema.Function) {
	s.Target = schema.Target{Type: schema.TargetFunction, Function: f.Name, BatchSize: 1, Concurrency: min(f.MaxInstances, schema.ConcurrencyMax),
		Timeout: min(schema.FunctionTimeoutMax, targetTimeoutMax)}
	s.AckDeadline = schema.AckDeadlineMax + eventTimeoutSlack
	s.RetrySchedule = eventRetries
	s.MaxAttempts = f.Async.MaxRetries + 1
	s.DeadLetter = f.Async.DeadLetter
}

func (tx *Tx) eventSubscription(f *schema.Function) *schema.Subscription {
	if f.Events == 0 {
		return nil
	}
	return tx.s.ofConsumer[grantKey{f.Events, f.Owner}]
}

// checkFunctionTarget refuses subscriptions to functions that are not there, or whose invocation could outlast the delivery's lease.
func (tx *Tx) checkFunctionTarget(s *schema.Subscription) error {
	if s.Target.Type != schema.TargetFunction {
		return nil
	}
	name, qualifier, _ := strings.Cut(s.Target.Function, ":")
	f := tx.s.functions[name]
	if f == nil {
		return schema.Errorf(schema.Invalid, "target: there is no function %q that this user may invoke", name)
	}
	v := f.Version(qualifier)
	if v == nil {
		return schema.Errorf(schema.Invalid, "target: the function has no version %q", qualifier)
	}
	if v.Timeout > s.AckDeadline {
		return schema.Errorf(schema.Invalid, "ack_deadline must not be shorter than the function's timeout of %v", v.Timeout)
	}
	if t := s.Target.Timeout; t > s.AckDeadline {
		return schema.Errorf(schema.Invalid, "ack_deadline must not be shorter than the target's timeout of %v", t)
	}
	return nil
}
