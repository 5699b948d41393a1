package bench

import (
	"fmt"
	"sync/atomic"
	"time"
)

func works() []work {
	return []work{
		{"durable publish, 1 connection", "msg/s", "3000", publishing(1), true},
		{"durable publish, 16 connections", "msg/s", "20000", publishing(16), true},
		{"durable publish, 64 connections", "msg/s", "45000, 0.9 of the reference", publishing(64), true},
		{"durable batches of 100, 8 connections", "msg/s", "250000, 0.6 of the reference", batching(8, 100), true},
		{"publish 64 + pull with acks", "msg/s", "35000", (*bench).pulling, false},
		{"publish 64 + webhook delivery", "msg/s", "20000", (*bench).pushing, false},
		{"webhook end to end at 1000/s, p50", "ms", "0.5", latency(1000, 0.50), false},
		{"webhook end to end at 1000/s, p99", "ms", "2", latency(1000, 0.99), false},
		{"webhook end to end at 5000/s, p50", "ms", "0.7", latency(5000, 0.50), false},
		{"webhook end to end at 5000/s, p99", "ms", "4", latency(5000, 0.99), false},
		{"memory after the load", "MiB", "150", func(_ *bench, s *server) (float64, float64, error) { return s.memory(), 0, nil }, false},
		{"10,000 topics at 10,000/s, CPU of one topic's", "times", "2", (*bench).crowded, false},
		{"memory with 10,000 topics and subscriptions", "MiB", "200", (*bench).crowdMemory, false},
	}
}

// loaded measures a rate and the server's processor time for it.
func (b *bench) loaded(s *server, workers int, w func(int) func() (int, error)) (float64, float64, error) {
	var cpu float64
	var from time.Time
	r, err := rate(workers, b.Warm, b.Measure, func() { cpu, from = s.cpu(), time.Now() }, w)
	if err != nil {
		return 0, 0, err
	}
	return r, (s.cpu() - cpu) / (r * time.Since(from).Seconds()) * 1e6, nil
}

func publishing(connections int) func(*bench, *server) (float64, float64, error) {
	return func(b *bench, s *server) (float64, float64, error) {
		topic, err := b.topic(s)
		if err != nil {
			return 0, 0, err
		}
		return b.loaded(s, connections, s.repeat("/publish_message", publishBody(topic), 1))
	}
}

func batching(connections, size int) func(*bench, *server) (float64, float64, error) {
	return func(b *bench, s *server) (float64, float64, error) {
		topic, err := b.topic(s)
		if err != nil {
			return 0, 0, err
		}
		return b.loaded(s, connections, s.repeat("/publish_messages", batchBody(topic, size), size))
	}
}

var topics atomic.Int64

// topic makes a topic that everybody may use. The reference takes any number.
func (b *bench) topic(s *server) (int64, error) {
	if s == b.reference {
		return 1, nil
	}
	var t struct {
		ID int64 `json:"topic_id"`
	}
	name := fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), topics.Add(1))
	err := s.call("POST", "/create_topic", map[string]any{"topic_name": name, "rule_id": 1}, &t)
	return t.ID, err
}

func (b *bench) subscribe(s *server, topic int64, target map[string]any) error {
	var sub struct{ State, Reason string }
	if err := s.call("POST", "/subscribe", map[string]any{"topic_id": topic, "target": target}, &sub); err != nil {
		return err
	}
	if sub.State != "active" {
		return fmt.Errorf("the subscription is %s: %s", sub.State, sub.Reason)
	}
	return nil
}

func (b *bench) unsubscribe(s *server, topic int64) {
	s.call("POST", "/unsubscribe", map[string]any{"topic_id": topic}, nil) // the next measurement has a topic of its own
}

// pulling measures messages that were published, pulled and acknowledged.
func (b *bench) pulling(s *server) (float64, float64, error) {
	topic, err := b.topic(s)
	if err != nil {
		return 0, 0, err
	}
	if err := b.subscribe(s, topic, map[string]any{"type": "pull"}); err != nil {
		return 0, 0, err
	}
	defer b.unsubscribe(s, topic)
	var stop atomic.Bool
	var published atomic.Int64
	done := make(chan error, 1)
	go func() { done <- flood(64, &stop, &published, s.repeat("/publish_message", publishBody(topic), 1)) }()
	r, cpu, err := b.loaded(s, 8, s.puller(topic, 100))
	stop.Store(true)
	if failed := <-done; err == nil {
		err = failed
	}
	return r, cpu, err
}

// pushing measures messages that were published and delivered to a webhook.
func (b *bench) pushing(s *server) (float64, float64, error) {
	topic, hook, err := b.hooked(s)
	if err != nil {
		return 0, 0, err
	}
	defer hook.server.Shutdown()
	defer b.unsubscribe(s, topic)
	var before int64
	var from time.Time
	var cpu float64
	_, err = rate(64, b.Warm, b.Measure, func() { before, from, cpu = hook.count.Load(), time.Now(), s.cpu() },
		s.repeat("/publish_message", publishBody(topic), 1))
	moved := float64(hook.count.Load() - before)
	return moved / time.Since(from).Seconds(), (s.cpu() - cpu) / moved * 1e6, err
}

func (b *bench) hooked(s *server) (int64, *receiver, error) {
	topic, err := b.topic(s)
	if err != nil {
		return 0, nil, err
	}
	hook, err := newReceiver("127.0.0.1")
	if err != nil {
		return 0, nil, err
	}
	return topic, hook, b.subscribe(s, topic, map[string]any{"type": "webhook", "url": hook.url, "concurrency": 64})
}

// latency measures from the moment that a message was due to its arrival at a webhook, in milliseconds.
func latency(perSecond int, p float64) func(*bench, *server) (float64, float64, error) {
	return func(b *bench, s *server) (float64, float64, error) {
		topic, hook, err := b.hooked(s)
		if err != nil {
			return 0, 0, err
		}
		defer hook.server.Shutdown()
		defer b.unsubscribe(s, topic)
		if err := s.paced([]int64{topic}, perSecond, b.Warm); err != nil {
			return 0, 0, err
		}
		hook.timed.Store(true)
		if err := s.paced([]int64{topic}, perSecond, b.Measure); err != nil {
			return 0, 0, err
		}
		time.Sleep(200 * time.Millisecond) // the last ones are on their way
		hook.mu.Lock()
		defer hook.mu.Unlock()
		return float64(percentile(hook.ages, p).Microseconds()) / 1000, 0, nil
	}
}
