package schema

import "time"

// Limits of the product. Each has its reason; what passes one gets a clear error.
const (
	// ContentBytesMax bounds one message's content: SQS's and SNS's larger limit, and one frame stays within a database cell.
	ContentBytesMax = 1 << 20
	// BatchMessagesMax bounds one batch publish: more gains nothing over several requests in flight.
	BatchMessagesMax = 1000
	// BatchBytesMax bounds the content of one batch together.
	BatchBytesMax = 4 << 20
	// AttributesMax bounds the attributes of one message.
	AttributesMax = 32
	// AttributeNameBytesMax and AttributeValueBytesMax bound each attribute, since they become headers at the subscriber.
	AttributeNameBytesMax  = 128
	AttributeValueBytesMax = 4096
	// AttributesBytesMax bounds all attributes of a message together.
	AttributesBytesMax = 16 << 10
	// KeyBytesMax bounds ordering and idempotency keys.
	KeyBytesMax = 256
	// NameBytesMax bounds the names of users, topics, rules, patterns and functions.
	NameBytesMax = 128
	// ContentTypeBytesMax bounds a message's media type.
	ContentTypeBytesMax = 256
	// DelayMax bounds how long a message may be held back.
	DelayMax = 15 * time.Minute
	// PullMessagesMax bounds one GET /message.
	PullMessagesMax = 1000
	// PullBytesMax bounds the content that one GET /message returns.
	PullBytesMax = 6 << 20
	// PullWaitMax bounds a long poll.
	PullWaitMax = 20 * time.Second
	// AckDeadlineMin, AckDeadlineMax and AckDeadlineDefault bound the lease of a delivery.
	AckDeadlineMin     = 10 * time.Second
	AckDeadlineMax     = 600 * time.Second
	AckDeadlineDefault = 30 * time.Second
	// OutstandingDefault and OutstandingMax bound the leased messages of one subscription in one partition.
	OutstandingDefault = 1000
	OutstandingMax     = 20000
	// ConcurrencyMax bounds the attempts at the same time of one subscription on one node.
	ConcurrencyMax = 1000
	// AttemptsMax bounds a retry schedule.
	AttemptsMax = 100
	// RetryDelayMax bounds one step of a retry schedule.
	RetryDelayMax = 24 * time.Hour
	// RetentionMin, RetentionMax and RetentionDefault bound how long a message is kept.
	RetentionMin     = time.Minute
	RetentionMax     = 14 * 24 * time.Hour
	RetentionDefault = 7 * 24 * time.Hour
	// TopicPartitionsDefault spreads a topic far enough for keys to run side by side on a small cluster; a topic that
	// carries much more asks for more.
	TopicPartitionsDefault = 4
	// AcceptPublishersMax bounds the publishers that a subscription names.
	AcceptPublishersMax = 100
	// LabelsMax bounds the labels of a user or topic.
	LabelsMax = 32
	// ResponseBytesMax bounds what is read and stored of a subscriber's answer.
	ResponseBytesMax = 16 << 10
	// IdempotencyWindow is how long an idempotency key is remembered; by a partition's next owner, as long as retention kept its message.
	IdempotencyWindow = 10 * time.Minute
	// FilterBytesMax bounds a subscription's filter.
	FilterBytesMax = 8 << 10
	// RegoBytesMax bounds a rule's own policy.
	RegoBytesMax = 64 << 10
	// ListMax bounds one page of a listing.
	ListMax = 1000
)
