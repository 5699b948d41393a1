// Package cmd is the command line: one file for each noun, and one for serve.
package cmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/schema"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake in how a command was called.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs one command and returns its exit code: 0, 1 for a failure, 2 for a mistake in the call. An error is one sentence on stderr.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "handfast:", err)
	if errors.As(err, &usageError{}) || badInput[schema.KindOf(err)] {
		return exitUsage
	}
	return exitFailure
}

// badInput are the kinds of errors that say what is wrong with what was asked, whoever noticed.
var badInput = map[schema.Kind]bool{schema.Invalid: true, schema.TooLarge: true, schema.Unsupported: true}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "handfast",
		Short:         "A durable topic queue over HTTP, delivered by agreement",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	var r remote
	r.register(root)
	root.AddCommand(newServe(), newMigrate(), newCert(), newBench(), newTopic(&r), newUser(&r), newToken(&r), newSubscription(&r), newUnsubscribe(&r), newRule(&r), newPattern(&r),
		newPublish(&r), newPull(&r), newListen(&r), newAck(&r), newNack(&r), newStatus(&r), newDeliveries(&r), newCluster(&r), newFunction(&r), newReceive(), newDocs())
	return root
}

// noArgs refuses arguments, and unknown commands, as mistakes in the call.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unknown command or argument %q for %q", args[0], c.CommandPath())
	}
	return nil
}
