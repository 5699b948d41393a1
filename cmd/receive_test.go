package cmd

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// TestReceive sends an endpoint what a cluster would.
func TestReceive(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := &endpoint{out: &out, status: http.StatusAccepted, verify: signer.Verify}
	hook := httptest.NewServer(e)
	defer hook.Close()

	r, _ := http.NewRequest(http.MethodOptions, hook.URL, nil)
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.Header.Get("WebHook-Allowed-Origin") != "*" {
		t.Errorf("the handshake: %v %v", resp, err)
	}
	deliver := func(content string, sign bool) int {
		r, _ := http.NewRequest(http.MethodPost, hook.URL, strings.NewReader(content))
		now := time.Now()
		r.Header.Set("Webhook-Id", "msg_1_2")
		r.Header.Set("Handfast-Attempt", "3")
		if sign {
			signature, err := signer.Sign("msg_1_2", now, []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
			r.Header.Set("Webhook-Signature", signature)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := deliver("hello\x1b[2J\n", true); status != http.StatusAccepted {
		t.Errorf("a delivery is answered %d", status)
	}
	if status := deliver("forged", false); status != http.StatusUnauthorized {
		t.Errorf("without a signature: %d", status)
	}
	if status := deliver(strings.Repeat("x", receiveBytesMax+1), true); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d", status)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || lines[0] != `msg_1_2 attempt 3: hello\x1b[2J\n` || !strings.HasPrefix(lines[1], "refused: ") {
		t.Errorf("printed %q", lines)
	}
}
