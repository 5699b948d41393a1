package cmd

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

func newRule(r *remote) *cobra.Command {
	return group("rule", "Rules say who may publish and subscribe to a topic", ruleList(r), ruleCreate(r))
}

func ruleList(r *remote) *cobra.Command {
	return r.verb("list", "List the rules", noArgs, func(ctx context.Context, s *session) error {
		rules, err := s.Rules(ctx)
		if err != nil {
			return err
		}
		return list(s.printer, rules, "RULE NAME OWNER DESCRIPTION", func(r client.Rule) []any { return []any{r.ID, r.Name, r.Owner, r.Description} })
	})
}

func ruleCreate(r *remote) *cobra.Command {
	var file, description string
	c := r.verb("create NAME --rego FILE", "Create a rule from a Rego module", exactly(1), func(ctx context.Context, s *session) error {
		if file == "" {
			return usagef("--rego is missing: the file with the rule")
		}
		rego, err := readAll(s.cmd.InOrStdin(), file, schema.RegoBytesMax)
		if err != nil {
			return err
		}
		made, err := s.CreateRule(ctx, s.args[0], description, string(rego))
		if err != nil {
			return err
		}
		return s.one(made)
	})
	c.Long = `Create a rule from a Rego module. It is of the package handfast.rule and makes publish, subscribe, auto_approve or read_topic true:

  package handfast.rule
  publish if input.principal.labels.team == "red"
  auto_approve := true`
	c.Flags().StringVar(&file, "rego", "", "file with the module; - = standard input")
	c.Flags().StringVar(&description, "description", "", "words for people")
	return c
}

// readAll reads a file, or standard input for "-", up to a bound.
func readAll(stdin io.Reader, path string, bytesMax int) ([]byte, error) {
	from, name := stdin, "standard input"
	if path != "-" {
		name = path
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	body, err := io.ReadAll(io.LimitReader(from, int64(bytesMax)+1))
	if err == nil && len(body) > bytesMax {
		err = usagef("%s has more than %d bytes", name, bytesMax)
	}
	return body, err
}
