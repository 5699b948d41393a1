package cassandra

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

const scyllaImage = "scylladb/scylla:6.2"

// dockerRuns tells whether a Docker engine answers, not whether its client is installed.
func dockerRuns(ctx context.Context) bool {
	return exec.CommandContext(ctx, "docker", "info", "--format", "{{.ServerVersion}}").Run() == nil
}

// startScylla runs three ScyllaDB containers in Docker's own network, which the host reaches on Linux.
func startScylla(ctx context.Context) (*Cluster, error) {
	c := &Cluster{port: 9042}
	for range 3 {
		args := []string{"run", "-d", "--rm", scyllaImage, "--smp", "1", "--memory", "750M", "--overprovisioned", "1", "--developer-mode", "1"}
		if len(c.hosts) > 0 {
			args = append(args, "--seeds", c.hosts[0])
		}
		id, err := docker(ctx, args...)
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.containers = append(c.containers, id)
		host, err := docker(ctx, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id)
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.hosts = append(c.hosts, host)
		// Nodes join one after the other.
		if err := c.waitReady(ctx, len(c.hosts)); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) stopContainers() {
	for _, id := range c.containers {
		_, _ = docker(context.Background(), "rm", "-f", id)
	}
}

func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w\n%s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
