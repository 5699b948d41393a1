// Package session holds the node's session: the identity of one process start, on which every ownership hangs. It lives
// until somebody fences it, for ever.
package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

// checkTimeout bounds one read of the session register. Without an answer by then nothing is acknowledged.
const checkTimeout = 5 * time.Second

// Session checks at most one thing at a time: whether it still lives. One check answers everybody who asked before it began.
type Session struct {
	ID        schema.SessionID
	ownership schema.Ownership
	logger    *slog.Logger
	ctx       context.Context
	cancel    context.CancelFunc
	loop      sync.WaitGroup

	mu     sync.Mutex
	asking []func(live bool)
	over   bool
	wake   chan struct{}
	fresh  time.Time // when the last check began that found the session alive
}

// Standing is the session of a node whose store nobody else can open: it lives as long as the process.
type Standing struct{}

// Verify calls done at once.
func (Standing) Verify(done func(live bool)) { done(true) }

// Live is true.
func (Standing) Live(context.Context) bool { return true }

// Fresh is true.
func (Standing) Fresh(context.Context) bool { return true }

// Open registers a new session. It ends when Close is called or when a check finds it fenced.
func Open(ctx context.Context, own schema.Ownership, logger *slog.Logger) (*Session, error) {
	s := &Session{ID: schema.SessionID(uuid.NewString()), ownership: own, logger: logger, wake: make(chan struct{}, 1)}
	if err := own.OpenSession(ctx, s.ID); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.loop.Add(1)
	go s.run()
	return s, nil
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Close ends the session in this process. It does not fence it.
func (s *Session) Close() {
	s.cancel()
	s.loop.Wait()
}

// Verify calls done after a check that began after this call; see owner.Verifier.
func (s *Session) Verify(done func(live bool)) {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		done(false)
		return
	}
	s.asking = append(s.asking, done)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Live waits for a check that begins after the call.
func (s *Session) Live(ctx context.Context) bool {
	answer := make(chan bool, 1)
	s.Verify(func(live bool) { answer <- live })
	select {
	case live := <-answer:
		return live
	case <-ctx.Done():
		return false
	}
}

// freshFor is how old a check may be for a delivery to begin on it. It is shorter than any suspicion time: before somebody fences a
// silent node to withdraw a right, the node's deliveries have stopped. What is acknowledged does not rest on it.
const freshFor = time.Second

// Fresh tells whether the session was alive a moment ago, and checks when that is not known.
func (s *Session) Fresh(ctx context.Context) bool {
	s.mu.Lock()
	fresh := !s.over && time.Since(s.fresh) < freshFor
	s.mu.Unlock()
	return fresh || s.Live(ctx)
}

func (s *Session) run() {
	defer s.loop.Done()
	defer s.finish()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		asking := s.asking
		s.asking = nil
		s.mu.Unlock()
		begun := time.Now()
		live := s.check()
		if live {
			s.mu.Lock()
			s.fresh = begun
			s.mu.Unlock()
		}
		for _, done := range asking {
			done(live)
		}
		if !live {
			return
		}
	}
}

// finish answers everybody who still waits.
func (s *Session) finish() {
	s.cancel()
	s.mu.Lock()
	asking := s.asking
	s.asking, s.over = nil, true
	s.mu.Unlock()
	for _, done := range asking {
		done(false)
	}
}

func (s *Session) check() bool {
	ctx, cancel := context.WithTimeout(s.ctx, checkTimeout)
	defer cancel()
	live, err := s.ownership.SessionLive(ctx, s.ID)
	if s.ctx.Err() != nil { // closed meanwhile
		return false
	}
	if err != nil {
		s.logger.Error("the session could not be checked", "session", s.ID, "err", err)
		return false
	}
	if !live {
		s.logger.Error("the session was fenced by another node", "session", s.ID)
	}
	return live
}
