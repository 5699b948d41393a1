package cmd

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/cloudevents"
)

// forwardTimeout bounds one POST: below the default ack deadline, so that the message is still ours when it ends.
const forwardTimeout = 15 * time.Second

// forwarder POSTs messages to one URL as a webhook would be called.
type forwarder struct {
	url    string
	signer *standardwebhooks.Webhook // nil = unsigned
	http   *http.Client
}

func newForwarder(url, secret string) (*forwarder, error) {
	f := &forwarder{url: url, http: &http.Client{Timeout: forwardTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	if secret == "" {
		return f, nil
	}
	var err error
	if f.signer, err = standardwebhooks.NewWebhook(secret); err != nil {
		return nil, usagef("--secret must be whsec_ and base64")
	}
	return f, nil
}

// forwarded is how one POST ended.
type forwarded struct {
	Status int    `json:"http_status,omitzero"`
	Error  string `json:"error,omitempty"`
}

func (a forwarded) took() bool { return a.Status >= 200 && a.Status < 300 }

func (f *forwarder) post(ctx context.Context, d *client.Delivery) forwarded {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(d.Content))
	if err != nil {
		return forwarded{Error: err.Error()}
	}
	if err := f.head(r.Header, d, time.Now()); err != nil {
		return forwarded{Error: err.Error()}
	}
	resp, err := f.http.Do(r)
	if err != nil {
		return forwarded{Error: err.Error()}
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, schema.ResponseBytesMax)) // so that the connection is used again
	return forwarded{Status: resp.StatusCode}
}

func (f *forwarder) head(h http.Header, d *client.Delivery, at time.Time) error {
	id := "msg_" + strconv.FormatInt(int64(d.ID), 10)
	h.Set("Content-Type", cmp.Or(d.ContentType, "application/octet-stream"))
	for name, value := range d.Attributes {
		h.Set("Handfast-Attribute-"+name, cloudevents.EncodeHeader(value))
	}
	h.Set("Handfast-Topic-Id", strconv.FormatInt(int64(d.Topic), 10))
	h.Set("Handfast-Message-Id", strconv.FormatInt(int64(d.ID), 10))
	h.Set("Handfast-Attempt", strconv.Itoa(d.Attempt))
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	if f.signer == nil {
		return nil
	}
	signature, err := f.signer.Sign(id, at, d.Content)
	h.Set("Webhook-Signature", signature)
	return err
}
