package gateway_test

import (
	"fmt"
	"testing"
)

// TestBuiltinRules holds who may do what under each built-in rule.
func TestBuiltinRules(t *testing.T) {
	s := start(t)
	owner, granted, stranger := s.person("owner"), s.person("granted"), s.person("stranger")
	const yes, no, hidden = 200, 403, 404
	for rule, want := range map[string]struct {
		publish, publishGranted, subscribe, see int
		state                                   string
	}{
		"open":     {yes, yes, yes, yes, "active"},
		"approval": {no, yes, yes, yes, "pending_publisher"},
		"closed":   {hidden, yes, hidden, hidden, ""},
	} {
		topic := s.topic(owner, rule, rule)
		s.post(owner.token, "/grant_publish", fields{"topic_id": topic, "publisher_id": granted.id})
		check := func(what string, a *answer, status int) {
			t.Helper()
			if a.status != status {
				t.Errorf("%s: %s: want %d, got %d %s", rule, what, status, a.status, a.body)
			}
		}
		message := fields{"topic_id": topic, "message_content": "x"}
		at := fmt.Sprintf("?topic_id=%d", topic)
		check("a stranger publishes", s.send(stranger.token, "POST", "/publish_message", message), want.publish)
		check("a grantee publishes", s.send(granted.token, "POST", "/publish_message", message), want.publishGranted)
		check("the owner publishes", s.send(owner.token, "POST", "/publish_message", message), yes)
		check("an admin publishes", s.send(s.admin, "POST", "/publish_message", message), yes)
		check("a stranger sees", s.send(stranger.token, "GET", "/topic"+at, nil), want.see)
		check("a grantee sees", s.send(granted.token, "GET", "/topic"+at, nil), yes)
		sub := s.send(stranger.token, "POST", "/subscribe", fields{"topic_id": topic})
		if check("a stranger subscribes", sub, want.subscribe); sub.word("state") != want.state {
			t.Errorf("%s: subscribed: %s", rule, sub.body)
		}
		if own := s.post(owner.token, "/subscribe", fields{"topic_id": topic}); own.word("state") != "active" {
			t.Errorf("%s: the owner subscribes: %s", rule, own.body)
		}
		for _, path := range []string{"/update_topic", "/delete_topic"} {
			check("a stranger: "+path, s.send(stranger.token, "POST", path, fields{"topic_id": topic}), map[int]int{yes: no, hidden: hidden}[want.see])
			check("a grantee: "+path, s.send(granted.token, "POST", path, fields{"topic_id": topic}), no)
		}
	}
}

// TestBothSidesAgree walks through consent: nothing is delivered before both gave it, and each withdraws at any time.
func TestBothSidesAgree(t *testing.T) {
	s := start(t)
	owner, reader, other := s.person("owner"), s.person("reader"), s.person("other")
	for _, withdraws := range []person{owner, reader} {
		topic := s.topic(owner, fmt.Sprintf("by %d", withdraws.id), "approval")
		sub := s.post(reader.token, "/subscribe", fields{"topic_id": topic, "start": "earliest"}).id("subscription_id")
		id := fields{"subscription_id": sub}
		pull := fmt.Sprintf("/message?topic_id=%d&max=10&wait=0", topic)
		s.refused(s.send(reader.token, "GET", pull, nil), 403, "a pull before the approval")
		s.refused(s.send(reader.token, "POST", "/approve_subscription", id), 403, "the consumer approves itself")
		s.refused(s.send(other.token, "POST", "/approve_subscription", id), 404, "a third party approves")
		s.refused(s.send(other.token, "GET", fmt.Sprintf("/subscription?subscription_id=%d", sub), nil), 404, "a third party looks")
		if a := s.post(owner.token, "/approve_subscription", id); a.word("state") != "active" {
			t.Fatalf("approved: %s", a.body)
		}
		s.post(owner.token, "/publish_message", fields{"topic_id": topic, "message_content": "x"})
		if got := s.get(reader.token, fmt.Sprintf("/message?topic_id=%d&wait=10", topic)); got.word("message_content") != "x" {
			t.Errorf("pulled %s", got.body)
		}
		s.refused(s.send(owner.token, "GET", fmt.Sprintf("/message?topic_id=%d&consumer_id=%d", topic, reader.id), nil), 403, "the owner pulls in the consumer's name")
		s.refused(s.send(other.token, "POST", "/unsubscribe", fields{"topic_id": topic, "consumer_id": reader.id}), 404, "a third party withdraws")
		ended := s.post(withdraws.token, "/unsubscribe", fields{"topic_id": topic, "consumer_id": reader.id})
		if withdraws.id == reader.id && ended.word("state") != "ended" {
			t.Errorf("the consumer withdrew: %s", ended.body)
		}
		s.refused(s.send(reader.token, "GET", pull, nil), 403, "a pull after the withdrawal")
	}
}

func TestRevocationIsInForceAtOnce(t *testing.T) {
	s := start(t)
	owner, writer := s.person("owner"), s.person("writer")
	topic := s.topic(owner, "t", "approval")
	grant, message := fields{"topic_id": topic, "publisher_id": writer.id}, fields{"topic_id": topic, "message_content": "x"}
	for range 20 {
		s.refused(s.send(writer.token, "POST", "/publish_message", message), 403, "without a grant")
		s.post(owner.token, "/grant_publish", grant)
		s.post(writer.token, "/publish_message", message)
		s.post(owner.token, "/revoke_publish", grant)
	}
	s.refused(s.send(writer.token, "POST", "/publish_message", message), 403, "after the revocation")
}

func TestRejectedMayAskAgain(t *testing.T) {
	s := start(t)
	owner, reader := s.person("owner"), s.person("reader")
	topic := s.topic(owner, "t", "approval")
	first := s.post(reader.token, "/subscribe", fields{"topic_id": topic}).id("subscription_id")
	if a := s.post(owner.token, "/reject_subscription", fields{"subscription_id": first, "reason": "no"}); a.word("state") != "rejected" || a.word("reason") != "no" {
		t.Errorf("rejected: %s", a.body)
	}
	s.refused(s.send(owner.token, "POST", "/approve_subscription", fields{"subscription_id": first}), 409, "approved after all")
	if again := s.post(reader.token, "/subscribe", fields{"topic_id": topic}); again.id("subscription_id") == first || again.word("state") != "pending_publisher" {
		t.Errorf("asked again: %s", again.body)
	}
}

func TestTokens(t *testing.T) {
	s := start(t)
	u := s.person("u")
	works := func(token string) bool { return s.send(token, "GET", "/user", nil).status == 200 }
	second := s.post(u.token, "/rotate_token", fields{"overlap": "1h"})
	if !works(u.token) || !works(second.word("token")) {
		t.Error("the overlap does not hold")
	}
	third := s.post(second.word("token"), "/rotate_token", fields{})
	if works(u.token) || works(second.word("token")) || !works(third.word("token")) {
		t.Error("a rotation without overlap leaves former tokens valid")
	}
	s.post(third.word("token"), "/revoke_token", fields{"token_id": third.id("token_id")})
	if works(third.word("token")) {
		t.Error("a revoked token works")
	}
	fourth := s.post(s.admin, "/rotate_token", fields{"user_id": u.id, "expires_in": "1h"})
	if !works(fourth.word("token")) || fourth.word("expires_at") == "" {
		t.Errorf("an admin's rotation: %s", fourth.body)
	}
	brief := s.post(s.admin, "/rotate_token", fields{"user_id": u.id, "expires_in": 0.001})
	for works(brief.word("token")) { // ends within a millisecond; a hang is the failure
		continue
	}
	s.refused(s.send(brief.word("token"), "GET", "/user", nil), 401, "an expired token")
}

func TestDisabledUser(t *testing.T) {
	s := start(t)
	u := s.person("u")
	s.post(s.admin, "/update_user", fields{"user_id": u.id, "disabled": true})
	s.refused(s.send(u.token, "GET", "/user", nil), 401, "disabled")
	s.post(s.admin, "/update_user", fields{"user_id": u.id, "disabled": false})
	s.get(u.token, "/user")
	s.refused(s.send(s.admin, "POST", "/update_user", fields{"user_id": s.get(s.admin, "/user").id("user_id"), "disabled": true}), 409, "locks itself out")
}
