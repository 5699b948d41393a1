package cmd

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/handfast-mq/handfast/internal/bench"
)

func newBench() *cobra.Command {
	var o bench.Options
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a node of its own beside a reference",
		Long: `Start a node in a temporary directory and measure it: durable publishing, pulling, webhooks, latency. Beside it runs the
reference, the least that a durable queue must do with the same HTTP library on the same disk; a rate's ratio to it
says more than the rate.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := checkRounds(o.Rounds, o.Warm, o.Measure); err != nil {
				return err
			}
			if o.Binary, err = os.Executable(); err != nil {
				return err
			}
			o.Out = c.OutOrStdout()
			return bench.Run(o)
		},
	}
	f := c.Flags()
	roundsFlags(f, &o.Rounds, &o.Warm, &o.Measure)
	f.StringVar(&o.Only, "only", "", "measure only what has this in its name")
	f.StringVar(&o.JSON, "out", "", "file for the rows as JSON")
	c.AddCommand(newBenchReference(), newBenchFaults(), newBenchCluster(), newBenchFunctions())
	return c
}

// roundsFlags are the flags of how often and how long something is measured.
func roundsFlags(f *pflag.FlagSet, rounds *int, warm, measure *time.Duration) {
	f.IntVar(rounds, "rounds", 3, "rounds, of which the median counts")
	f.DurationVar(warm, "warm", time.Second, "time before each measurement")
	f.DurationVar(measure, "measure", 4*time.Second, "time of each measurement")
}

func checkRounds(rounds int, warm, measure time.Duration) error {
	if rounds < 1 || rounds > 100 || measure < 100*time.Millisecond || measure > time.Minute || warm < 0 || warm > time.Minute {
		return usagef("--rounds must be from 1 to 100, --measure from 100ms to 1m, --warm up to 1m")
	}
	return nil
}

func newBenchCluster() *cobra.Command {
	var o bench.ClusterOptions
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Measure three nodes on a database beside the database alone",
		Long: `Start three nodes on a fresh keyspace of a ScyllaDB or Cassandra cluster and measure them: publishing, batches, latency, the end of
a node by kill -9 and by SIGTERM. Beside them run plain statements to the same database, which is what a ratio is of. The
keyspace is dropped at the end.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := fromEnvironment(c.Flags()); err != nil {
				return err
			}
			if len(o.Hosts) == 0 {
				return usagef("--cql-hosts is needed")
			}
			if err := checkRounds(o.Rounds, o.Warm, o.Measure); err != nil {
				return err
			}
			if o.Binary, err = os.Executable(); err != nil {
				return err
			}
			o.Out = c.OutOrStdout()
			return bench.RunCluster(o)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Hosts, "cql-hosts", nil, "hosts of the ScyllaDB or Cassandra cluster, some are enough")
	f.IntVar(&o.Port, "cql-port", 9042, "port of the database")
	roundsFlags(f, &o.Rounds, &o.Warm, &o.Measure)
	f.StringVar(&o.Only, "only", "", "measure only this: throughput, latency, crash or handover")
	f.DurationVar(&o.Suspicion, "suspicion", 2*time.Second, "silence after which a node's partitions are taken over")
	f.StringVar(&o.JSON, "out", "", "file for the rows as JSON")
	return c
}

func newBenchReference() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:    "reference",
		Short:  "Serve the reference alone",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return bench.Reference(dir, c.OutOrStdout()) },
	}
	c.Flags().StringVar(&dir, "dir", ".", "directory for its log")
	return c
}

func newBenchFaults() *cobra.Command {
	return &cobra.Command{
		Use:    "faults",
		Short:  "Be the handler that fails as it is asked to",
		Hidden: true,
		Args:   noArgs,
		Run:    func(*cobra.Command, []string) { bench.ServeFaults() },
	}
}

func newBenchFunctions() *cobra.Command {
	var o bench.FunctionOptions
	c := &cobra.Command{
		Use:   "functions",
		Short: "Measure the hosting of functions",
		Long: `Start a node in a temporary directory, deploy the handler of functions/handlers/web to it, and measure: latency, invocations a
second, cold start, memory; and whether what handlers and callers do beside being right ends as at AWS. With --emulator, the AWS Lambda
Runtime Interface Emulator runs the same handlers beside it.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Measure < 100*time.Millisecond || o.Measure > time.Minute {
				return usagef("--measure must be from 100ms to 1m")
			}
			if o.Binary, err = os.Executable(); err != nil {
				return err
			}
			o.Out = c.OutOrStdout()
			return bench.RunFunctions(o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Handler, "handler", "bin/web", "directory with the bootstrap of functions/handlers/web")
	f.StringVar(&o.Emulator, "emulator", "", "the emulator's binary; without it, it is not measured")
	f.DurationVar(&o.Measure, "measure", 4*time.Second, "time of each measurement")
	f.StringVar(&o.JSON, "out", "", "file for the rows as JSON")
	return c
}
