package scylla

import (
	"testing"

	"github.com/handfast-mq/handfast/integration/cassandra"
	"github.com/handfast-mq/handfast/schema"
)

// TestPasswordAndTLS: a database that wants a password and a client certificate lets us in with both, and not with less.
func TestPasswordAndTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what needs a cluster")
	}
	c, err := cassandra.Start(t.Context(), cassandra.Options{Addresses: []string{"127.0.65.1"}, Secure: true})
	must(t, err)
	t.Cleanup(c.Stop)
	secrets := c.Secrets()
	cfg := Config{Hosts: c.Hosts(), Port: c.Port(), Keyspace: "secure", ReplicationFactor: 1, Username: secrets.Username, Password: secrets.Password,
		TLS: &TLS{CA: secrets.CA, Cert: secrets.Cert, Key: secrets.Key, ServerName: secrets.ServerName}, Logger: quiet()}
	must(t, Migrate(t.Context(), cfg))
	s := openStore(t, cfg)
	wantWorking(t, s, freshPartition(), 1, 5)

	for name, less := range map[string]func(*Config){
		"another password": func(c *Config) { c.Password = "no" },
		"no password":      func(c *Config) { c.Username = "" },
		"no TLS":           func(c *Config) { c.TLS = nil },
		"no certificate":   func(c *Config) { c.TLS.Cert, c.TLS.Key = "", "" },
		"another name":     func(c *Config) { c.TLS.ServerName = "elsewhere" },
		"no authority":     func(c *Config) { c.TLS.CA = "" },
	} {
		weak, options := cfg, *cfg.TLS
		weak.TLS = &options
		less(&weak)
		s, err := Open(t.Context(), weak)
		if schema.KindOf(err) != schema.Unavailable || err == nil {
			t.Errorf("%s: %v, want it unavailable", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}
