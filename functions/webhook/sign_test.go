package webhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// The example of the specification.
func TestSignatureVector(t *testing.T) {
	got, err := signature([]schema.Secret{{Key: testSecret}}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestRotation(t *testing.T) {
	now := time.Unix(1700000000, 0)
	private, public := NewKeyPair()
	secrets := []schema.Secret{{Key: NewSecret()}, {Key: private}, {Key: NewSecret(), ExpiresAt: now.Add(time.Second)}, {Key: NewSecret(), ExpiresAt: now}}
	got, err := signature(secrets, "m", now, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	entries := strings.Split(got, " ")
	if len(entries) != 3 || !strings.HasPrefix(entries[1], "v1a,") {
		t.Fatal(got)
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, publicPrefix))
	sig, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(entries[1], "v1a,"))
	if !ed25519.Verify(key, []byte("m.1700000000.x"), sig) {
		t.Error("the ed25519 signature is wrong")
	}
}

func TestCheckSecret(t *testing.T) {
	seed := make([]byte, 64)
	for secret, ok := range map[string]bool{
		NewSecret(): true, testSecret: true, "": false, "whsec_": false, "whsec_!": false, "secret": false,
		hmacPrefix + base64.StdEncoding.EncodeToString(make([]byte, 23)): false,
		hmacPrefix + base64.StdEncoding.EncodeToString(make([]byte, 65)): false,
		privatePrefix + base64.StdEncoding.EncodeToString(seed[:32]):     true,
		privatePrefix + base64.StdEncoding.EncodeToString(seed):          false, // halves that do not fit
		privatePrefix + base64.StdEncoding.EncodeToString(seed[:31]):     false,
		"whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)):    false,
	} {
		if err := CheckSecret(secret); (err == nil) != ok || err != nil && schema.KindOf(err) != schema.Invalid {
			t.Errorf("%q: %v", secret, err)
		}
	}
	if NewSecret() == NewSecret() {
		t.Error("secrets repeat")
	}
}
