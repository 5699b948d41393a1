package schema

// State is where a subscription stands.
type State string

const (
	PendingPublisher State = "pending_publisher" // the topic's owner has not approved
	PendingConsumer  State = "pending_consumer"  // the endpoint has not proved its consent
	Active           State = "active"
	Paused           State = "paused"
	Rejected         State = "rejected"
	Ended            State = "ended"
)

// Consent is one party's word.
type Consent string

const (
	ConsentPending Consent = "pending"
	ConsentGiven   Consent = "given"
	ConsentRefused Consent = "refused"
)

// StateOf derives a subscription's state from the two consents; paused and ended are set apart from them.
// The publisher's word comes first: an endpoint is not bothered for a subscription that the owner does not want.
func StateOf(publisher, consumer Consent) State {
	switch {
	case publisher == ConsentRefused, consumer == ConsentRefused:
		return Rejected
	case publisher == ConsentPending:
		return PendingPublisher
	case consumer == ConsentPending:
		return PendingConsumer
	}
	return Active
}

// Final tells whether nothing can follow on a state.
func (s State) Final() bool { return s == Rejected || s == Ended }
