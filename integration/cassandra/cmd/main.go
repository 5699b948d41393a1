// Command cmd keeps a test cluster running in the foreground, for development: set the variable that it prints, and
// every test binary uses this cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/handfast-mq/handfast/integration/cassandra"
)

func main() {
	var o cassandra.Options
	addresses := flag.String("addresses", "127.0.61.1,127.0.61.2,127.0.61.3", "of the three nodes")
	flag.StringVar(&o.Paxos, "paxos", "v2", "v1 or v2")
	flag.StringVar(&o.Sync, "sync", "periodic", "commit log: periodic or group")
	flag.BoolVar(&o.NoHints, "no-hints", false, "without hinted handoff")
	flag.StringVar(&o.Dir, "dir", "", "keep the data here")
	flag.Parse()
	o.Addresses = strings.Split(*addresses, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cassandra.Start(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer c.Stop()
	fmt.Printf("export %s=%s:%d\n", cassandra.HostsVariable, strings.Join(c.Hosts(), fmt.Sprintf(":%d,", c.Port())), c.Port())
	<-ctx.Done()
}
