package cmd

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

// listening is what listen was told.
type listening struct {
	forward  *forwarder
	parallel int
	count    int
	start    string
	delay    time.Duration
}

func newListen(r *remote) *cobra.Command {
	var l listening
	var to, secret string
	c := r.verb("listen TOPIC", "Follow a topic: print each message, or forward it to a URL", exactly(1), func(ctx context.Context, s *session) error {
		if l.parallel < 1 || l.parallel > schema.PullMessagesMax {
			return usagef("--parallel must be between 1 and %d", schema.PullMessagesMax)
		}
		if to != "" {
			u, err := url.Parse(to)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return usagef("--forward-to must be an http or https URL, not %q", to)
			}
			if l.forward, err = newForwarder(to, secret); err != nil {
				return err
			}
		}
		return l.run(ctx, s)
	})
	c.Long = `Follow a topic until Ctrl-C: print each message and acknowledge it. You are subscribed to it as one who pulls, if you are not yet.

With --forward-to, each message is POSTed to a URL instead, as a webhook would be: acknowledged when the answer is 2xx, and given back
when it is not. So a handler on this machine gets what a webhook would get, without an address that others can reach. ` + topicHelp
	c.Example = "  handfast listen orders --forward-to http://localhost:3000/hook"
	f := c.Flags()
	f.StringVar(&to, "forward-to", "", "URL that each message is POSTed to")
	f.StringVar(&secret, "secret", "", "whsec_… to sign what is forwarded with, as Standard Webhooks says")
	f.IntVar(&l.parallel, "parallel", 1, "messages at the same time; more than 1 gives up their order")
	f.IntVar(&l.count, "count", 0, "end after so many messages; 0 = never")
	f.StringVar(&l.start, "start", "", "where a new subscription begins: now, earliest, a time or a message (default now)")
	f.DurationVar(&l.delay, "retry-delay", 5*time.Second, "when a message comes again that the URL did not take")
	return c
}

func (l *listening) run(ctx context.Context, s *session) error {
	topic, err := s.topicOf(ctx, s.args[0])
	if err != nil {
		return err
	}
	if err := l.subscribe(ctx, s, topic); err != nil {
		return endOf(ctx, err)
	}
	for left := l.count; l.count == 0 || left > 0; {
		n := l.parallel
		if l.count > 0 {
			n = min(n, left)
		}
		got, err := s.Pull(ctx, client.Pull{Topic: topic, Max: n, Wait: schema.PullWaitMax})
		if err != nil {
			return endOf(ctx, err)
		}
		if err := l.handle(ctx, s, topic, got); err != nil {
			return endOf(ctx, err)
		}
		left -= len(got)
	}
	return nil
}

// endOf is no error after Ctrl-C.
func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// approvalPoll is how often a subscription is looked at that waits for the topic's owner.
const approvalPoll = 2 * time.Second

// subscribe sees to it that there is an active subscription that pulls.
func (l *listening) subscribe(ctx context.Context, s *session, topic schema.TopicID) error {
	now, err := s.SubscriptionOf(ctx, topic, 0)
	sub := now.Subscription
	if schema.KindOf(err) == schema.NotFound || err == nil && sub.State.Final() {
		sub, err = s.Subscribe(ctx, client.NewSubscription{Topic: topic, Start: l.start})
	}
	if err != nil {
		return err
	}
	if sub.Target.Type != schema.TargetPull {
		return fmt.Errorf("subscription %d is delivered to its %s: unsubscribe first, or listen as another user", sub.ID, sub.Target.Type)
	}
	for told := false; sub.State == schema.PendingPublisher; told = true {
		if !told {
			fmt.Fprintf(s.cmd.ErrOrStderr(), "handfast: waiting for the topic's owner to say: handfast subscription approve %d\n", sub.ID)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(approvalPoll):
		}
		if now, err = s.Subscription(ctx, sub.ID); err != nil {
			return err
		}
		sub = now.Subscription
	}
	if sub.State != schema.Active {
		return fmt.Errorf("subscription %d is %s: %s", sub.ID, sub.State, sub.Reason)
	}
	fmt.Fprintf(s.cmd.ErrOrStderr(), "handfast: listening to topic %d; Ctrl-C ends it\n", topic)
	return nil
}

// settleTimeout bounds the acknowledgement of what was handled already when Ctrl-C came.
const settleTimeout = 10 * time.Second

// handle prints or forwards messages, all at the same time, and settles each. Those that were begun are ended, also after Ctrl-C.
func (l *listening) handle(ctx context.Context, s *session, topic schema.TopicID, got []client.Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTimeout+settleTimeout)
	defer cancel()
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	var print sync.Mutex
	for i := range got {
		all.Go(func() {
			if err := l.one(ctx, s, topic, &got[i], &print); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *listening) one(ctx context.Context, s *session, topic schema.TopicID, d *client.Delivery, print *sync.Mutex) error {
	receipt := client.Settle{Topic: topic, Messages: []client.Receipt{d.Receipt()}}
	if l.forward == nil {
		print.Lock()
		err := s.deliveries([]client.Delivery{*d})
		print.Unlock()
		if err == nil {
			_, err = s.Ack(ctx, receipt)
		}
		return err
	}
	answer := l.forward.post(ctx, d)
	print.Lock()
	err := l.tell(s, d, answer)
	print.Unlock()
	if err != nil {
		return err
	}
	if answer.took() {
		_, err = s.Ack(ctx, receipt)
	} else {
		_, err = s.Nack(ctx, receipt, l.delay)
	}
	return err
}

func (l *listening) tell(s *session, d *client.Delivery, a forwarded) error {
	if s.json {
		return s.document(struct {
			Message schema.MessageID `json:"message_id"`
			Attempt int              `json:"attempt"`
			forwarded
		}{d.ID, d.Attempt, a})
	}
	what := fmt.Sprint(a.Status)
	if a.Error != "" {
		what = clean(a.Error)
	}
	_, err := fmt.Fprintf(s.w, "%d  attempt %d  %s\n", d.ID, d.Attempt, what)
	return err
}
