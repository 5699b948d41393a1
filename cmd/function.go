package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/functions/artifact"
	"github.com/handfast-mq/handfast/schema"
)

func newFunction(r *remote) *cobra.Command {
	return group("function", "Deploy and invoke handlers that the cluster hosts",
		functionDeploy(r), functionUpdate(r), functionList(r), functionShow(r), functionInvoke(r), functionLogs(r), functionRollback(r), functionDelete(r))
}

// functionTerms are the flags that deploy and update share.
type functionTerms struct {
	handler, urlAuth                 string
	timeout, idleStop, maxAge        time.Duration
	memory, min, max, reserved       int
	retries                          int
	env                              []string
	invokers                         []int64
	onSuccess, onFailure, deadLetter int64
}

func (t *functionTerms) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.handler, "handler", "", "what the bootstrap is told as _HANDLER")
	f.DurationVar(&t.timeout, "timeout", 0, "of one invocation, 100ms to 15m (default 3s)")
	f.IntVar(&t.memory, "memory", 0, "MiB of one instance, 32 to 10240 (default 256)")
	f.StringArrayVar(&t.env, "env", nil, "NAME=value that the handler sees; can be given several times")
	f.IntVar(&t.min, "min-instances", 0, "instances that are kept warm on each node")
	f.IntVar(&t.max, "max-instances", 0, "instances of a version on each node (default 10)")
	f.IntVar(&t.reserved, "reserved-concurrency", 0, "invocations at the same time, above which they are refused; -1 = no bound")
	f.DurationVar(&t.idleStop, "idle-stop", 0, "how long an instance waits for work (default 5m)")
	f.Int64SliceVar(&t.invokers, "invoker", nil, "user who may invoke it beside you; can be given several times")
	f.StringVar(&t.urlAuth, "url-auth", "", "serve it at /functions/NAME/url/: none (everybody) or token")
	f.IntVar(&t.retries, "max-retries", 0, "further tries of events after errors, 0 to 2 (default 2)")
	f.DurationVar(&t.maxAge, "max-age", 0, "how long events are tried, 1m to 6h (default 6h)")
	f.Int64Var(&t.onSuccess, "on-success", 0, "topic that gets the record of each event that went well")
	f.Int64Var(&t.onFailure, "on-failure", 0, "topic that gets the record of each event that was given up")
	f.Int64Var(&t.deadLetter, "dead-letter", 0, "topic that gets the events that were given up")
}

func (t *functionTerms) settings(s *session) (out client.FunctionSettings, err error) {
	env, err := pairs("env", t.env)
	if err != nil {
		return out, err
	}
	invokers := make([]schema.UserID, len(t.invokers))
	for i, id := range t.invokers {
		invokers[i] = schema.UserID(id)
	}
	out = client.FunctionSettings{Handler: changed(s, "handler", t.handler), Timeout: changed(s, "timeout", client.Seconds(t.timeout)), Memory: changed(s, "memory", t.memory),
		Env: changed(s, "env", env), MinInstances: changed(s, "min-instances", t.min), MaxInstances: changed(s, "max-instances", t.max),
		Reserved: changed(s, "reserved-concurrency", t.reserved), IdleStop: changed(s, "idle-stop", client.Seconds(t.idleStop)), Invokers: changed(s, "invoker", invokers),
		URLAuth: changed(s, "url-auth", t.urlAuth)}
	async := client.FunctionAsync{MaxRetries: changed(s, "max-retries", t.retries), MaxAge: changed(s, "max-age", client.Seconds(t.maxAge)),
		OnSuccess: changed(s, "on-success", schema.TopicID(t.onSuccess)), OnFailure: changed(s, "on-failure", schema.TopicID(t.onFailure)),
		DeadLetter: changed(s, "dead-letter", schema.TopicID(t.deadLetter))}
	if async != (client.FunctionAsync{}) {
		out.Async = &async
	}
	return out, nil
}

func functionDeploy(r *remote) *cobra.Command {
	var t functionTerms
	c := r.verb("deploy NAME DIR|ZIP", "Make a function of a directory or zip, or its next version, which is live at once", exactly(2), func(ctx context.Context, s *session) error {
		settings, err := t.settings(s)
		if err != nil {
			return err
		}
		zip, err := readArtifact(s.args[1])
		if err != nil {
			return err
		}
		f, err := s.DeployFunction(ctx, s.args[0], zip, settings)
		if err != nil {
			return err
		}
		return s.one(f)
	})
	c.Long = `Make a function of a directory or zip, or its next version, which is live at once. At its root is an executable named bootstrap,
which speaks the AWS Lambda Runtime API: a Go program on aws-lambda-go, or a script that starts the runtime of another language.`
	t.register(c)
	return c
}

func readArtifact(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return artifact.Pack(path)
	case info.Size() > schema.ArtifactBytesMax:
		return nil, fmt.Errorf("%s has more than %d MiB", path, schema.ArtifactBytesMax>>20)
	}
	zip, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return zip, artifact.Check(zip)
}

func functionUpdate(r *remote) *cobra.Command {
	var t functionTerms
	c := r.verb("update NAME", "Change a function's settings; what no flag names stays as it is", exactly(1), func(ctx context.Context, s *session) error {
		settings, err := t.settings(s)
		if err != nil {
			return err
		}
		f, err := s.UpdateFunction(ctx, s.args[0], settings)
		if err != nil {
			return err
		}
		return s.one(f)
	})
	t.register(c)
	return c
}

func functionList(r *remote) *cobra.Command {
	var after string
	var limit int
	c := r.verb("list", "List your functions", noArgs, func(ctx context.Context, s *session) error {
		functions, err := s.Functions(ctx, after, limit)
		if err != nil {
			return err
		}
		return list(s.printer, functions, "FUNCTION LIVE VERSIONS MIN MAX OWNER UPDATED", func(f client.Function) []any {
			return []any{f.Name, f.Live, len(f.Versions), f.MinInstances, f.MaxInstances, f.Owner, f.UpdatedAt}
		})
	})
	c.Flags().StringVar(&after, "after", "", "begin after this name: the last one of the page before")
	c.Flags().IntVar(&limit, "limit", 1000, "at most so many, up to 1000")
	return c
}

func functionShow(r *remote) *cobra.Command {
	return r.verb("show NAME", "Show a function", exactly(1), func(ctx context.Context, s *session) error {
		f, err := s.Function(ctx, s.args[0])
		if err != nil {
			return err
		}
		return s.one(f)
	})
}

// errFunctionFailed ends a command whose function failed: its error is printed already.
var errFunctionFailed = errors.New("the function failed")

func functionInvoke(r *remote) *cobra.Command {
	var event, showLog bool
	c := r.verb("invoke NAME[:QUALIFIER] [PAYLOAD|-]", "Invoke a function and print its answer; - reads the payload from stdin", between(1, 2), func(ctx context.Context, s *session) error {
		payload := []byte("{}")
		if len(s.args) == 2 {
			payload = []byte(s.args[1])
		}
		if string(payload) == "-" {
			var err error
			if payload, err = io.ReadAll(io.LimitReader(s.cmd.InOrStdin(), schema.InvokeBytesMax+1)); err != nil {
				return err
			}
		}
		out, err := s.Invoke(ctx, s.args[0], payload, event)
		if err != nil {
			return err
		}
		if showLog {
			s.cmd.ErrOrStderr().Write(out.Log)
		}
		if event {
			return s.say("accepted as %s", out.RequestID)
		}
		if _, err := fmt.Fprintf(s.w, "%s\n", out.Payload); err != nil {
			return err
		}
		if out.FunctionError != "" {
			return errFunctionFailed
		}
		return nil
	})
	c.Flags().BoolVar(&event, "event", false, "do not wait: the invocation is accepted, durably, and tried again after errors")
	c.Flags().BoolVar(&showLog, "log", false, "print the end of its log to stderr")
	return c
}

func functionLogs(r *remote) *cobra.Command {
	var follow bool
	c := r.verb("logs NAME", "Print what a function wrote, on the node that answers", exactly(1), func(ctx context.Context, s *session) error {
		wait, after := time.Duration(0), int64(0)
		for {
			text, next, err := s.FunctionLogs(ctx, s.args[0], after, wait)
			if ctx.Err() != nil {
				return nil // Ctrl-C is how following ends
			}
			if err != nil {
				return err
			}
			if _, err := io.WriteString(s.w, text); err != nil {
				return err
			}
			if text == "" && !follow {
				return nil
			}
			if after = next; text == "" {
				wait = schema.PullWaitMax
			}
		}
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	return c
}

func functionRollback(r *remote) *cobra.Command {
	return r.verb("rollback NAME VERSION", "Make another version the live one, at once", exactly(2), func(ctx context.Context, s *session) error {
		version, err := strconv.Atoi(s.args[1])
		if err != nil || version < 1 {
			return usagef("VERSION must be a number from 1, not %q", s.args[1])
		}
		f, err := s.RollbackFunction(ctx, s.args[0], version)
		if err != nil {
			return err
		}
		return s.say("version %d of %s is live", f.Live, f.Name)
	})
}

func functionDelete(r *remote) *cobra.Command {
	return r.verb("delete NAME", "Delete a function with its versions and pending events", exactly(1), func(ctx context.Context, s *session) error {
		if err := s.DeleteFunction(ctx, s.args[0]); err != nil {
			return err
		}
		return s.say("function %s is deleted", s.args[0])
	})
}
