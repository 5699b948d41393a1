package policies

import (
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// document is the policies' input before it becomes OPA's own values.
type document = map[string]any

// inputOf writes a request as the policies see it. Secrets, challenges and addresses of targets stay out.
func inputOf(r *schema.AuthRequest) document {
	doc := document{
		"principal": userOf(r.Principal),
		"action":    string(r.Action),
		"as":        int64(r.As),
		"grant":     r.Granted,
		"request": document{"address": r.Address, "bytes": r.Bytes, "tls": r.TLS,
			"time": r.At.UTC().Format(time.RFC3339Nano)},
	}
	if r.Topic != nil {
		doc["topic"] = topicOf(r.Topic, r.Rule)
	}
	if r.Subscription != nil {
		doc["subscription"] = subscriptionOf(r.Subscription)
	}
	if r.User != nil {
		doc["user"] = userOf(r.User)
	}
	if r.Function != "" {
		doc["function"] = document{"name": r.Function, "owner": int64(r.FunctionBy), "invokers": numbers(r.Invokers)}
	}
	return doc
}

func userOf(u *schema.User) document {
	return document{"id": int64(u.ID), "name": u.Name, "roles": words(u.Roles), "labels": labels(u.Labels),
		"disabled": u.Disabled, "created_at": u.CreatedAt.UTC().Format(time.RFC3339Nano)}
}

func topicOf(t *schema.Topic, r *schema.Rule) document {
	doc := document{"id": int64(t.ID), "name": t.Name, "owner": int64(t.Owner), "labels": labels(t.Labels),
		"internal": t.Internal, "pattern": int64(t.Pattern), "partitions": t.Partitions,
		"dead_letter": int64(t.DeadLetter)}
	// A rule that is not the topic's own must not decide on it.
	if r != nil && r.ID == t.Rule {
		doc["rule"] = document{"id": int64(r.ID), "name": r.Name, "owner": int64(r.Owner), "own": !builtin(r)}
	}
	return doc
}

func subscriptionOf(s *schema.Subscription) document {
	return document{"id": int64(s.ID), "topic": int64(s.Topic), "consumer": int64(s.Consumer), "state": string(s.State),
		"publisher_consent": string(s.PublisherConsent), "consumer_consent": string(s.ConsumerConsent),
		"guarantee": string(s.Guarantee), "ordered": s.Ordered, "target": string(s.Target.Type)}
}

// builtin tells whether a rule is one of the product's own: only those are known by their name.
func builtin(r *schema.Rule) bool { return r.ID < schema.RuleFirstOwn && r.Rego == "" }

func words(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

func numbers(list []schema.UserID) []any {
	out := make([]any, len(list))
	for i, n := range list {
		out[i] = int64(n)
	}
	return out
}

func labels(m map[string]string) document {
	out := make(document, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
