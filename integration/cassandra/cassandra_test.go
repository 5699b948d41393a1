package cassandra

import (
	"strings"
	"testing"
)

// TestMissingToolsAreNamed: who cannot have a cluster is told what to install.
func TestMissingToolsAreNamed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("PATH", "")
	_, err := jars(t.Context())
	if err == nil || !strings.Contains(err.Error(), "install Maven and JDK 17") || !strings.Contains(err.Error(), HostsVariable) {
		t.Errorf("error %v, want what to install", err)
	}
}

func TestConfigurationFollowsTheOptions(t *testing.T) {
	p := &process{Options: Options{Port: 9042, Paxos: "v1", Sync: "group", NoHints: true}, Address: "127.0.9.2", Seed: "127.0.9.1", Token: tokens[1], Dir: t.TempDir()}
	var b strings.Builder
	if err := yaml.Execute(&b, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"listen_address: 127.0.9.2", `seeds: "127.0.9.1"`, "paxos_variant: v1", "hinted_handoff_enabled: false",
		"commitlog_sync: group", "commitlog_sync_group_window", "initial_token: " + tokens[1]} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in the configuration:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "commitlog_sync_period") {
		t.Error("a period beside the group window: Cassandra refuses that")
	}
}
