package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/handfast-mq/handfast/functions/async"
	"github.com/handfast-mq/handfast/functions/lambda"
	"github.com/handfast-mq/handfast/functions/runtime"
	"github.com/handfast-mq/handfast/gateway"
	"github.com/handfast-mq/handfast/schema"
)

// openFunctions starts the host of functions, where the store keeps their code.
func (n *Node) openFunctions(ctx context.Context, registry prometheus.Registerer) (err error) {
	if err := n.catalog.EnsureKey(ctx); err != nil {
		return err
	}
	if n.cfg.Lambda {
		if n.lambda, err = lambda.New(ctx, lambda.Options{Endpoint: n.cfg.LambdaEndpoint}); err != nil {
			return err
		}
	}
	artifacts, keeps := n.store.(schema.Artifacts)
	if !keeps {
		return nil
	}
	n.host, err = runtime.New(runtime.Options{Dir: filepath.Join(n.cfg.Dir, "functions"), Artifacts: artifacts, Catalog: n.catalog, Path: n.cfg.FunctionPath,
		Cgroup: n.cfg.FunctionCgroup, Logger: n.cfg.Logger, Registerer: registry})
	if err != nil {
		return err
	}
	n.async = async.New(async.Options{Catalog: n.catalog, Run: n.host.Run, Publish: func(ctx context.Context, t schema.TopicID, m schema.Publish) error {
		return n.service.PublishOwn(ctx, t, m) // the service is made after its invokers
	}})
	return nil
}

// mayInvoke asks the policies whether a user may invoke a function.
func (n *Node) mayInvoke(ctx context.Context, id schema.UserID, f *schema.Function) error {
	u := n.catalog.User(id)
	if u == nil || !n.policies.Authorize(ctx, &schema.AuthRequest{Principal: u, As: id, Action: schema.ActionInvokeFunc, Function: f.Name, FunctionBy: f.Owner,
		Invokers: f.Invokers, At: time.Now()}).Allow {
		return schema.Errorf(schema.Forbidden, "the function's owner does not let the consumer invoke it")
	}
	return nil
}

func (n *Node) invokers() map[schema.TargetType]schema.Invoker {
	m := map[schema.TargetType]schema.Invoker{schema.TargetWebhook: n.webhook}
	if n.host != nil {
		m[schema.TargetFunction] = &runtime.Subscriber{Host: n.host, May: n.mayInvoke, Events: n.async}
	}
	if n.lambda != nil {
		m[schema.TargetLambda] = n.lambda
	}
	return m
}

func (n *Node) targets() map[schema.TargetType]bool {
	m := map[schema.TargetType]bool{}
	for t := range n.invokers() {
		m[t] = true
	}
	return m
}

// functions is what the gateway sees of the host.
func (n *Node) functions() gateway.Functions {
	if n.host == nil {
		return nil
	}
	return struct {
		*runtime.Host
		*async.Async
	}{n.host, n.async}
}
