package schema

import (
	"context"
	"strconv"
	"time"
)

// FunctionID names a function for good: one that is made again under the same name is another.
type FunctionID int64

// The qualifiers that are no version's number.
const (
	QualifierLive   = "live"    // the version that is in use; what goes without a qualifier
	QualifierLatest = "$LATEST" // the newest version
)

// Limits of functions. Sizes and times are those of AWS Lambda, so that what runs there runs here.
const (
	// FunctionNameBytesMax bounds a function's name.
	FunctionNameBytesMax = 64
	// ArtifactBytesMax bounds a function's zip, ArtifactUnpackedMax what is in it.
	ArtifactBytesMax    = 50 << 20
	ArtifactUnpackedMax = 250 << 20
	// ArtifactChunkBytes is the size of the pieces in which artifacts are kept: one is a database cell.
	ArtifactChunkBytes = 512 << 10
	// InvokeBytesMax bounds the payload of an invocation, and its answer.
	InvokeBytesMax = 6 << 20
	// EventBytesMax bounds the payload of an asynchronous invocation, which is a message.
	EventBytesMax = ContentBytesMax
	// FunctionTimeoutMin, FunctionTimeoutMax and FunctionTimeoutDefault bound one invocation.
	FunctionTimeoutMin     = 100 * time.Millisecond
	FunctionTimeoutMax     = 15 * time.Minute
	FunctionTimeoutDefault = 3 * time.Second
	// FunctionMemoryMin, FunctionMemoryMax and FunctionMemoryDefault bound the MiB of one instance.
	FunctionMemoryMin     = 32
	FunctionMemoryMax     = 10240
	FunctionMemoryDefault = 256
	// FunctionEnvBytesMax bounds the names and values of a version's environment together.
	FunctionEnvBytesMax = 4 << 10
	// FunctionInstancesMax and FunctionInstancesDefault bound the instances of one function on one node.
	FunctionInstancesMax     = 1000
	FunctionInstancesDefault = 10
	// FunctionIdleDefault and FunctionIdleMax bound how long an instance waits for work.
	FunctionIdleDefault = 5 * time.Minute
	FunctionIdleMax     = 24 * time.Hour
	// FunctionVersionsMax bounds the versions that are kept; the oldest that is not live goes first.
	FunctionVersionsMax = 20
	// FunctionInvokersMax bounds the users that a function's owner lets invoke it.
	FunctionInvokersMax = 100
	// EventAgeMin, EventAgeMax and EventAgeDefault bound how long an asynchronous invocation is tried.
	EventAgeMin     = time.Minute
	EventAgeMax     = 6 * time.Hour
	EventAgeDefault = 6 * time.Hour
	// EventRetriesMax bounds the further tries after a function's own error.
	EventRetriesMax = 2
	// LogTailBytes is what an invocation's answer shows of its log.
	LogTailBytes = 4 << 10
)

// FunctionVersion is code with what it runs under. It never changes.
type FunctionVersion struct {
	Number    int               `json:"version"`
	SHA256    string            `json:"sha256"` // of the zip, in hex; names the artifact
	Size      int64             `json:"size"`   // of the zip
	Handler   string            `json:"handler,omitempty"`
	Timeout   time.Duration     `json:"timeout"`
	Memory    int               `json:"memory"` // MiB
	Env       map[string]string `json:"env,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
}

// AsyncConfig says what becomes of asynchronous invocations.
type AsyncConfig struct {
	MaxRetries int           `json:"max_retries"` // after a function's error; 0 to EventRetriesMax
	MaxAge     time.Duration `json:"max_age"`
	OnSuccess  TopicID       `json:"on_success_topic_id,omitempty"`  // gets the record of each success
	OnFailure  TopicID       `json:"on_failure_topic_id,omitempty"`  // gets the record of each that was given up
	DeadLetter TopicID       `json:"dead_letter_topic_id,omitempty"` // gets the event of each that was given up
}

// Function is a handler that the nodes host by themselves.
type Function struct {
	ID       FunctionID        `json:"function_id"`
	Name     string            `json:"function_name"` // one in the whole cluster
	Owner    UserID            `json:"owner_id"`
	Versions []FunctionVersion `json:"versions"` // by number
	Live     int               `json:"live"`     // number of the version in use
	// MinInstances of the live version are kept warm on each node; MaxInstances of a version run on it at most.
	MinInstances int `json:"min_instances,omitempty"`
	MaxInstances int `json:"max_instances"`
	// Reserved bounds the invocations at the same time, on each node: above it they are refused, not queued. nil = no bound.
	Reserved *int          `json:"reserved_concurrency,omitempty"`
	IdleStop time.Duration `json:"idle_stop"`
	Invokers []UserID      `json:"invokers,omitempty"` // who may invoke it beside the owner
	Async    AsyncConfig   `json:"async"`
	URLAuth  string        `json:"url_auth,omitempty"` // "" = no function URL; "token" or "none"
	// Events is the internal topic of asynchronous invocations, made with the first of them; 0 = not yet.
	Events    TopicID   `json:"events_topic_id,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// The values of Function.URLAuth.
const (
	URLAuthNone  = "none"
	URLAuthToken = "token"
)

// Version returns the version that a qualifier names; nil when there is none. "" is the live one.
func (f *Function) Version(qualifier string) *FunctionVersion {
	number := f.Live
	switch qualifier {
	case "", QualifierLive:
	case QualifierLatest:
		return &f.Versions[len(f.Versions)-1]
	default:
		n, err := strconv.Atoi(qualifier)
		if err != nil {
			return nil
		}
		number = n
	}
	for i := range f.Versions {
		if f.Versions[i].Number == number {
			return &f.Versions[i]
		}
	}
	return nil
}

// ARN names a function as Lambda's clients know it.
func (f *Function) ARN() string { return "arn:aws:lambda:local:000000000000:function:" + f.Name }

// Invocation is one call of a function.
type Invocation struct {
	RequestID     string
	Qualifier     string
	Payload       []byte // JSON; the caller keeps it unchanged until the call returned
	ClientContext string // JSON, "" = none
	TraceID       string
	// Wait bounds how long the call may queue for an instance; 0 = it fails with Busy at once.
	Wait time.Duration
}

// Invoked is how an invocation that reached the function ended.
type Invoked struct {
	Payload       []byte // the answer, or the error document
	ContentType   string
	FunctionError string // "" = success, else "Unhandled" or "Handled"
	Version       int
	Log           []byte // the end of what was logged, up to LogTailBytes
}

// Artifacts keeps the code of functions: bytes in chunks under the SHA-256 of the whole.
type Artifacts interface {
	// PutArtifact stores one chunk durably. The same chunk again is no error.
	PutArtifact(ctx context.Context, sha256 string, chunk int, data []byte) error
	// Artifact returns one chunk; false when it is not there.
	Artifact(ctx context.Context, sha256 string, chunk int) ([]byte, bool, error)
	// DropArtifact forgets all chunks.
	DropArtifact(ctx context.Context, sha256 string) error
}
