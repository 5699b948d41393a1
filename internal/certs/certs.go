// Package certs makes the certificates by which the nodes of a cluster know each other.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"time"
)

const (
	// Peer is the name in every node's certificate. Nodes trust each other by their CA, wherever they run.
	Peer = "handfast-peer"

	lifetime = 10 * 365 * 24 * time.Hour
)

// Pair is a certificate and its key in PEM.
type Pair struct{ Cert, Key []byte }

// NewCA makes a certificate authority for one cluster.
func NewCA() (Pair, error) {
	return sign(nil, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "handfast cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
}

// Issue makes a node's certificate.
func (ca Pair) Issue() (Pair, error) {
	parent, err := tls.X509KeyPair(ca.Cert, ca.Key)
	if err != nil {
		return Pair{}, err
	}
	key, ok := parent.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return Pair{}, errors.New("the CA's key is not an ECDSA key")
	}
	return sign(parent.Leaf, key, &x509.Certificate{
		Subject: pkix.Name{CommonName: Peer}, DNSNames: []string{Peer}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func sign(parent *x509.Certificate, parentKey *ecdsa.PrivateKey, template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, err
	}
	template.NotBefore = time.Now().Add(-time.Hour) // clocks differ
	template.NotAfter = template.NotBefore.Add(lifetime)
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}
	rawKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})}, nil
}

// Mutual returns TLS settings, for both ends, by which a node shows its certificate and wants one of the same CA.
func Mutual(ca []byte, node Pair) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(node.Cert, node.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the CA is not a certificate in PEM")
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		ServerName: Peer, MinVersion: tls.VersionTLS13}, nil
}
