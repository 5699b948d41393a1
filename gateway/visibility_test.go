package gateway_test

import (
	"fmt"
	"testing"

	"github.com/handfast-mq/handfast/internal/node"
)

// TestConsumersSeeTheirOwn holds that a consumer is told where a message stands with itself, and nothing of the other consumers.
func TestConsumersSeeTheirOwn(t *testing.T) {
	s := start(t)
	owner, one, other, stranger := s.person("owner"), s.person("one"), s.person("other"), s.person("stranger")
	topic := s.topic(owner, "t", "approval")
	for _, p := range []person{one, other} {
		s.post(owner.token, "/approve_subscription", fields{"subscription_id": s.post(p.token, "/subscribe", fields{"topic_id": topic}).id("subscription_id")})
	}
	message := s.post(owner.token, "/publish_message", fields{"topic_id": topic, "message_content": "x"}).id("message_id")
	status := fmt.Sprintf("/message_status?message_id=%d", message)
	at := fmt.Sprintf("/message?topic_id=%d&wait=10", topic)
	for _, p := range []person{one, other} {
		s.get(p.token, at)
	}
	if a := s.get(owner.token, status); a.word("message_status") != "delivering" || a.id("num_recipients") != 2 {
		t.Errorf("the owner sees %s", a.body)
	}
	s.post(one.token, "/ack", fields{"topic_id": topic, "message_ids": []int64{message}})
	if a := s.get(one.token, status); a.id("num_recipients") != 1 || a.word("message_status") != "delivered" {
		t.Errorf("who acknowledged sees %s", a.body)
	}
	if a := s.get(other.token, status); a.id("num_recipients") != 1 || a.word("message_status") != "delivering" {
		t.Errorf("who did not sees %s", a.body)
	}
	s.refused(s.send(stranger.token, "GET", status, nil), 404, "a stranger")
	s.post(other.token, "/ack", fields{"topic_id": topic, "message_ids": []int64{message}})
	if a := s.get(owner.token, status); a.word("message_status") != "delivered" || a.id("num_delivered") != 2 {
		t.Errorf("in the end the owner sees %s", a.body)
	}
	deliveries := fmt.Sprintf("/deliveries?message_id=%d", message)
	s.eventually("the attempts are recorded", func() bool { return len(s.get(owner.token, deliveries).json["deliveries"].([]any)) == 2 })
	if own := s.get(one.token, deliveries).json["deliveries"].([]any); len(own) != 1 {
		t.Errorf("a consumer sees the attempts %v", own)
	}
}

// TestStartAtMessage begins and replays at a message.
func TestStartAtMessage(t *testing.T) {
	s := start(t)
	admin := person{token: s.admin}
	topic, other := s.topic(admin, "t", "open"), s.topic(admin, "other", "open")
	var ids []int64
	for i := range 3 {
		ids = append(ids, s.post(s.admin, "/publish_message", fields{"topic_id": topic, "message_content": fmt.Sprint(i), "key": "k"}).id("message_id"))
	}
	foreign := s.post(s.admin, "/publish_message", fields{"topic_id": other, "message_content": "x"}).id("message_id")
	for _, wrong := range []int64{foreign, ids[2] + 1000, 1 << 52} {
		s.refused(s.send(s.admin, "POST", "/subscribe", fields{"topic_id": topic, "start": wrong}), 422, "to start at a message that the topic does not have")
	}
	sub := s.post(s.admin, "/subscribe", fields{"topic_id": topic, "start": ids[1]}).id("subscription_id")
	pulled := func() (got []int64) {
		for _, m := range s.get(s.admin, fmt.Sprintf("/message?topic_id=%d&max=10&wait=10", topic)).json["messages"].([]any) {
			id := (&answer{json: m.(map[string]any)}).id("message_id")
			got = append(got, id)
		}
		s.post(s.admin, "/ack", fields{"topic_id": topic, "message_ids": got})
		return got
	}
	if got := pulled(); fmt.Sprint(got) != fmt.Sprint(ids[1:]) {
		t.Errorf("from %d on came %d", ids[1], got)
	}
	s.post(s.admin, "/replay", fields{"subscription_id": sub, "start": ids[2]})
	if got := pulled(); fmt.Sprint(got) != fmt.Sprint(ids[2:]) {
		t.Errorf("again from %d on came %d", ids[2], got)
	}
	s.refused(s.send(s.admin, "POST", "/replay", fields{"subscription_id": sub, "start": foreign}), 422, "a replay from another topic's message")
}

// TestUserRate holds that a user over its rate is refused with advice, and nobody else.
func TestUserRate(t *testing.T) {
	s := start(t, func(c *node.Config) { c.UserRate = 3 })
	u := s.person("u")
	var busy *answer
	for busy == nil {
		a := s.send(u.token, "GET", "/rules", nil)
		if a.header.Get("Ratelimit-Policy") != `"user";q=3;w=1` || a.header.Get("Ratelimit") == "" {
			t.Fatalf("%d %v", a.status, a.header)
		}
		if a.status != 200 {
			busy = a
		}
	}
	if s.refused(busy, 429, "above the rate"); busy.header.Get("Retry-After") != "1" || busy.word("kind") != "busy" {
		t.Errorf("%s %v", busy.body, busy.header)
	}
	s.get(s.admin, "/rules")
}
