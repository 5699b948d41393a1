package schema

import (
	"encoding/json"
	"time"
)

// User is producer, consumer and operator in one identity.
type User struct {
	ID        UserID            `json:"user_id"`
	Name      string            `json:"user_name"`
	Roles     []string          `json:"roles,omitempty"` // "admin", or what the policies know
	Labels    map[string]string `json:"labels,omitempty"`
	Disabled  bool              `json:"disabled,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
}

// HasRole tells whether the user has a role.
func (u *User) HasRole(role string) bool {
	for _, r := range u.Roles {
		if r == role {
			return true
		}
	}
	return false
}

// RoleAdmin may do everything that the built-in policies know.
const RoleAdmin = "admin"

// Token is one bearer token. The token itself is shown once and never kept.
type Token struct {
	ID        TokenID   `json:"token_id"`
	User      UserID    `json:"user_id"`
	Hash      []byte    `json:"hash"` // SHA-256 of the token
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero = never
}

// Cluster is what was set once, when the cluster was made.
type Cluster struct {
	ID         string    `json:"cluster_id"`
	Partitions int       `json:"partitions"`
	Key        []byte    `json:"key,omitempty"` // secret that access keys are derived with
	CreatedAt  time.Time `json:"created_at"`
	// The authority of the connections between nodes, in PEM. Who can read the metadata can be a node anyway.
	PeerCA    []byte `json:"peer_ca,omitempty"`
	PeerCAKey []byte `json:"peer_ca_key,omitempty"`
}

// Topic is what producers publish to.
type Topic struct {
	ID             TopicID           `json:"topic_id"`
	Name           string            `json:"topic_name"`
	Owner          UserID            `json:"publisher_id"`
	Rule           RuleID            `json:"rule_id"`
	Pattern        PatternID         `json:"pattern_id"`
	Partitions     int               `json:"partitions"`
	RetentionTime  time.Duration     `json:"retention"`
	RetentionBytes int64             `json:"retention_bytes,omitempty"` // 0 = no bound
	DeadLetter     TopicID           `json:"dead_letter_topic_id,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Internal       bool              `json:"internal,omitempty"` // the system's own, hidden from listings
	CreatedAt      time.Time         `json:"created_at"`
	DeletedAt      time.Time         `json:"deleted_at,omitzero"` // kept until its messages are gone
}

// Grant allows a publisher to publish to a topic. The topic's owner needs none.
type Grant struct {
	Topic     TopicID   `json:"topic_id"`
	Publisher UserID    `json:"publisher_id"`
	CreatedAt time.Time `json:"created_at"`
}

// Rule says which policy governs a topic.
type Rule struct {
	ID          RuleID `json:"rule_id"`
	Name        string `json:"rule_name"`
	Owner       UserID `json:"owner_id,omitempty"` // 0 = built in
	Description string `json:"description,omitempty"`
	Rego        string `json:"rego,omitempty"` // a module of its own; "" = built in under Name
}

// The built-in rules.
const (
	RuleOpen     RuleID = 1 // everybody may publish and subscribe
	RuleApproval RuleID = 2 // publishing needs a grant, subscribing the owner's approval
	RuleClosed   RuleID = 3 // only those with a grant publish; only the owner subscribes
	// RuleFirstOwn is the first id that a user's rule can have.
	RuleFirstOwn RuleID = 100
)

// BuiltinRules returns the rules that every cluster has.
func BuiltinRules() []Rule {
	return []Rule{
		{ID: RuleOpen, Name: "open", Description: "Everybody may publish; subscriptions need no approval."},
		{ID: RuleApproval, Name: "approval", Description: "Publishing needs a grant; subscriptions need the owner's approval."},
		{ID: RuleClosed, Name: "closed", Description: "Publishing needs a grant; only the owner may subscribe."},
	}
}

// Guarantee is how often a message may reach a subscriber.
type Guarantee string

const (
	AtLeastOnce Guarantee = "at_least_once"
	AtMostOnce  Guarantee = "at_most_once"
)

// Mode restricts how a topic's subscribers are reached.
type Mode string

const (
	ModeAny  Mode = "any"
	ModePush Mode = "push"
	ModePull Mode = "pull"
)

// Pattern says how a topic delivers.
type Pattern struct {
	ID          PatternID `json:"pattern_id"`
	Name        string    `json:"pattern_name"`
	Owner       UserID    `json:"owner_id,omitempty"` // 0 = built in
	Description string    `json:"description,omitempty"`
	Mode        Mode      `json:"mode"`
	Guarantee   Guarantee `json:"guarantee"` // what subscriptions get that do not say
	Ordered     bool      `json:"ordered"`   // what subscriptions get that do not say
	AckLevel    string    `json:"ack_level"` // one, quorum, all
}

// The built-in patterns.
const (
	PatternStandard PatternID = 1
	PatternOrdered  PatternID = 2
	PatternOnce     PatternID = 3
	PatternFast     PatternID = 4
	PatternAll      PatternID = 5
	PatternPullOnly PatternID = 6
	PatternPushOnly PatternID = 7
	PatternFirstOwn PatternID = 100
)

// BuiltinPatterns returns the patterns that every cluster has.
func BuiltinPatterns() []Pattern {
	return []Pattern{
		{ID: PatternStandard, Name: "standard", Mode: ModeAny, Guarantee: AtLeastOnce, AckLevel: "quorum", Description: "At least once, unordered, durable on a quorum."},
		{ID: PatternOrdered, Name: "ordered", Mode: ModeAny, Guarantee: AtLeastOnce, Ordered: true, AckLevel: "quorum", Description: "At least once, in order per key (none without a key), durable on a quorum."},
		{ID: PatternOnce, Name: "at_most_once", Mode: ModeAny, Guarantee: AtMostOnce, AckLevel: "quorum", Description: "At most once: recorded before it is handed out, never retried."},
		{ID: PatternFast, Name: "fast", Mode: ModeAny, Guarantee: AtLeastOnce, AckLevel: "one", Description: "Accepted before it is forced to disk: a power cut or the loss of one replica may lose accepted messages."},
		{ID: PatternAll, Name: "all", Mode: ModeAny, Guarantee: AtLeastOnce, AckLevel: "all", Description: "At least once, durable on every replica; one replica down stops publishing."},
		{ID: PatternPullOnly, Name: "pull", Mode: ModePull, Guarantee: AtLeastOnce, AckLevel: "quorum", Description: "Consumers pull; push targets are refused."},
		{ID: PatternPushOnly, Name: "push", Mode: ModePush, Guarantee: AtLeastOnce, AckLevel: "quorum", Description: "Delivered by push only; pulling is refused."},
	}
}

// ParseAckLevel reads a pattern's ack level.
func ParseAckLevel(s string) (AckLevel, error) {
	switch s {
	case "one":
		return AckOne, nil
	case "quorum", "":
		return AckQuorum, nil
	case "all":
		return AckAll, nil
	}
	return 0, Errorf(Invalid, "ack_level must be one, quorum or all")
}

// TargetType says how a subscription is reached.
type TargetType string

const (
	TargetPull     TargetType = "pull"
	TargetWebhook  TargetType = "webhook"
	TargetFunction TargetType = "function"
	TargetLambda   TargetType = "lambda"
)

// Target is where a subscription's messages go.
type Target struct {
	Type TargetType `json:"type"`
	// Webhook.
	URL    string `json:"url,omitempty"`
	Format string `json:"format,omitempty"` // "" = the content as it is; "binary", "structured" = CloudEvents
	// Function (a handler that the node hosts) and lambda (AWS).
	Function string `json:"function,omitempty"` // name[:qualifier], or the ARN for lambda
	Region   string `json:"region,omitempty"`
	RoleARN  string `json:"role_arn,omitempty"`
	// Function and lambda: messages per invocation, and how long to wait for them.
	BatchSize   int           `json:"batch_size,omitempty"`
	BatchWindow time.Duration `json:"batch_window,omitempty"`
	// All push targets.
	Timeout     time.Duration `json:"timeout,omitempty"`     // of one attempt; default 15 s
	Concurrency int           `json:"concurrency,omitempty"` // attempts at the same time; default 16
	Rate        float64       `json:"rate,omitempty"`        // attempts a second; 0 = no bound
}

// Push tells whether the system delivers to the target by itself.
func (t *Target) Push() bool { return t.Type != TargetPull }

// Secret is one webhook signing key: HMAC ("whsec_…") or ed25519 ("whsk_…").
type Secret struct {
	Key       string    `json:"key"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero = current; older ones sign beside it until then
}

// StartAt is where a subscription begins.
type StartAt struct {
	Position string    `json:"position"` // now, earliest, time, message
	Time     time.Time `json:"time,omitzero"`
	Message  MessageID `json:"message_id,omitempty"`
}

// Subscription is one consumer's agreement with one topic.
type Subscription struct {
	ID               SubscriptionID  `json:"subscription_id"`
	Topic            TopicID         `json:"topic_id"`
	Consumer         UserID          `json:"consumer_id"`
	State            State           `json:"state"`
	Reason           string          `json:"reason,omitempty"`
	PublisherConsent Consent         `json:"publisher_consent"`
	ConsumerConsent  Consent         `json:"consumer_consent"`
	Challenge        string          `json:"challenge,omitempty"` // what an endpoint must echo to consent
	Target           Target          `json:"target"`
	Secrets          []Secret        `json:"secrets,omitempty"`
	Guarantee        Guarantee       `json:"guarantee"`
	Ordered          bool            `json:"ordered"`
	Filter           json.RawMessage `json:"filter,omitempty"`
	AcceptPublishers []UserID        `json:"accept_publishers,omitempty"` // empty = all
	Start            StartAt         `json:"start"`
	AckDeadline      time.Duration   `json:"ack_deadline"`
	MaxOutstanding   int             `json:"max_outstanding"`
	MaxAttempts      int             `json:"max_attempts"`             // 0 = as long as the schedule
	RetrySchedule    []time.Duration `json:"retry_schedule,omitempty"` // empty = the default one
	DeadLetter       TopicID         `json:"dead_letter_topic_id,omitempty"`
	CreatedAt        time.Time       `json:"subscribe_at"`
	ActiveAt         time.Time       `json:"active_at,omitzero"` // when it last became active
	EndedAt          time.Time       `json:"unsubscribe_at,omitzero"`
	Seeks            int64           `json:"seeks,omitempty"` // counts replays and seeks; a new number moves the cursors to Start
}

// Accepts tells whether the consumer takes messages of a publisher.
func (s *Subscription) Accepts(u UserID) bool {
	if len(s.AcceptPublishers) == 0 {
		return true
	}
	for _, p := range s.AcceptPublishers {
		if p == u {
			return true
		}
	}
	return false
}
