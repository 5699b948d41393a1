package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/peer/peerpb"
	"github.com/handfast-mq/handfast/schema"
)

const (
	messageBytesMax  = 16 << 20 // a batch publish or a pull at their limits, with room
	publishesAtOnce  = 4096     // of one peer's stream that are being written
	requestsTimeout  = 15 * time.Second
	keepaliveEvery   = 5 * time.Second
	keepaliveTimeout = 3 * time.Second
)

// Server answers the other nodes.
type Server struct {
	peerpb.UnimplementedPeerServer
	node    Node
	grpc    *grpc.Server
	closing chan struct{}
	close   sync.Once
}

// NewServer makes a server for a node. Without TLS settings it talks in the clear, which is for tests on one machine.
func NewServer(node Node, t *tls.Config) *Server {
	s := &Server{node: node, closing: make(chan struct{})}
	creds := insecure.NewCredentials()
	if t != nil {
		creds = credentials.NewTLS(t)
	}
	s.grpc = grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(messageBytesMax), grpc.MaxSendMsgSize(messageBytesMax),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	peerpb.RegisterPeerServer(s.grpc, s)
	return s
}

// Serve answers on a listener until Close.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// closeTimeout bounds how long calls of peers are waited for.
const closeTimeout = 2 * time.Second

// Close answers the publishes that were read, tells the peers that it goes, and ends the connections. What is cut off after
// closeTimeout is Unknown to its caller.
func (s *Server) Close() {
	s.close.Do(func() { close(s.closing) })
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
		s.grpc.Stop()
		<-done
	}
}

// Publish reads batches from a peer and answers each when it is written.
func (s *Server) Publish(stream grpc.BidiStreamingServer[peerpb.PublishRequest, peerpb.PublishAnswer]) error {
	var writing sync.WaitGroup
	defer writing.Wait()
	var sending sync.Mutex
	send := func(a *peerpb.PublishAnswer) {
		sending.Lock()
		defer sending.Unlock()
		_ = stream.Send(a) // a broken stream shows in Recv, and the peer knows that the outcome is unknown
	}
	slots := make(chan struct{}, publishesAtOnce)
	requests, broken := receive(stream)
	for last := uint64(0); ; {
		var req *peerpb.PublishRequest
		select {
		case req = <-requests:
		case err := <-broken:
			return err
		case <-s.closing:
			writing.Wait()
			send(&peerpb.PublishAnswer{Id: last, Closing: true})
			return nil
		}
		last = req.Id
		slots <- struct{}{}
		writing.Go(func() {
			defer func() { <-slots }()
			send(s.publish(stream.Context(), req))
		})
	}
}

// receive reads a stream into a channel, so that its end can be waited for beside other things.
func receive(stream grpc.BidiStreamingServer[peerpb.PublishRequest, peerpb.PublishAnswer]) (<-chan *peerpb.PublishRequest, <-chan error) {
	requests, broken := make(chan *peerpb.PublishRequest), make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				broken <- err
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return requests, broken
}

func (s *Server) publish(ctx context.Context, req *peerpb.PublishRequest) *peerpb.PublishAnswer {
	answer := &peerpb.PublishAnswer{Id: req.Id}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.TimeoutMs)*time.Millisecond)
	defer cancel()
	batches := make([]*owner.Batch, len(req.Batches))
	for i, b := range req.Batches {
		var err error
		if batches[i], err = fromBatch(b); err != nil {
			answer.Error = toError(err)
			return answer
		}
	}
	results, err := s.node.Publish(ctx, schema.PartitionID(req.Partition), batches...)
	answer.Results, answer.Error = toPublished(results), toError(err)
	return answer
}

// Pull implements the protocol; see Node.
func (s *Server) Pull(ctx context.Context, r *peerpb.PullRequest) (*peerpb.PullAnswer, error) {
	list, err := s.node.Pull(ctx, schema.SubscriptionID(r.Subscription), int(r.N), int(r.BytesMax))
	return &peerpb.PullAnswer{Deliveries: toDeliveries(list)}, toStatus(err)
}

// Wait implements the protocol; see Node.
func (s *Server) Wait(ctx context.Context, r *peerpb.WaitRequest) (*peerpb.Empty, error) {
	return &peerpb.Empty{}, toStatus(s.node.Wait(ctx, schema.SubscriptionID(r.Subscription)))
}

// Settle implements the protocol; see Node.
func (s *Server) Settle(ctx context.Context, r *peerpb.SettleRequest) (*peerpb.SettleAnswer, error) {
	list := make([]schema.Settlement, len(r.List))
	for i, item := range r.List {
		list[i] = schema.Settlement{Message: schema.MessageID(item.Message), Lease: item.Lease}
	}
	verdicts, err := s.node.Settle(ctx, schema.Settling(r.How), schema.SubscriptionID(r.Subscription), list, time.Duration(r.ByMs)*time.Millisecond)
	out := &peerpb.SettleAnswer{Verdicts: make([]string, len(verdicts))}
	for i, v := range verdicts {
		out.Verdicts[i] = string(v)
	}
	return out, toStatus(err)
}

// Message implements the protocol; see Node.
func (s *Server) Message(ctx context.Context, r *peerpb.MessageRequest) (*peerpb.MessageAnswer, error) {
	m, standings, found, err := s.node.Message(ctx, schema.MessageID(r.Id))
	if err != nil || !found {
		return &peerpb.MessageAnswer{}, toStatus(err)
	}
	out := &peerpb.MessageAnswer{Found: true, Message: toMessage(&m)}
	for _, st := range standings {
		out.Standings = append(out.Standings, &peerpb.Standing{Subscription: int64(st.Subscription), State: string(st.State), Attempts: int32(st.Attempts)})
	}
	return out, nil
}

// Progress implements the protocol; see Node.
func (s *Server) Progress(ctx context.Context, r *peerpb.ProgressRequest) (*peerpb.ProgressAnswer, error) {
	p, err := s.node.Progress(ctx, schema.SubscriptionID(r.Subscription))
	return &peerpb.ProgressAnswer{Outstanding: int64(p.Outstanding), Lost: p.Lost, CaughtUp: p.CaughtUp}, toStatus(err)
}

// Redrive implements the protocol; see Node.
func (s *Server) Redrive(ctx context.Context, r *peerpb.RedriveRequest) (*peerpb.RedriveAnswer, error) {
	n, err := s.node.Redrive(ctx, schema.SubscriptionID(r.Subscription), int(r.Limit))
	return &peerpb.RedriveAnswer{Redriven: int32(n), Error: toError(err)}, nil
}

// Sync implements the protocol; see Node.
func (s *Server) Sync(ctx context.Context, r *peerpb.SyncRequest) (*peerpb.SyncAnswer, error) {
	return &peerpb.SyncAnswer{Applied: r.Revision}, toStatus(s.node.Sync(ctx, schema.Revision(r.Revision)))
}

// Claim implements the protocol; see Node.
func (s *Server) Claim(ctx context.Context, r *peerpb.ClaimRequest) (*peerpb.Empty, error) {
	return &peerpb.Empty{}, toStatus(s.node.Claim(ctx, schema.PartitionID(r.Partition)))
}
