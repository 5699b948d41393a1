package webhook

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

const (
	// verifyTimeout bounds each of the two questions.
	verifyTimeout = 10 * time.Second
	// verificationType is the type of the event that carries the challenge.
	verificationType = "handfast.subscription.verification"
)

// verification is the signed body that asks an endpoint to echo the challenge.
type verification struct {
	Type         string                `json:"type"`
	Timestamp    time.Time             `json:"timestamp"`
	Challenge    string                `json:"challenge"`
	Subscription schema.SubscriptionID `json:"subscription_id"`
	Topic        schema.TopicID        `json:"topic_id"`
	ConfirmURL   string                `json:"confirm_url,omitempty"`
}

// Verify asks the endpoint for its consent: first by the CloudEvents handshake (OPTIONS), where only the headers of
// the answer count, then by a signed challenge to be echoed. Given means that it agreed by one of them, Refused that it
// answered 410 Gone, Pending without an error that it took the challenge and may confirm later. An error holds words
// for the consumer: Invalid when the subscription must change, Unavailable when asking again may help.
func (w *Webhook) Verify(ctx context.Context, s *schema.Subscription) (schema.Consent, error) {
	if err := CheckURL(s.Target.URL, w.opts.Targets); err != nil {
		return schema.ConsentPending, err
	}
	agreed, err := w.handshake(ctx, s)
	if err != nil {
		return schema.ConsentPending, err
	}
	if agreed {
		return schema.ConsentGiven, nil
	}
	if s.Challenge == "" {
		return schema.ConsentPending, nil
	}
	return w.challenge(ctx, s)
}

// handshake asks by OPTIONS. An endpoint that does not know the handshake has not agreed; that is no error.
func (w *Webhook) handshake(ctx context.Context, s *schema.Subscription) (bool, error) {
	r := &request{method: http.MethodOptions, url: s.Target.URL}
	w.addCommon(r)
	rate := int64(math.Ceil(s.Target.Rate * 60))
	if rate > 0 {
		r.add("Webhook-Request-Rate", strconv.FormatInt(rate, 10))
	}
	if confirm := w.confirmURL(s); confirm != "" {
		r.add("Webhook-Request-Callback", confirm)
	}
	resp, err := w.exchange(ctx, r, verifyTimeout)
	if err != nil {
		if isRefused(err) {
			return false, schema.Errorf(schema.Invalid, "%s", describe(err, verifyTimeout))
		}
		return false, nil // the challenge finds out what is wrong
	}
	origin := strings.TrimSpace(resp.header.Get("Webhook-Allowed-Origin"))
	if origin != "*" && !strings.EqualFold(origin, w.opts.Origin) {
		return false, nil
	}
	return allowsRate(rate, strings.TrimSpace(resp.header.Get("Webhook-Allowed-Rate")))
}

// allowsRate compares the rate that was asked for, per minute, with the one that is allowed.
func allowsRate(asked int64, allowed string) (bool, error) {
	if asked == 0 || allowed == "*" {
		return true, nil
	}
	n, err := strconv.ParseInt(allowed, 10, 64)
	if err != nil || n <= 0 {
		return false, nil
	}
	if n < asked {
		return false, schema.Errorf(schema.Invalid, "the endpoint allows %d deliveries a minute: set the target's rate to %g or less", n, float64(n)/60)
	}
	return true, nil
}

func (w *Webhook) confirmURL(s *schema.Subscription) string {
	if w.opts.CallbackURL == "" || s.Challenge == "" {
		return ""
	}
	return w.opts.CallbackURL + url.QueryEscape(s.Challenge)
}

// challenge posts the challenge and looks for it in the answer.
func (w *Webhook) challenge(ctx context.Context, s *schema.Subscription) (schema.Consent, error) {
	now := time.Now()
	body, err := json.Marshal(verification{Type: verificationType, Timestamp: now.UTC(), Challenge: s.Challenge,
		Subscription: s.ID, Topic: s.Topic, ConfirmURL: w.confirmURL(s)})
	if err != nil {
		return schema.ConsentPending, schema.WrapError(schema.Internal, err, "the challenge cannot be written")
	}
	r := &request{method: http.MethodPost, url: s.Target.URL, body: body}
	r.add("Content-Type", "application/json")
	r.add("Handfast-Topic-Id", strconv.FormatInt(int64(s.Topic), 10))
	r.add("Handfast-Subscription-Id", strconv.FormatInt(int64(s.ID), 10))
	w.addCommon(r)
	if err := r.sign(s.Secrets, "verify_"+strconv.FormatInt(int64(s.ID), 10), now); err != nil {
		return schema.ConsentPending, err
	}
	resp, err := w.exchange(ctx, r, verifyTimeout)
	if err != nil {
		kind := schema.Unavailable
		if isRefused(err) {
			kind = schema.Invalid
		}
		return schema.ConsentPending, schema.WrapError(kind, err, "%s", describe(err, verifyTimeout))
	}
	return w.answer(s, resp)
}

func (w *Webhook) answer(s *schema.Subscription, resp *response) (schema.Consent, error) {
	switch {
	case resp.status == http.StatusGone:
		return schema.ConsentRefused, nil
	case resp.status < 200 || resp.status > 299:
		e := schema.Errorf(schema.Unavailable, "the endpoint answered %d to the verification", resp.status)
		return schema.ConsentPending, e.Retry(retryAfter(resp.retryAfter, time.Now()))
	case echoes(resp.body, s.Challenge):
		return schema.ConsentGiven, nil
	}
	w.opts.Logger.Info("the endpoint took the challenge without echoing it; it may confirm later",
		"subscription_id", int64(s.ID), "topic_id", int64(s.Topic), "status", resp.status)
	return schema.ConsentPending, nil
}

// echoes tells whether a body is the challenge, as text or as {"challenge": "…"}. A server that mirrors whatever it gets
// has not agreed to anything.
func echoes(body []byte, challenge string) bool {
	if strings.TrimSpace(string(body)) == challenge {
		return true
	}
	var answer verification
	return json.Unmarshal(body, &answer) == nil && answer.Challenge == challenge && answer.Type == ""
}
