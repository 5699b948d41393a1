package schema

import "time"

// Attribute is one name and value beside a message's content.
type Attribute struct{ Name, Value string }

// Message is one accepted message. Content is never changed: the bytes that came are the bytes that are kept,
// signed and delivered.
type Message struct {
	ID          MessageID
	Topic       TopicID
	Publisher   UserID
	Time        time.Time // when its commit was formed; never goes back within a partition
	DeliverAt   time.Time // zero = at once
	Key         string    // ordering key; "" = none
	ContentType string
	Attributes  []Attribute
	Only        SubscriptionID // a redriven message is for this subscription alone; 0 = for all
	Content     []byte
}

// Publish is one message on its way in.
type Publish struct {
	Publisher      UserID
	Key            string
	IdempotencyKey string
	Batch          string // idempotency key of the batch that it came in, when it has none of its own; those without a Key go to one partition
	Delay          time.Duration
	ContentType    string
	Attributes     []Attribute
	Only           SubscriptionID
	Content        []byte // the caller keeps it unchanged until the publish returned
}

// Published is the answer to one Publish: an id, or an error.
type Published struct {
	ID        MessageID
	Duplicate bool // the idempotency key was seen before: ID is the first message's
	Err       error
}

// Delivery is one message on its way out to one subscription.
type Delivery struct {
	Message
	Subscription SubscriptionID
	Attempt      int    // 1 = first
	Lease        string // names this very delivery; an ack that carries it is checked against it
}

// Attempt is the record of one try to deliver, as GET /deliveries shows it.
type Attempt struct {
	Message      MessageID
	Subscription SubscriptionID
	Attempt      int
	At           time.Time
	Duration     time.Duration
	Outcome      Outcome
	Status       int    // HTTP status, 0 = none
	Error        string // what went wrong, "" = nothing
	Response     []byte // what the endpoint said, cut at ResponseBytesMax; any bytes
}

// Outcome says how one try to deliver ended.
type Outcome uint8

const (
	// Delivered: the subscriber acknowledged.
	Delivered Outcome = iota
	// Failed: the subscriber had its chance; the attempt counts and the schedule decides what comes next.
	Failed
	// Held: the subscriber asked to wait, or the fault is ours; no attempt is used up.
	Held
	// EndpointGone: the subscriber wants nothing more; the subscription ends.
	EndpointGone
	// Refused: the message can never be delivered to this target; it goes to the dead letters at once.
	Refused
	// DeadLettered: the message was written to the dead letter topic, or given up where there is none.
	DeadLettered
	// LeaseEnded: a puller did not acknowledge in time.
	LeaseEnded
	// Nacked: a puller gave the message back.
	Nacked
)

var outcomeNames = [...]string{"delivered", "failed", "held", "gone", "refused", "dead_lettered", "lease_ended", "nacked"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// ParseOutcome is the inverse of String.
func ParseOutcome(s string) (Outcome, bool) {
	for i, n := range outcomeNames {
		if n == s {
			return Outcome(i), true
		}
	}
	return 0, false
}
