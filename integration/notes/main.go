// Command notes is a function of the tests: it appends the messages that it gets to the file that NOTES names, one line of JSON each, and
// answers other invocations with such a line. Asked to fork, it leaves a child behind, out of its process group.
package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

// note tells which message came to which process.
type note struct {
	Message   string `json:"message"`
	Version   string `json:"version"`
	Directory string `json:"directory"`
	PID       int    `json:"pid"`
	Child     int    `json:"child,omitempty"`
}

type input struct {
	events.SQSEvent
	Fork bool `json:"fork"`
}

func main() { lambda.Start(handle) }

func handle(_ context.Context, e input) (any, error) {
	directory, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	n := note{Version: os.Getenv("AWS_LAMBDA_FUNCTION_VERSION"), Directory: directory, PID: os.Getpid()}
	if e.Fork {
		child := exec.Command("/bin/sleep", "300")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return nil, err
		}
		n.Child = child.Process.Pid
	}
	if len(e.Records) == 0 {
		return n, nil
	}
	work, err := time.ParseDuration(os.Getenv("WORK"))
	if err != nil {
		return nil, err
	}
	for _, m := range e.Records {
		time.Sleep(work)
		n.Message = m.Body
		if err := write(n); err != nil {
			return nil, err
		}
	}
	return events.SQSEventResponse{}, nil
}

func write(n note) error {
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(os.Getenv("NOTES"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}
