package scylla

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gocql/gocql"

	"github.com/handfast-mq/handfast/schema"
)

// mockServer speaks as much CQL protocol 4 as a session needs. It answers what is executed on k.t with what
// answer says.
type mockServer struct {
	listener net.Listener
	executes atomic.Int64
	answer   func(n int64) (opcode byte, body []byte)
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

// frame bodies of the native protocol, version 4.
type body struct{ bytes.Buffer }

func (b *body) int(v int)       { _ = binary.Write(&b.Buffer, binary.BigEndian, int32(v)) }
func (b *body) short(v int)     { _ = binary.Write(&b.Buffer, binary.BigEndian, uint16(v)) }
func (b *body) string(s string) { b.short(len(s)); b.WriteString(s) }
func (b *body) bytes(p []byte)  { b.int(len(p)); b.Write(p) }

// rows makes a RESULT with one row.
func rows(table string, columns []column) []byte {
	var b body
	b.int(2)
	b.int(1)
	b.int(len(columns))
	b.string("system")
	b.string(table)
	for _, c := range columns {
		b.string(c.name)
		b.short(c.kind)
	}
	b.int(1)
	for _, c := range columns {
		b.bytes(c.value)
	}
	return b.Bytes()
}

type column struct {
	name  string
	kind  int
	value []byte
}

const (
	opError, opReady, opSupported, opResult = 0x00, 0x02, 0x06, 0x08

	typeBoolean, typeUUID, typeText, typeInet = 0x04, 0x0c, 0x0d, 0x10
)

func localRow() []byte {
	id, address := bytes.Repeat([]byte{0x44}, 16), net.IPv4(127, 0, 0, 1).To4()
	text := func(name, v string) column { return column{name, typeText, []byte(v)} }
	return rows("local", []column{text("key", "local"), text("data_center", "dc1"), text("rack", "r1"), text("release_version", "4.1.0"),
		text("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner"), text("cluster_name", "mock"), {"host_id", typeUUID, id},
		{"schema_version", typeUUID, id}, {"rpc_address", typeInet, address}, {"broadcast_address", typeInet, address}, {"listen_address", typeInet, address}})
}

// writeTimeout is what a coordinator says that does not know whether the write took place.
func writeTimeout(kind string) (byte, []byte) {
	var b body
	b.int(0x1100)
	b.string("Operation timed out")
	b.short(int(gocql.LocalQuorum))
	b.int(1)
	b.int(2)
	b.string(kind)
	return opError, b.Bytes()
}

func done() (byte, []byte) {
	var b body
	b.int(1)
	return opResult, b.Bytes()
}

func refused() (byte, []byte) {
	return opResult, rows("t", []column{{"[applied]", typeBoolean, []byte{0}}})
}

func newMock(t *testing.T, answer func(n int64) (byte, []byte)) *mockServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mockServer{listener: l, answer: answer}
	m.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns = append(m.conns, c)
			m.mu.Unlock()
			m.wg.Go(func() { m.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		m.mu.Lock()
		for _, c := range m.conns {
			c.Close()
		}
		m.mu.Unlock()
		m.wg.Wait()
	})
	return m
}

func (m *mockServer) serve(c net.Conn) {
	defer c.Close()
	head := make([]byte, 9)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		request := make([]byte, binary.BigEndian.Uint32(head[5:]))
		if _, err := io.ReadFull(c, request); err != nil {
			return
		}
		op, answer := m.respond(head[4], request)
		out := append([]byte{0x84, 0, head[2], head[3], op, 0, 0, 0, 0}, answer...)
		binary.BigEndian.PutUint32(out[5:], uint32(len(answer)))
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func (m *mockServer) respond(op byte, request []byte) (byte, []byte) {
	var b body
	switch op {
	case 0x05: // OPTIONS
		b.short(1)
		b.string("CQL_VERSION")
		b.short(1)
		b.string("3.4.5")
		return opSupported, b.Bytes()
	case 0x07: // QUERY
		if strings.Contains(string(request), "system.local") {
			return opResult, localRow()
		}
		b.int(0x2200)
		b.string("no such table")
		return opError, b.Bytes()
	case 0x09: // PREPARE: nothing to bind, nothing told of the result
		b.int(4)
		if strings.Contains(string(request), "k.t") {
			b.string("ours")
		} else {
			b.string("driver's")
		}
		for _, v := range []int{0, 0, 0, 4, 0} {
			b.int(v)
		}
		return opResult, b.Bytes()
	case 0x0a: // EXECUTE
		if !bytes.HasPrefix(request[2:], []byte("ours")) {
			return opResult, localRow()
		}
		return m.answer(m.executes.Add(1))
	}
	return opReady, nil
}

// store is one that speaks with the mock.
func (m *mockServer) store(t *testing.T) *Store {
	cfg, err := Config{Hosts: []string{"127.0.0.1"}, Port: m.listener.Addr().(*net.TCPAddr).Port, Keyspace: "k", Logger: quiet()}.complete()
	if err != nil {
		t.Fatal(err)
	}
	d, err := connectWith(&cfg, "", func(g *gocql.ClusterConfig) { g.DisableInitialHostLookup = true })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return &Store{cfg: cfg, db: d}
}

// TestTransactionIsSentOnce: a compare-and-set whose outcome is unknown must not be sent again by the driver, which would report
// the false of the second.
func TestTransactionIsSentOnce(t *testing.T) {
	m := newMock(t, func(n int64) (byte, []byte) {
		if n == 1 {
			return writeTimeout("CAS")
		}
		return refused()
	})
	s := m.store(t)
	ok, err := s.transact(t.Context(), "UPDATE k.t SET a = 1 WHERE b = 1 IF a = 0")
	if ok || schema.KindOf(err) != schema.Unknown || m.executes.Load() != 1 {
		t.Errorf("%v, error %v after %d sends, want an unknown outcome after one", ok, err, m.executes.Load())
	}
	ok, err = s.transact(t.Context(), "UPDATE k.t SET a = 1 WHERE b = 1 IF a = 0")
	if ok || err != nil {
		t.Errorf("a clean refusal: %v %v", ok, err)
	}
}

// TestIdempotentIsSentAgain: what may be sent twice is, by us.
func TestIdempotentIsSentAgain(t *testing.T) {
	m := newMock(t, func(n int64) (byte, []byte) {
		if n <= 2 {
			return writeTimeout("SIMPLE")
		}
		return done()
	})
	s := m.store(t)
	err := s.try(t.Context(), schema.Unknown, "write", func(d *db) error { return d.query(t.Context(), "INSERT INTO k.t (a) VALUES (1)").Exec() })
	if err != nil || m.executes.Load() != 3 {
		t.Errorf("error %v after %d sends, want success after 3", err, m.executes.Load())
	}
}

// TestCanceledByTheDriver: the caller's own context alone ends a try.
func TestCanceledByTheDriver(t *testing.T) {
	s := newMock(t, func(int64) (byte, []byte) { return done() }).store(t)
	tries := 0
	canceled := func(last int) func(*db) error {
		return func(*db) error {
			if tries++; tries < last {
				return context.Canceled
			}
			return nil
		}
	}
	if err := s.try(t.Context(), schema.Unavailable, "read", canceled(3)); err != nil || tries != 3 {
		t.Errorf("error %v after %d tries, want success after 3", err, tries)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tries = 0
	if err := s.try(gone, schema.Unavailable, "read", canceled(3)); err == nil || tries != 1 {
		t.Errorf("error %v after %d tries, want one after 1", err, tries)
	}
}

// TestHopelessIsNotSentAgain: a statement that the database refuses for what it is comes back at once.
func TestHopelessIsNotSentAgain(t *testing.T) {
	m := newMock(t, func(int64) (byte, []byte) {
		var b body
		b.int(gocql.ErrCodeInvalid)
		b.string("no")
		return opError, b.Bytes()
	})
	s := m.store(t)
	err := s.try(t.Context(), schema.Unknown, "write", func(d *db) error { return d.query(t.Context(), "INSERT INTO k.t (a) VALUES (1)").Exec() })
	if err == nil || m.executes.Load() != 1 {
		t.Errorf("error %v after %d sends, want one after 1", err, m.executes.Load())
	}
}

// TestEventsAfterTheEnd: what the driver learns of the cluster when the session is over must not end the process.
func TestEventsAfterTheEnd(t *testing.T) {
	m := newMock(t, func(int64) (byte, []byte) { return done() })
	cfg, err := Config{Hosts: []string{"127.0.0.1"}, Port: m.listener.Addr().(*net.TCPAddr).Port, Keyspace: "k", Logger: quiet()}.complete()
	must(t, err)
	var policy gocql.HostSelectionPolicy
	d, err := connectWith(&cfg, "", func(g *gocql.ClusterConfig) {
		g.DisableInitialHostLookup = true
		policy = g.PoolConfig.HostSelectionPolicy
	})
	must(t, err)
	d.Close()
	policy.KeyspaceChanged(gocql.KeyspaceUpdateEvent{Keyspace: "k", Change: "CREATED"})
}
