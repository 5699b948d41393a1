package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newDocs() *cobra.Command {
	return &cobra.Command{Use: "docs DIR", Short: "Write the manual as Markdown", Hidden: true, Args: exactly(1), RunE: func(c *cobra.Command, args []string) error {
		c.Root().DisableAutoGenTag = true
		if err := doc.GenMarkdownTree(c.Root(), args[0]); err != nil {
			return fmt.Errorf("write the manual: %w", err)
		}
		return nil
	}}
}
