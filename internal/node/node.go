package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	_ "net/http/pprof" // registers with the default mux, which only the debug listener serves
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/handfast-mq/handfast/functions/async"
	"github.com/handfast-mq/handfast/functions/lambda"
	"github.com/handfast-mq/handfast/functions/runtime"
	"github.com/handfast-mq/handfast/functions/webhook"
	"github.com/handfast-mq/handfast/gateway"
	"github.com/handfast-mq/handfast/partitions"
	"github.com/handfast-mq/handfast/partitions/peer"
	"github.com/handfast-mq/handfast/policies"
	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/catalog"
	"github.com/handfast-mq/handfast/schema/pebble"
)

// TokenFile is the name, within the data directory, of the file with the administrator's token.
const TokenFile = "admin.token"

// Node is a running node.
type Node struct {
	cfg      Config
	store    schema.Store
	catalog  *catalog.Catalog
	policies *policies.Authorizer
	webhook  *webhook.Webhook
	lambda   *lambda.Lambda // nil = no such targets
	host     *runtime.Host  // nil = the store keeps no code
	async    *async.Async
	service  *partitions.Service
	gateway  *gateway.Gateway
	listener net.Listener
	debug    net.Listener

	peerListener net.Listener
	peers        *peer.Server
	serving      sync.WaitGroup
	failed       chan error

	// Created tells that this start made the cluster, and its administrator.
	Created bool
}

// Open starts a node and returns when it takes requests. Close ends it.
func Open(ctx context.Context, cfg Config) (n *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n = &Node{cfg: cfg, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			n.Close(ctx)
			n = nil
		}
	}()
	// The address and the policies first: a port that is taken and a policy that is wrong are found out before anything is touched.
	if n.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return n, fmt.Errorf("listen: %w", err)
	}
	if err := n.openDebug(); err != nil {
		return n, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if n.policies, err = policies.New(policies.Options{Dir: cfg.PolicyDir, Logger: cfg.Logger, Registerer: registry}); err != nil {
		return n, err
	}
	if err := n.openStore(ctx); err != nil {
		return n, err
	}
	if err := n.openParts(ctx, registry); err != nil {
		return n, err
	}
	n.serving.Go(func() {
		if err := n.gateway.Serve(n.listener); err != nil {
			n.failed <- fmt.Errorf("serve: %w", err)
		}
	})
	return n, nil
}

// openDebug serves the profiler where that was asked for.
func (n *Node) openDebug() (err error) {
	if n.cfg.DebugListen == "" {
		return nil
	}
	if n.debug, err = net.Listen("tcp", n.cfg.DebugListen); err != nil {
		return fmt.Errorf("listen for the profiler: %w", err)
	}
	n.serving.Go(func() { http.Serve(n.debug, nil) }) // ends with the listener
	return nil
}

func (n *Node) openStore(ctx context.Context) error {
	if n.cfg.Store == StoreCQL {
		return n.openDatabase(ctx)
	}
	store, err := pebble.Open(n.cfg.Dir, pebble.Options{Logger: n.cfg.Logger})
	if err != nil {
		return err
	}
	n.store = store
	if n.catalog, err = catalog.Open(ctx, n.store); err != nil {
		return err
	}
	n.Created, err = initCluster(ctx, n.catalog, n.cfg.Dir, schema.Cluster{Partitions: n.cfg.Partitions}, n.cfg.AdminToken)
	return err
}

// initCluster makes the cluster when there is none. The token is on disk before the cluster exists: a start that dies in between
// goes on with the same one.
func initCluster(ctx context.Context, c *catalog.Catalog, dir string, cluster schema.Cluster, token string) (created bool, err error) {
	if c.Cluster() != nil {
		return false, nil
	}
	path := filepath.Join(dir, TokenFile)
	if kept, err := os.ReadFile(path); err == nil && token == "" {
		token = strings.TrimSpace(string(kept))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read the administrator's token: %w", err)
	}
	if token == "" {
		token = catalog.NewToken()
	}
	if err := writeToken(path, token); err != nil {
		return false, fmt.Errorf("write the administrator's token: %w", err)
	}
	return c.Init(ctx, cluster, token)
}

func writeToken(path, token string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return err
	}
	if _, err := f.WriteString(token + "\n"); err != nil {
		return err
	}
	return f.Sync()
}

func (n *Node) openParts(ctx context.Context, registry *prometheus.Registry) (err error) {
	targets := webhook.Targets{AllowPrivate: n.cfg.AllowPrivateTargets, Allow: n.cfg.AllowTargets, OwnPorts: []int{n.listener.Addr().(*net.TCPAddr).Port}}
	callback := ""
	if n.cfg.PublicURL != "" {
		callback = strings.TrimSuffix(n.cfg.PublicURL, "/") + "/confirm_subscription?challenge="
	}
	if n.webhook, err = webhook.New(webhook.Options{Targets: targets, Origin: n.origin(), CallbackURL: callback, Logger: n.cfg.Logger, Registerer: registry}); err != nil {
		return err
	}
	if err := n.openFunctions(ctx, registry); err != nil {
		return err
	}
	cluster, err := n.cluster()
	if err != nil {
		return err
	}
	if n.service, err = partitions.Open(ctx, partitions.Config{
		Store: n.store, Catalog: n.catalog, Cluster: cluster,
		Invokers: n.invokers(), IdempotencyKeys: n.cfg.IdempotencyKeys, Logger: n.cfg.Logger, Registry: registry,
	}); err != nil {
		return err
	}
	n.servePeers(cluster)
	n.gateway = gateway.New(gateway.Config{
		Catalog: n.catalog, Broker: n.service, Attempts: n.store, Authorizer: n.policies, Verifier: n.webhook,
		CheckURL:  func(u string) error { return webhook.CheckURL(u, targets) },
		NewSecret: webhook.NewSecret, CheckRule: policies.CheckRule,
		Targets: n.targets(), CheckLambda: lambda.CheckTarget, Functions: n.functions(),
		UserRate: n.cfg.UserRate, ReadTimeout: n.cfg.ReadTimeout, IdleTimeout: n.cfg.IdleTimeout, Logger: n.cfg.Logger, Registry: registry,
	})
	return nil
}

func (n *Node) origin() string {
	if n.cfg.Origin != "" {
		return n.cfg.Origin
	}
	if u, err := url.Parse(n.cfg.PublicURL); err == nil {
		return u.Hostname()
	}
	return ""
}

// URL is where the node answers.
func (n *Node) URL() string { return "http://" + n.listener.Addr().String() }

// Failed gets an error when the node can no longer serve.
func (n *Node) Failed() <-chan error { return n.failed }

// closeTimeout bounds how long open requests are waited for.
const closeTimeout = 5 * time.Second

// Close takes no new requests, answers those that are under way, flushes and ends. It can be called on a node that did not fully start.
func (n *Node) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var errs []error
	if n.gateway != nil {
		errs = append(errs, n.gateway.Shutdown(ctx))
	}
	if n.listener != nil {
		n.listener.Close()
	}
	if n.debug != nil {
		n.debug.Close()
	}
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	if n.webhook != nil {
		errs = append(errs, n.webhook.Close())
	}
	if n.service != nil {
		n.service.Close()
	}
	if n.peers != nil {
		n.peers.Close()
	} else if n.peerListener != nil {
		n.peerListener.Close()
	}
	if n.policies != nil {
		errs = append(errs, n.policies.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	n.serving.Wait()
	return errors.Join(errs...)
}

// Revision counts the changes of metadata that this node knows.
func (n *Node) Revision() schema.Revision { return n.catalog.Revision() }
