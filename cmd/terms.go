package cmd

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

// terms are the flags of what a consumer chooses.
type terms struct {
	webhook, function, lambda, format string
	batch, concurrency                int
	rate                              float64
	window, timeout, deadline         time.Duration
	guarantee, filter                 string
	ordered                           bool
	outstanding, attempts             int
	retries                           []string
	deadLetter                        int64
	accept                            []int64
}

func (t *terms) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.webhook, "webhook", "", "URL to POST to (default: you pull)")
	f.StringVar(&t.function, "function", "", "function of this cluster to invoke with batches of messages")
	f.StringVar(&t.lambda, "lambda", "", "name or ARN of a function at AWS Lambda to invoke with them")
	f.IntVar(&t.batch, "batch-size", 0, "messages in one invocation of a function (default 10)")
	f.DurationVar(&t.window, "batch-window", 0, "how long a batch waits to be full (default 0s)")
	f.StringVar(&t.format, "format", "", "what a webhook is sent: binary or structured = a CloudEvent (default: the content as it is)")
	f.DurationVar(&t.timeout, "timeout", 0, "of one attempt (default 15s)")
	f.IntVar(&t.concurrency, "concurrency", 0, "attempts at the same time (default 16)")
	f.Float64Var(&t.rate, "rate", 0, "attempts a second; 0 = no bound")
	f.StringVar(&t.guarantee, "guarantee", "", "at_least_once or at_most_once (default: what the topic's pattern says)")
	f.BoolVar(&t.ordered, "ordered", false, "in order for each key; messages without a key have none (default: what the topic's pattern says)")
	f.StringVar(&t.filter, "filter", "", `which messages, such as {"kind": ["order", {"prefix": "refund."}]}; {} = all`)
	f.Int64SliceVar(&t.accept, "accept", nil, "users whose messages are taken (default: everybody's)")
	f.DurationVar(&t.deadline, "ack-deadline", 0, "how long a message is yours, 10s to 600s (default 30s)")
	f.IntVar(&t.outstanding, "max-outstanding", 0, "messages handed out at the same time in each partition (default 1000)")
	f.IntVar(&t.attempts, "max-attempts", 0, "tries for one message; 0 = as many as the schedule has, and no bound for who pulls")
	f.StringSliceVar(&t.retries, "retry", nil, "delays before each attempt, such as 0s,5s,5m")
	f.Int64Var(&t.deadLetter, "dead-letter", 0, "number of the topic that gets what cannot be delivered")
}

func (t *terms) terms(s *session) (client.Terms, error) {
	out := client.Terms{Guarantee: changed(s, "guarantee", schema.Guarantee(t.guarantee)), Ordered: changed(s, "ordered", t.ordered),
		AckDeadline: changed(s, "ack-deadline", client.Seconds(t.deadline)), MaxOutstanding: changed(s, "max-outstanding", t.outstanding),
		MaxAttempts: changed(s, "max-attempts", t.attempts), DeadLetter: changed(s, "dead-letter", schema.TopicID(t.deadLetter))}
	if t.filter != "" {
		if !json.Valid([]byte(t.filter)) {
			return out, usagef("--filter is not JSON")
		}
		out.Filter = json.RawMessage(t.filter)
	}
	if s.cmd.Flags().Changed("accept") {
		users := make([]schema.UserID, len(t.accept))
		for i, u := range t.accept {
			users[i] = schema.UserID(u)
		}
		out.AcceptPublishers = &users
	}
	if s.cmd.Flags().Changed("retry") {
		delays := make([]client.Seconds, len(t.retries))
		for i, raw := range t.retries {
			d, err := time.ParseDuration(raw)
			if err != nil {
				return out, usagef("--retry: %q is not a duration such as 5s", raw)
			}
			delays[i] = client.Seconds(d)
		}
		out.RetrySchedule = &delays
	}
	return out, nil
}

// targetFlags are the flags that say something of the target.
var targetFlags = []string{"webhook", "function", "lambda", "format", "batch-size", "batch-window", "timeout", "concurrency", "rate"}

// nameTarget tells whether any of them was given.
func (t *terms) nameTarget(s *session) bool {
	return slices.ContainsFunc(targetFlags, s.cmd.Flags().Changed)
}

// target is a target with what the flags change of it.
func (t *terms) target(s *session, target client.Target) (*client.Target, error) {
	f := s.cmd.Flags()
	named := 0
	for flag, set := range map[string]func(){
		"webhook":      func() { target.Type, target.URL = schema.TargetWebhook, t.webhook; named++ },
		"function":     func() { target.Type, target.Function = schema.TargetFunction, t.function; named++ },
		"lambda":       func() { target.Type, target.Function = schema.TargetLambda, t.lambda; named++ },
		"format":       func() { target.Format = t.format },
		"batch-size":   func() { target.BatchSize = t.batch },
		"batch-window": func() { target.BatchWindow = client.Seconds(t.window) },
		"timeout":      func() { target.Timeout = client.Seconds(t.timeout) },
		"concurrency":  func() { target.Concurrency = t.concurrency },
		"rate":         func() { target.Rate = t.rate },
	} {
		if f.Changed(flag) {
			set()
		}
	}
	switch {
	case named > 1:
		return nil, usagef("--webhook, --function and --lambda exclude each other")
	case target.Type == "" || target.Type == schema.TargetPull:
		return nil, usagef("who pulls has no target to say this of: give --webhook, --function or --lambda too")
	}
	return &target, nil
}
