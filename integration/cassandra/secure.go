package cassandra

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"

	"github.com/gocql/gocql"

	"github.com/handfast-mq/handfast/internal/certs"
)

// Secrets are what a client needs to be let in by a cluster that was started with Secure. Files are PEM.
type Secrets struct {
	CA, Cert, Key      string
	ServerName         string // in every node's certificate
	Username, Password string
	Server             string // the nodes' certificate with its key
}

// newSecrets makes an authority with a certificate for the nodes and one for clients. User and password are those of a new Cassandra.
func newSecrets(dir string) (*Secrets, error) {
	s := &Secrets{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client.key"),
		Server: filepath.Join(dir, "server.pem"), ServerName: certs.Peer, Username: "cassandra", Password: "cassandra"}
	ca, err := certs.NewCA()
	if err != nil {
		return nil, err
	}
	client, err := ca.Issue()
	if err != nil {
		return nil, err
	}
	server, err := ca.Issue()
	if err != nil {
		return nil, err
	}
	key, err := pkcs8(server)
	if err != nil {
		return nil, err
	}
	return s, errors.Join(os.WriteFile(s.CA, ca.Cert, 0o600), os.WriteFile(s.Cert, client.Cert, 0o600), os.WriteFile(s.Key, client.Key, 0o600),
		os.WriteFile(s.Server, append(key, server.Cert...), 0o600))
}

// pkcs8 is the one form of a key that Cassandra reads.
func pkcs8(p certs.Pair) ([]byte, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// open lets a session in.
func (s *Secrets) open(cfg *gocql.ClusterConfig) {
	if s == nil {
		return
	}
	cfg.Authenticator = gocql.PasswordAuthenticator{Username: s.Username, Password: s.Password}
	cfg.SslOpts = &gocql.SslOptions{Config: &tls.Config{ServerName: s.ServerName, MinVersion: tls.VersionTLS12},
		CaPath: s.CA, CertPath: s.Cert, KeyPath: s.Key, EnableHostVerification: true}
}
