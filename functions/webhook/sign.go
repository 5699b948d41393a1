package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Secrets as the Standard Webhooks specification 1.0.0 writes them.
const (
	hmacPrefix    = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"

	secretBytesMin = 24
	secretBytesMax = 64
	secretsMax     = 8 // signatures in one header
)

// NewSecret returns a new symmetric signing secret of 32 random bytes.
func NewSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return hmacPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// NewKeyPair returns a new ed25519 signing key ("whsk_…", stays here) and its public half ("whpk_…", for the subscriber).
func NewKeyPair() (private, public string) {
	pub, priv, _ := ed25519.GenerateKey(nil) // fails only with a broken reader; nil is the system's own
	return privatePrefix + base64.StdEncoding.EncodeToString(priv.Seed()),
		publicPrefix + base64.StdEncoding.EncodeToString(pub)
}

// CheckSecret says what is wrong with a secret that a consumer brought.
func CheckSecret(secret string) error {
	_, err := parseSecret(secret)
	return err
}

// signer appends one entry of the webhook-signature header. What is signed is the head and the body, one after the other.
type signer interface {
	appendSignature(dst, head, body []byte) []byte
}

type hmacKey []byte

func (k hmacKey) appendSignature(dst, head, body []byte) []byte {
	mac := hmac.New(sha256.New, k)
	mac.Write(head)
	mac.Write(body)
	var sum [sha256.Size]byte
	return base64.StdEncoding.AppendEncode(append(dst, "v1,"...), mac.Sum(sum[:0]))
}

type ed25519Key ed25519.PrivateKey

func (k ed25519Key) appendSignature(dst, head, body []byte) []byte {
	return base64.StdEncoding.AppendEncode(append(dst, "v1a,"...), ed25519.Sign(ed25519.PrivateKey(k), slices.Concat(head, body)))
}

func parseSecret(secret string) (signer, error) {
	if s, ok := strings.CutPrefix(secret, hmacPrefix); ok {
		key, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, schema.Errorf(schema.Invalid, "the secret is not base64 after %q", hmacPrefix)
		}
		if len(key) < secretBytesMin || len(key) > secretBytesMax {
			return nil, schema.Errorf(schema.Invalid, "the secret has %d bytes; it must have %d to %d", len(key), secretBytesMin, secretBytesMax)
		}
		return hmacKey(key), nil
	}
	if s, ok := strings.CutPrefix(secret, privatePrefix); ok {
		return parsePrivateKey(s)
	}
	return nil, schema.Errorf(schema.Invalid, "a secret begins with %q or %q", hmacPrefix, privatePrefix)
}

// parsePrivateKey reads the seed alone (32 bytes) or seed and public key (64 bytes).
func parsePrivateKey(s string) (signer, error) {
	key, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, schema.Errorf(schema.Invalid, "the key is not base64 after %q", privatePrefix)
	}
	switch len(key) {
	case ed25519.SeedSize:
		return ed25519Key(ed25519.NewKeyFromSeed(key)), nil
	case ed25519.PrivateKeySize:
		k := ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])
		if string(k) != string(key) {
			return nil, schema.Errorf(schema.Invalid, "the public half of the ed25519 key does not belong to its seed")
		}
		return ed25519Key(k), nil
	}
	return nil, schema.Errorf(schema.Invalid, "an ed25519 key has %d or %d bytes, not %d", ed25519.SeedSize, ed25519.PrivateKeySize, len(key))
}

// signature returns the whole webhook-signature header: one entry per secret that has not expired, newest kind first as
// they are listed.
func signature(secrets []schema.Secret, id string, at time.Time, body []byte) (string, error) {
	head := append([]byte(id), '.')
	head = append(strconv.AppendInt(head, at.Unix(), 10), '.')
	var out []byte
	n := 0
	for _, s := range secrets {
		if !s.ExpiresAt.IsZero() && !at.Before(s.ExpiresAt) || n == secretsMax {
			continue
		}
		key, err := parseSecret(s.Key)
		if err != nil {
			return "", err
		}
		if n++; n > 1 {
			out = append(out, ' ')
		}
		out = key.appendSignature(out, head, body)
	}
	if n == 0 {
		return "", schema.Errorf(schema.Invalid, "the subscription has no valid signing secret")
	}
	return string(out), nil
}
