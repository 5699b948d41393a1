package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/peer/peerpb"
	"github.com/handfast-mq/handfast/schema"
)

const (
	breakerFailures = 5           // in a row, before a peer is left alone
	breakerPause    = time.Second // until it is tried again: short, since a restarted peer is back in seconds
)

// Client is another node. It connects when it is first used, and again whenever the connection breaks.
type Client struct {
	conn    *grpc.ClientConn
	rpc     peerpb.PeerClient
	breaker *gobreaker.CircuitBreaker[any]

	mu     sync.Mutex
	stream *publishStream
	closed bool
}

// Dial makes a client for a peer's address. It does not connect yet.
func Dial(address string, t *tls.Config) (*Client, error) {
	creds := insecure.NewCredentials()
	if t != nil {
		creds = credentials.NewTLS(t)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: 2 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout, PermitWithoutStream: true}))
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, rpc: peerpb.NewPeerClient(conn), breaker: gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name: address, Timeout: breakerPause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
		IsSuccessful: func(err error) bool { return !unreachable(err) },
	})}, nil
}

// unreachable tells whether an error is the transport's and not the peer's answer.
func unreachable(err error) bool {
	var ours *schema.Error
	return errors.As(err, &ours) && ours.Err != nil && ours.Kind == schema.NotOwner
}

// Close ends the connection. What was under way fails.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return c.conn.Close()
}

// guarded runs one call through the breaker.
func guarded[T any](c *Client, call func() (T, error)) (T, error) {
	v, err := c.breaker.Execute(func() (any, error) {
		v, err := call()
		return v, fromStatus(err)
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		err = schema.WrapError(schema.NotOwner, err, "the node that owns the partition does not answer").Retry(breakerPause)
	}
	t, _ := v.(T)
	return t, err
}

// Pull implements Node.
func (c *Client) Pull(ctx context.Context, s schema.SubscriptionID, n, bytesMax int) ([]schema.Delivery, error) {
	a, err := guarded(c, func() (*peerpb.PullAnswer, error) {
		return c.rpc.Pull(ctx, &peerpb.PullRequest{Subscription: int64(s), N: int32(n), BytesMax: int32(bytesMax)})
	})
	return fromDeliveries(s, a.GetDeliveries()), err
}

// Wait implements Node. It does not count for the breaker: most waits end by their deadline.
func (c *Client) Wait(ctx context.Context, s schema.SubscriptionID) error {
	_, err := c.rpc.Wait(ctx, &peerpb.WaitRequest{Subscription: int64(s)})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fromStatus(err)
}

// Settle implements Node.
func (c *Client) Settle(ctx context.Context, how schema.Settling, s schema.SubscriptionID, list []schema.Settlement, d time.Duration) ([]schema.Verdict, error) {
	req := &peerpb.SettleRequest{How: uint32(how), Subscription: int64(s), ByMs: d.Milliseconds(), List: make([]*peerpb.Settlement, len(list))}
	for i, item := range list {
		req.List[i] = &peerpb.Settlement{Message: int64(item.Message), Lease: item.Lease}
	}
	a, err := guarded(c, func() (*peerpb.SettleAnswer, error) { return c.rpc.Settle(ctx, req) })
	if err != nil {
		return nil, err
	}
	verdicts := make([]schema.Verdict, len(a.Verdicts))
	for i, v := range a.Verdicts {
		verdicts[i] = schema.Verdict(v)
	}
	return verdicts, nil
}

// Message implements Node.
func (c *Client) Message(ctx context.Context, id schema.MessageID) (schema.Message, []schema.Standing, bool, error) {
	a, err := guarded(c, func() (*peerpb.MessageAnswer, error) {
		return c.rpc.Message(ctx, &peerpb.MessageRequest{Id: int64(id)})
	})
	if err != nil {
		return schema.Message{}, nil, false, err
	}
	standings := make([]schema.Standing, len(a.Standings))
	for i, s := range a.Standings {
		standings[i] = schema.Standing{Subscription: schema.SubscriptionID(s.Subscription), State: schema.StandingState(s.State), Attempts: int(s.Attempts)}
	}
	return fromMessage(a.Message), standings, a.Found, nil
}

// Progress implements Node.
func (c *Client) Progress(ctx context.Context, s schema.SubscriptionID) (schema.Progress, error) {
	a, err := guarded(c, func() (*peerpb.ProgressAnswer, error) {
		return c.rpc.Progress(ctx, &peerpb.ProgressRequest{Subscription: int64(s)})
	})
	return schema.Progress{Outstanding: int(a.GetOutstanding()), Lost: a.GetLost(), CaughtUp: a.GetCaughtUp()}, err
}

// Redrive implements Node.
func (c *Client) Redrive(ctx context.Context, s schema.SubscriptionID, limit int) (int, error) {
	a, err := guarded(c, func() (*peerpb.RedriveAnswer, error) {
		return c.rpc.Redrive(ctx, &peerpb.RedriveRequest{Subscription: int64(s), Limit: int32(limit)})
	})
	if err != nil {
		return 0, err
	}
	return int(a.Redriven), fromError(a.Error)
}

// Sync implements Node.
func (c *Client) Sync(ctx context.Context, r schema.Revision) error {
	_, err := guarded(c, func() (*peerpb.SyncAnswer, error) { return c.rpc.Sync(ctx, &peerpb.SyncRequest{Revision: int64(r)}) })
	return err
}

// Claim implements Node.
func (c *Client) Claim(ctx context.Context, p schema.PartitionID) error {
	_, err := guarded(c, func() (*peerpb.Empty, error) { return c.rpc.Claim(ctx, &peerpb.ClaimRequest{Partition: int64(p)}) })
	return err
}

// Publish implements Node. When the stream breaks after a batch was sent, its outcome is Unknown.
func (c *Client) Publish(ctx context.Context, p schema.PartitionID, batches ...*owner.Batch) ([]schema.Published, error) {
	s, err := guarded(c, func() (*publishStream, error) { return c.publishing() })
	if err != nil {
		return nil, err
	}
	left := requestsTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	req := &peerpb.PublishRequest{Partition: int64(p), TimeoutMs: left.Milliseconds()}
	for _, b := range batches {
		req.Batches = append(req.Batches, toBatch(b))
	}
	return s.publish(ctx, req)
}

// publishing returns the one stream to the peer, a new one when the former broke.
func (c *Client) publishing() (*publishStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != nil && !c.stream.broken() {
		return c.stream, nil
	}
	if c.closed {
		return nil, context.Canceled
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := c.rpc.Publish(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	c.stream = &publishStream{stream: stream, cancel: cancel, waiting: map[uint64]chan *peerpb.PublishAnswer{}}
	go c.stream.receive()
	return c.stream, nil
}

// publishStream gives each answer to the one who waits for it.
type publishStream struct {
	stream  peerpb.Peer_PublishClient
	cancel  context.CancelFunc
	sending sync.Mutex

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *peerpb.PublishAnswer
	err     error
}

func (s *publishStream) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

func (s *publishStream) receive() {
	defer s.cancel()
	for {
		answer, err := s.stream.Recv()
		s.mu.Lock()
		if err != nil {
			if s.err == nil {
				s.err = err
			}
			for _, w := range s.waiting {
				close(w)
			}
			s.waiting = nil
			s.mu.Unlock()
			return
		}
		if answer.Closing {
			s.leave(answer.Id)
			s.mu.Unlock()
			continue
		}
		w := s.waiting[answer.Id]
		delete(s.waiting, answer.Id)
		s.mu.Unlock()
		if w != nil {
			w <- answer
		}
	}
}

// leave sends those elsewhere whose requests the peer did not read before it stopped. s.mu is held.
func (s *publishStream) leave(last uint64) {
	s.err = errLeaving
	for id, w := range s.waiting {
		if id > last {
			w <- &peerpb.PublishAnswer{Error: toError(errLeaving)}
			delete(s.waiting, id)
		}
	}
}

var errLeaving = schema.Errorf(schema.NotOwner, "the node that owned the partition is leaving").Retry(time.Second)

func (s *publishStream) publish(ctx context.Context, req *peerpb.PublishRequest) ([]schema.Published, error) {
	w := make(chan *peerpb.PublishAnswer, 1)
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil, errLeaving
	}
	s.next++
	req.Id = s.next
	s.waiting[req.Id] = w
	s.mu.Unlock()
	s.sending.Lock()
	err := s.stream.Send(req)
	s.sending.Unlock()
	if err != nil { // Recv tells what it was
		s.cancel()
	}
	select {
	case answer, ok := <-w:
		if !ok {
			return nil, unconfirmed(s.err)
		}
		return fromPublished(answer.Results), fromError(answer.Error)
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.waiting, req.Id)
		s.mu.Unlock()
		return nil, unconfirmed(ctx.Err())
	}
}

func unconfirmed(why error) error {
	return schema.WrapError(schema.Unknown, why, "the message was not confirmed and may have been accepted: retry with the same idempotency key").Retry(time.Second)
}
