package schema

import (
	"context"
	"time"
)

// Action is what a principal wants to do. The policies decide on each.
type Action string

const (
	ActionCreateTopic Action = "create_topic"
	ActionUpdateTopic Action = "update_topic"
	ActionDeleteTopic Action = "delete_topic"
	ActionReadTopic   Action = "read_topic" // see it, its settings and its numbers
	ActionPublish     Action = "publish"
	ActionSubscribe   Action = "subscribe"
	ActionAutoApprove Action = "auto_approve" // may the rule speak for the owner on this subscription?
	ActionUnsubscribe Action = "unsubscribe"
	ActionConsume     Action = "consume" // pull, ack, nack, extend, replay
	ActionApprove     Action = "approve_subscription"
	ActionReject      Action = "reject_subscription"
	ActionGrant       Action = "grant_publish"
	ActionRevoke      Action = "revoke_publish"
	ActionReadMessage Action = "message_status"
	ActionReadSub     Action = "read_subscription" // see it and its deliveries
	ActionRedrive     Action = "redrive"
	ActionCreateUser  Action = "create_user"
	ActionReadUser    Action = "read_user"
	ActionUpdateUser  Action = "update_user" // rotate and revoke tokens, disable
	ActionCreateRule  Action = "create_rule"
	ActionCreatePatt  Action = "create_pattern"
	ActionManageFunc  Action = "manage_function"
	ActionInvokeFunc  Action = "invoke_function"
	ActionReadCluster Action = "read_cluster"
)

// AuthRequest is all that a decision can depend on. It becomes the policies' input document. The nouns and the list that
// it points to are immutable snapshots: a change makes a new one at another address. Decisions are cached by those
// addresses, so a noun that is changed in place keeps its old decisions.
type AuthRequest struct {
	Principal    *User
	Action       Action
	As           UserID        // the user that the request names as acting (publisher_id, consumer_id); 0 = the principal
	Topic        *Topic        // nil = none
	Rule         *Rule         // of the topic
	Granted      bool          // the acting user holds a publish grant on the topic
	Subscription *Subscription // nil = none
	User         *User         // the user that is acted on; nil = none
	Function     string        // name; "" = none
	FunctionBy   UserID        // owner of the function
	Invokers     []UserID      // who the function's owner lets invoke it
	Address      string        // of the caller, without port
	Bytes        int           // of the request body
	TLS          bool
	At           time.Time
}

// Decision is a policy's answer. The zero value refuses.
type Decision struct {
	Allow   bool
	Reasons []string // why not, or why; for the log and for the caller
	Limits  Limits   // of what is allowed
}

// Limits are how much of what it allows a decision allows. They count for publishing; 0 = no bound but the product's own.
type Limits struct {
	ContentBytes int     // of one message
	Rate         float64 // messages a second that the acting user publishes to the topic at one node
}

// Authorizer decides. It never fails open: a timeout, an undefined or a malformed decision, an error and a policy that
// is not loaded yet are refusals with a reason.
type Authorizer interface {
	Authorize(ctx context.Context, r *AuthRequest) Decision
}
