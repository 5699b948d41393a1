package policies

import (
	"unsafe"

	"github.com/handfast-mq/handfast/schema"
)

// cacheKey is everything that a decision can depend on, but the request's own circumstances (address, size, TLS, time):
// policies that look at those are not cached. Nouns stand by their address: they are immutable snapshots, a changed
// one is a new one, and since the key holds them, no address can come again with another content.
type cacheKey struct {
	revision     uint64
	principal    *schema.User
	topic        *schema.Topic
	rule         *schema.Rule
	subscription *schema.Subscription
	user         *schema.User
	invokers     *schema.UserID // the list's first element
	invokersLen  int
	as           schema.UserID
	functionBy   schema.UserID
	granted      bool
	action       schema.Action
	function     string
}

func keyOf(revision uint64, r *schema.AuthRequest) cacheKey {
	return cacheKey{revision: revision, principal: r.Principal, topic: r.Topic, rule: r.Rule, subscription: r.Subscription,
		user: r.User, invokers: unsafe.SliceData(r.Invokers), invokersLen: len(r.Invokers), as: r.As,
		functionBy: r.FunctionBy, granted: r.Granted, action: r.Action, function: r.Function}
}
