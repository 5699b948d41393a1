package schema

// Settlement is what a puller says of one message.
type Settlement struct {
	Message MessageID
	Lease   string // "" = whoever holds it
}

// Settling says what is done with outstanding messages.
type Settling uint8

const (
	SettleAck    Settling = iota // they are done with
	SettleNack                   // they come again
	SettleExtend                 // their leases go on
)

// Verdict is the answer to one settlement.
type Verdict string

const (
	Acknowledged Verdict = "acknowledged"  // now, or before
	Returned     Verdict = "returned"      // nacked: it comes again
	Extended     Verdict = "extended"      // the lease goes on
	Stale        Verdict = "stale"         // the lease ended and the message was handed out again, or is settled
	NotDelivered Verdict = "not_delivered" // this subscription does not have it out
)

// Standing is where one message stands with one subscription.
type Standing struct {
	Subscription SubscriptionID
	State        StandingState
	Attempts     int // tries so far, of messages that are not settled
}

// StandingState is a word for it.
type StandingState string

const (
	StandingPending      StandingState = "pending"     // not handed out yet
	StandingOutstanding  StandingState = "outstanding" // handed out, or waiting for another try
	StandingDelivered    StandingState = "delivered"   // acknowledged
	StandingDeadLettered StandingState = "dead_lettered"
	StandingRedriven     StandingState = "redriven" // was a dead letter and was put back as a new message
)

// Progress is how far a subscription is in the partitions of this node.
type Progress struct {
	Outstanding int   // handed out or waiting
	Lost        int64 // taken by retention before they were delivered
	CaughtUp    bool  // nothing more to read
}
