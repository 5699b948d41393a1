package cmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/internal/node"
	"github.com/handfast-mq/handfast/schema"
)

const serverDefault = "http://127.0.0.1:8080"

// remote is the cluster that the verbs call, as the global flags say.
type remote struct {
	server, token string
	json          bool
}

func (r *remote) register(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&r.server, "server", "", "address of the cluster (default $HANDFAST_SERVER, or "+serverDefault+")")
	f.StringVar(&r.token, "token", "", "bearer token of the user who calls (default $HANDFAST_TOKEN)")
	f.BoolVar(&r.json, "json", false, "write JSON, for programs: one document, or one on each line")
}

func (r *remote) client() (*client.Client, error) {
	server := cmp.Or(r.server, os.Getenv("HANDFAST_SERVER"), serverDefault)
	token := cmp.Or(r.token, os.Getenv("HANDFAST_TOKEN"))
	if token == "" {
		hint := ""
		file := filepath.Join(node.Default().Dir, node.TokenFile)
		if f, err := os.Open(file); err == nil && server == serverDefault {
			f.Close()
			hint = fmt.Sprintf("; here is an administrator's: export HANDFAST_TOKEN=$(cat %s)", file)
		}
		return nil, usagef("no token: give --token or set HANDFAST_TOKEN%s", hint)
	}
	return client.New(client.Options{Server: server, Token: token})
}

// session is one verb at work.
type session struct {
	*client.Client
	*printer
	cmd  *cobra.Command
	args []string
}

// verb makes a command that calls the cluster. Its context ends with Ctrl-C.
func (r *remote) verb(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, s *session) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(c *cobra.Command, args []string) error {
		cl, err := r.client()
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, stop := signal.NotifyContext(cmp.Or(c.Context(), context.Background()), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return run(ctx, &session{cl, &printer{c.OutOrStdout(), r.json}, c, args})
	}}
}

// group makes a noun of verbs.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		return usagef("say what to do: see %s --help", c.CommandPath())
	}}
	c.AddCommand(verbs...)
	return c
}

// between takes so many arguments; another number is a mistake in the call.
func between(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usagef("usage: %s", c.UseLine())
		}
		return nil
	}
}

func exactly(n int) cobra.PositionalArgs { return between(n, n) }

// idOf reads an argument that is an identifier.
func idOf[T ~int64](what, arg string) (T, error) {
	id, err := schema.ParseID(arg)
	if err != nil || id == 0 {
		return 0, usagef("%s must be a number from 1, not %q", what, arg)
	}
	return T(id), nil
}

// topicOf finds the topic that an argument names: by its number, or by its name among the caller's own.
func (s *session) topicOf(ctx context.Context, arg string) (schema.TopicID, error) {
	if id, err := schema.ParseID(arg); err == nil && id > 0 {
		return schema.TopicID(id), nil
	}
	t, err := s.TopicNamed(ctx, 0, arg)
	if schema.KindOf(err) == schema.NotFound {
		return 0, fmt.Errorf("you have no topic %q; topics of others go by their number", arg)
	}
	return t.ID, err
}

// changed gives a pointer to a flag's value, or nil when the flag was not given.
func changed[T any](s *session, flag string, v T) *T {
	if !s.cmd.Flags().Changed(flag) {
		return nil
	}
	return &v
}

// pairs reads flags of the form name=value.
func pairs(what string, list []string) (map[string]string, error) {
	out := make(map[string]string, len(list))
	for _, p := range list {
		name, value, found := strings.Cut(p, "=")
		if !found {
			return nil, usagef("--%s must be name=value, not %q", what, p)
		}
		out[name] = value
	}
	return out, nil
}
