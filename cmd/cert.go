package cmd

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/internal/certs"
)

func newCert() *cobra.Command {
	var dir string
	var nodes int
	c := &cobra.Command{
		Use:   "cert",
		Short: "Make a CA and certificates for the connections between nodes",
		Long: `Make a certificate authority and certificates for the connections between the nodes of a cluster, for those who do not
want the cluster's own: without --peer-ca nodes use a CA that migrate has put beside the metadata. Use the files with
--peer-ca, --peer-cert and --peer-key.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if nodes < 1 || nodes > 1000 {
				return usagef("--nodes must be between 1 and 1000")
			}
			ca, err := certs.NewCA()
			if err != nil {
				return err
			}
			if err := writePair(c, dir, "peer-ca", ca); err != nil {
				return err
			}
			for i := range nodes {
				node, err := ca.Issue()
				if err != nil {
					return err
				}
				if err := writePair(c, dir, fmt.Sprintf("peer-%d", i+1), node); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "out", ".", "directory for the files")
	c.Flags().IntVar(&nodes, "nodes", 1, "how many nodes to make certificates for")
	return c
}

// writePair writes NAME.pem and NAME-key.pem and never overwrites.
func writePair(c *cobra.Command, dir, name string, p certs.Pair) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for file, content := range map[string][]byte{name + ".pem": p.Cert, name + "-key.pem": p.Key} {
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if _, err := f.Write(content); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), filepath.Join(dir, file))
	}
	return nil
}
