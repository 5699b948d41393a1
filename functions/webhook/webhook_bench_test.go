package webhook

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/handfast-mq/handfast/schema"
)

// BenchmarkDeliver delivers 1 KiB messages to a receiver in the same process, 64 at a time.
func BenchmarkDeliver(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) { c.SetStatusCode(fasthttp.StatusNoContent) }}
	go s.Serve(l)
	defer s.Shutdown()
	for name, choose := range map[string]func(*transports) transport{
		"net":  func(t *transports) transport { return t.net },
		"fast": func(t *transports) transport { return t.fast },
	} {
		b.Run(name, func(b *testing.B) {
			w := newLocal(b)
			sub, d := subscription("http://"+l.Addr().String()+"/hook"), delivery(string(make([]byte, 1024)))
			chosen := choose(w.transport.(*transports))
			b.SetParallelism(32)
			b.ReportAllocs()
			var failed atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, err := w.newDelivery(sub, &d, d.Time)
					if err != nil {
						b.Error(err)
						return
					}
					ctx, cancel := context.WithTimeout(context.Background(), timeoutDefault)
					if resp, err := chosen.exchange(ctx, r); err != nil || resp.status != 204 {
						failed.Add(1)
					}
					cancel()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
			if n := failed.Load(); n > 0 {
				b.Errorf("%d failed", n)
			}
		})
	}
}

// BenchmarkInvoke is the whole way of one delivery.
func BenchmarkInvoke(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &fasthttp.Server{Handler: func(c *fasthttp.RequestCtx) { c.SetStatusCode(fasthttp.StatusNoContent) }}
	go s.Serve(l)
	defer s.Shutdown()
	w := newLocal(b)
	sub, d := subscription("http://"+l.Addr().String()+"/hook"), delivery(string(make([]byte, 1024)))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r := w.Invoke(context.Background(), sub, []schema.Delivery{d}); r[0].Outcome != schema.Delivered {
				b.Errorf("%+v", r[0])
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
