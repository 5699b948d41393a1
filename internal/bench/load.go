package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const messageBytes = 1024

// target is a server under load.
type target struct {
	url, token string
	client     *fasthttp.Client
}

func newTarget(url, token string) *target {
	return &target{url, token, &fasthttp.Client{MaxConnsPerHost: 2000, ReadTimeout: 60 * time.Second, WriteTimeout: 60 * time.Second, MaxResponseBodySize: 64 << 20}}
}

// do sends one request; the answer's body is valid until the next call with the same response.
func (t *target) do(req *fasthttp.Request, resp *fasthttp.Response) error {
	if err := t.client.Do(req, resp); err != nil {
		return err
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return fmt.Errorf("%s: %d %s", req.URI().Path(), resp.StatusCode(), resp.Body())
	}
	return nil
}

func (t *target) request(method, path string, body []byte) *fasthttp.Request {
	req := fasthttp.AcquireRequest()
	req.Header.SetMethod(method)
	req.SetRequestURI(t.url + path)
	req.Header.Set("Authorization", "Bearer "+t.token)
	req.Header.SetContentType("application/json")
	req.SetBodyRaw(body)
	return req
}

// call is do for setting up: any body in, one decoded answer out.
func (t *target) call(method, path string, body, answer any) error {
	var raw []byte
	if body != nil {
		raw, _ = json.Marshal(body) // maps of plain values
	}
	req := t.request(method, path, raw)
	defer fasthttp.ReleaseRequest(req)
	resp := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(resp)
	if err := t.do(req, resp); err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(resp.Body(), answer)
}

// flood lets n workers repeat work until stop; work returns how many messages it moved.
func flood(n int, stop *atomic.Bool, count *atomic.Int64, work func(worker int) func() (int, error)) error {
	var workers errgroup.Group
	for i := range n {
		workers.Go(func() error {
			once := work(i)
			for !stop.Load() {
				moved, err := once()
				if err != nil {
					return err
				}
				count.Add(int64(moved))
			}
			return nil
		})
	}
	return workers.Wait()
}

// rate runs work with n workers, lets it warm up, and returns messages a second over the time that is measured.
func rate(n int, warm, measure time.Duration, begin func(), work func(worker int) func() (int, error)) (float64, error) {
	var stop atomic.Bool
	var count atomic.Int64
	done := make(chan error, 1)
	go func() { done <- flood(n, &stop, &count, work) }()
	var err error
	wait := func(d time.Duration) {
		select {
		case err = <-done:
			done <- err
		case <-time.After(d):
		}
	}
	wait(warm)
	begin()
	before, from := count.Load(), time.Now()
	wait(measure)
	moved, took := count.Load()-before, time.Since(from)
	stop.Store(true)
	if err := <-done; err != nil {
		return 0, err
	}
	if moved == 0 {
		return 0, fmt.Errorf("nothing was done within %v: measure for longer", measure)
	}
	return float64(moved) / took.Seconds(), nil
}

// repeat makes the work of a worker that sends the same request again and again.
func (t *target) repeat(path string, body func(worker int) []byte, messages int) func(int) func() (int, error) {
	return func(worker int) func() (int, error) {
		req, resp := t.request("POST", path, body(worker)), fasthttp.AcquireResponse()
		return func() (int, error) { return messages, t.do(req, resp) }
	}
}

// freeAddress is one that nobody listens at, for who must be told it before he listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// event is n bytes of text as services send it: names that come again in every message, values that seldom do. Every seed has its own.
func event(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 0))
	fields := []string{"order", "customer", "amount", "address", "item", "shipment", "invoice", "session"}
	buf := make([]byte, 0, n+64)
	for i := 0; len(buf) < n; i++ {
		buf = fmt.Appendf(buf, "%s_id=%d status=%d; ", fields[i%len(fields)], r.Uint32(), r.IntN(10))
	}
	return string(buf[:n])
}

// publishBody and batchBody make the body that a worker publishes again and again.
func publishBody(topic int64) func(worker int) []byte {
	return func(worker int) []byte {
		return fmt.Appendf(nil, `{"topic_id":%d,"message_content":"%s"}`, topic, event(uint64(worker), messageBytes))
	}
}

func batchBody(topic int64, n int) func(worker int) []byte {
	return func(worker int) []byte {
		buf := fmt.Appendf(nil, `{"topic_id":%d,"messages":[`, topic)
		for i := range n {
			buf = fmt.Appendf(buf, `{"message_content":"%s"},`, event(uint64(worker*n+i), messageBytes))
		}
		buf[len(buf)-1] = ']'
		return append(buf, '}')
	}
}

// puller is the work of a consumer that pulls and acknowledges.
func (t *target) puller(topic int64, most int) func(int) func() (int, error) {
	return func(int) func() (int, error) {
		pull := t.request("GET", fmt.Sprintf("/message?topic_id=%d&max=%d&wait=1", topic, most), nil)
		resp := fasthttp.AcquireResponse()
		return func() (int, error) {
			if err := t.do(pull, resp); err != nil {
				return 0, err
			}
			var got struct {
				Messages []struct {
					ID int64 `json:"message_id"`
				} `json:"messages"`
			}
			if err := json.Unmarshal(resp.Body(), &got); err != nil || len(got.Messages) == 0 {
				return 0, err
			}
			ids := make([]int64, len(got.Messages))
			for i := range ids {
				ids[i] = got.Messages[i].ID
			}
			body, _ := json.Marshal(map[string]any{"topic_id": topic, "message_ids": ids})
			ack := t.request("POST", "/ack", body)
			defer fasthttp.ReleaseRequest(ack)
			return len(ids), t.do(ack, resp)
		}
	}
}

// receiver is a webhook endpoint that counts, and notes how old what it gets is.
type receiver struct {
	url    string
	server *fasthttp.Server
	count  atomic.Int64
	timed  atomic.Bool
	mu     sync.Mutex
	ages   []time.Duration
}

func newReceiver(host string) (*receiver, error) {
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/hook"}
	r.server = &fasthttp.Server{Handler: r.handle}
	go r.server.Serve(l)
	return r, nil
}

func (r *receiver) handle(ctx *fasthttp.RequestCtx) {
	if ctx.IsOptions() {
		ctx.Response.Header.Set("WebHook-Allowed-Origin", "*")
		ctx.Response.Header.Set("WebHook-Allowed-Rate", "*")
		return
	}
	r.count.Add(1)
	if !r.timed.Load() {
		return
	}
	sent, _, _ := bytes.Cut(ctx.PostBody(), []byte(" "))
	if at, err := strconv.ParseInt(string(sent), 10, 64); err == nil {
		r.mu.Lock()
		r.ages = append(r.ages, time.Duration(time.Now().UnixNano()-at))
		r.mu.Unlock()
	}
}

// publishers is how many connections publish at the same time where a work does not say.
const publishers = 64

// paced publishes perSecond messages a second to topics in turn, each with the time at which it was due, so that a stall is not hidden.
func (t *target) paced(topics []int64, perSecond int, d time.Duration) error {
	due := make(chan time.Time)
	go pace(due, perSecond, d)
	var workers errgroup.Group
	content := event(0, messageBytes)
	var turn atomic.Int64
	for range publishers {
		workers.Go(func() error {
			resp := fasthttp.AcquireResponse()
			for at := range due {
				topic := topics[int(turn.Add(1))%len(topics)]
				body := fmt.Sprintf(`{"topic_id":%d,"message_content":"%d %s"}`, topic, at.UnixNano(), content)
				req := t.request("POST", "/publish_message", []byte(body))
				err := t.do(req, resp)
				fasthttp.ReleaseRequest(req)
				if err != nil {
					for range due { // lets pace end
					}
					return err
				}
			}
			return nil
		})
	}
	return workers.Wait()
}

// pace sends times on as they come, perSecond of them a second. It sleeps in the kernel: Go's own timers are a millisecond late in a
// process that is idle, which would be counted as the node's.
func pace(due chan<- time.Time, perSecond int, d time.Duration) {
	defer close(due)
	begin := time.Now()
	for i := range int(d.Seconds() * float64(perSecond)) {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		for wait := time.Until(at); wait > 0; wait = time.Until(at) {
			ts := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&ts, nil) // interrupted: the rest is slept
		}
		due <- at
	}
}

func percentile(ages []time.Duration, p float64) time.Duration {
	if len(ages) == 0 {
		return 0
	}
	slices.Sort(ages)
	return ages[min(int(float64(len(ages))*p), len(ages)-1)]
}
