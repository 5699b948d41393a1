package webhook

import (
	"net"
	"sync"
	"time"
)

// probeAfter is how long a connection may be idle without being looked at before it is used again.
const probeAfter = time.Second

// idleConns keeps connections between exchanges: the latest first, a bounded number per host and together, none
// longer than idleTimeout.
type idleConns struct {
	mu     sync.Mutex
	hosts  map[string][]idleConn // the latest at the end
	total  int
	closed bool

	stop    chan struct{}
	sweeper sync.WaitGroup
}

type idleConn struct {
	conn  net.Conn
	since time.Time
}

func newIdleConns() *idleConns {
	p := &idleConns{hosts: map[string][]idleConn{}, stop: make(chan struct{})}
	p.sweeper.Go(p.sweep)
	return p
}

// take returns a connection that was alive a moment ago, or nil. sure looks at it even when it was just in use.
func (p *idleConns) take(host string, sure bool) net.Conn {
	for {
		c, ok := p.pop(host)
		if !ok {
			return nil
		}
		if !sure && time.Since(c.since) < probeAfter || quiet(c.conn) {
			return c.conn
		}
		c.conn.Close()
	}
}

func (p *idleConns) pop(host string) (idleConn, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.hosts[host]
	if len(list) == 0 {
		return idleConn{}, false
	}
	last := len(list) - 1
	c := list[last]
	list[last] = idleConn{}
	p.hosts[host] = list[:last]
	p.total--
	return c, true
}

// put keeps a connection, or closes it when there are enough.
func (p *idleConns) put(host string, conn net.Conn) {
	p.mu.Lock()
	keep := !p.closed && p.total < idleConnsMax && len(p.hosts[host]) < idleConnsPerHost
	if keep {
		p.hosts[host] = append(p.hosts[host], idleConn{conn, time.Now()})
		p.total++
	}
	p.mu.Unlock()
	if !keep {
		conn.Close()
	}
}

// sweep closes what was idle for too long, until close.
func (p *idleConns) sweep() {
	ticker := time.NewTicker(idleTimeout / 4)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-ticker.C:
			p.drop(now.Add(-idleTimeout))
		}
	}
}

// drop closes the connections that are idle since before a time. A host without any is forgotten.
func (p *idleConns) drop(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, list := range p.hosts {
		n := 0
		for n < len(list) && list[n].since.Before(before) {
			list[n].conn.Close()
			n++
		}
		p.total -= n
		if n == len(list) {
			delete(p.hosts, host)
		} else if n > 0 {
			p.hosts[host] = append([]idleConn(nil), list[n:]...)
		}
	}
}

func (p *idleConns) close() {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if first {
		close(p.stop)
	}
	p.sweeper.Wait()
	p.drop(time.Now().Add(time.Hour))
}
