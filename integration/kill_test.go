package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

func str(n int64) string { return strconv.FormatInt(n, 10) }

// history is what producers were told and what consumers got.
type history struct {
	mu        sync.Mutex
	accepted  map[string]int64 // content -> id
	delivered map[string]int64 // content -> id
	ordered   map[string]int   // key -> last number seen for the first time
	faults    []string
}

func newHistory() *history {
	return &history{accepted: map[string]int64{}, delivered: map[string]int64{}, ordered: map[string]int{}}
}

func (h *history) fault(format string, args ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

func (h *history) accept(content string, id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, again := h.accepted[content]; again && before != id {
		h.fault("%s was accepted under two ids, %d and %d", content, before, id)
	}
	h.accepted[content] = id
}

// deliver notes a delivery. Whatever comes for the first time must be the next of its key.
func (h *history) deliver(key, content string, id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, again := h.delivered[content]
	if again {
		if before != id {
			h.fault("%s was delivered under two ids, %d and %d", content, before, id)
		}
		return
	}
	h.delivered[content] = id
	var n int
	fmt.Sscanf(content, key+" %d", &n)
	if n != h.ordered[key]+1 {
		h.fault("%s came after number %d of its key", content, h.ordered[key])
	}
	h.ordered[key] = n
}

func (h *history) missing() (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for content := range h.accepted {
		if _, ok := h.delivered[content]; !ok {
			list = append(list, content)
		}
	}
	return list
}

// produce publishes numbered messages of one key until stop, each again and again with the same idempotency key until it is accepted, with a
// pause after each. url says which node to ask next.
func (h *history) produce(url func() string, token string, topic int64, key string, pause time.Duration, stop <-chan struct{}) {
	for n := 1; ; n++ {
		content := fmt.Sprintf("%s %d", key, n)
		body := object{"topic_id": topic, "key": key, "message_content": content, "idempotency_key": content}
		for {
			select {
			case <-stop:
				return
			default:
			}
			var got struct {
				ID int64 `json:"message_id"`
			}
			err := request(url(), token, "POST", "/publish_message", body, &got)
			if err == nil {
				h.accept(content, got.ID)
				time.Sleep(pause)
				break
			}
			var answer *answerError
			if errors.As(err, &answer) && answer.status != http.StatusServiceUnavailable && answer.status != http.StatusTooManyRequests {
				h.mu.Lock()
				h.fault("publish: %v", err)
				h.mu.Unlock()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// consume pulls and acknowledges until stop.
func (h *history) consume(url func() string, token string, topic int64, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		var got struct {
			Messages []struct {
				ID      int64  `json:"message_id"`
				Content string `json:"message_content"`
				Key     string
				Lease   string
			}
		}
		at := url()
		if err := request(at, token, "GET", fmt.Sprintf("/message?topic_id=%d&max=20&wait=1", topic), nil, &got); err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		var settle []object
		for _, m := range got.Messages {
			h.deliver(m.Key, m.Content, m.ID)
			settle = append(settle, object{"message_id": m.ID, "lease": m.Lease})
		}
		if len(settle) > 0 {
			request(at, token, "POST", "/ack", object{"topic_id": topic, "messages": settle}, nil)
		}
	}
}

// TestKill kills the node at random under load, many times: every accepted message is delivered, none under two ids, in order per key, and a
// retry with the same idempotency key never makes a second message.
func TestKill(t *testing.T) {
	kills := 30
	if testing.Short() {
		kills = 3
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "data")
	p := start(t, dir, "127.0.0.1:0", "--partitions", "8", "--log-level", "warn")
	address := p.url[len("http://"):]
	_, producer := newUser(t, p, "producer")
	_, consumer := newUser(t, p, "consumer")
	topic := newTopic(t, p, producer, object{"topic_name": "orders", "rule_id": "open", "pattern_id": "ordered"})
	must(t, p, consumer, "POST", "/subscribe", object{"topic_id": topic, "ack_deadline": 10}, nil)

	only, h := p.url, newHistory()
	url := func() string { return only }
	var producers, consumers sync.WaitGroup
	stopProducing, stopConsuming := make(chan struct{}), make(chan struct{})
	for i := range 16 {
		producers.Go(func() { h.produce(url, producer, topic, fmt.Sprintf("key%d", i), 0, stopProducing) })
	}
	for range 4 {
		consumers.Go(func() { h.consume(url, consumer, topic, stopConsuming) })
	}
	for range kills {
		time.Sleep(time.Duration(50+r.IntN(400)) * time.Millisecond)
		p.kill()
		p = start(t, dir, address, "--log-level", "warn")
	}
	close(stopProducing)
	producers.Wait()
	for deadline := time.Now().Add(60 * time.Second); len(h.missing()) > 0 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	close(stopConsuming)
	consumers.Wait()
	missing := h.missing()
	t.Logf("%d messages accepted over %d kills", len(h.accepted), kills)
	if len(missing) > 0 {
		t.Errorf("%d accepted messages were not delivered, such as %q", len(missing), missing[0])
	}
	for i, f := range h.faults {
		if i == 10 {
			break
		}
		t.Error(f)
	}
	if len(h.accepted) < kills*10 {
		t.Errorf("only %d messages were accepted: this run proves little", len(h.accepted))
	}
}
