// Command handfast is a node of the Handfast topic queue, and its client.
package main

import (
	"os"

	"github.com/handfast-mq/handfast/cmd"
)

func main() { os.Exit(cmd.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
