package runtime

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// functionUnhandled is the value of X-Amz-Function-Error.
const functionUnhandled = "Unhandled"

// The error types that a node gives by itself, as Lambda does.
const (
	errorExit         = "Runtime.ExitError"
	errorMemory       = "Runtime.OutOfMemory"
	errorTimeout      = "Sandbox.Timedout"
	errorEntrypoint   = "Runtime.InvalidEntrypoint"
	errorResponseSize = "Function.ResponseSizeTooLarge"
	errorShutdown     = "Sandbox.Shutdown"
)

type errorDocument struct {
	Type    string `json:"errorType"`
	Message string `json:"errorMessage"`
}

func unhandled(kind, words string) *schema.Invoked {
	body, _ := json.Marshal(errorDocument{kind, words}) // two strings
	return &schema.Invoked{Payload: body, ContentType: "application/json", FunctionError: functionUnhandled}
}

// exited tells why a process ended before it answered.
func (i *instance) exited(requestID string, timeout time.Duration) *schema.Invoked {
	i.mu.Lock()
	defer i.mu.Unlock()
	prefix := "RequestId: " + requestID + " Error: "
	if i.initError != nil {
		return i.initError
	}
	switch i.why {
	case killedTimeout:
		return unhandled(errorTimeout, prefix+fmt.Sprintf("Task timed out after %.2f seconds", timeout.Seconds()))
	case killedMemory:
		return unhandled(errorMemory, prefix+fmt.Sprintf("Runtime exited with error: signal: killed: more than %d MiB of memory", i.pool.version.Memory))
	case killedInit:
		return unhandled(errorTimeout, prefix+fmt.Sprintf("Init timed out after %.2f seconds: the function did not ask for its first invocation", initTimeout.Seconds()))
	case killedShutdown:
		return unhandled(errorShutdown, prefix+"the node is shutting down")
	}
	if i.state == nil || i.state.Success() {
		return unhandled(errorExit, prefix+"Runtime exited without providing a reason")
	}
	return unhandled(errorExit, prefix+"Runtime exited with error: "+i.state.String())
}
