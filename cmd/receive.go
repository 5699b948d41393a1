package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiveBytesMax bounds what is read of a delivery: more than any message has.
const (
	receiveBytesMax = 4 << 20
	receiveTimeout  = 30 * time.Second // for a whole request
)

func newReceive() *cobra.Command {
	var listen, secret string
	var status int
	c := &cobra.Command{
		Use:   "receive",
		Short: "Run a webhook endpoint that prints what it gets",
		Long: `Run a webhook endpoint for development: it consents to deliveries by the CloudEvents handshake, prints each on a line with its id and attempt,
and answers with --status. With --secret, the signing secret of the subscription, it verifies signatures and answers 401 to what does not verify.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if status < 200 || status > 599 {
				return usagef("--status must be between 200 and 599")
			}
			e := &endpoint{out: c.OutOrStdout(), status: status}
			if secret != "" {
				w, err := standardwebhooks.NewWebhook(secret)
				if err != nil {
					return usagef("--secret: %w", err)
				}
				e.verify = w.Verify
			}
			return e.serve(listen)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:9000", "address")
	c.Flags().StringVar(&secret, "secret", "", "signing secret to verify deliveries with")
	c.Flags().IntVar(&status, "status", 200, "what deliveries are answered with")
	return c
}

// endpoint prints one delivery at a time.
type endpoint struct {
	mu     sync.Mutex
	out    io.Writer
	status int
	verify func(body []byte, headers http.Header) error
}

func (e *endpoint) serve(listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: e, ReadTimeout: receiveTimeout}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintf(e.out, "receiving at http://%s\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions {
		w.Header().Set("WebHook-Allowed-Origin", "*")
		w.Header().Set("WebHook-Allowed-Rate", "*")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, receiveBytesMax))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if e.verify != nil {
		if err := e.verify(body, r.Header); err != nil {
			e.print("refused: %v\n", err)
			http.Error(w, "the signature does not verify", http.StatusUnauthorized)
			return
		}
	}
	e.print("%s attempt %s: %s\n", clean(r.Header.Get("Webhook-Id")), clean(r.Header.Get("Handfast-Attempt")), clean(string(body)))
	w.WriteHeader(e.status)
}

func (e *endpoint) print(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fmt.Fprintf(e.out, format, args...)
}
