package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"reflect"
	"time"

	"github.com/handfast-mq/handfast/schema"
	"github.com/handfast-mq/handfast/schema/filter"
)

const (
	targetTimeoutMax = 15 * time.Minute
	targetRateMax    = 100_000
	batchSizeMax     = 10_000
	batchWindowMax   = 5 * time.Minute
)

// Subscribe adds a consumer's subscription. approved is the publisher's consent, by rule; consented the consumer's, which
// a webhook gives later. A consumer has one subscription to a topic: the same call again returns it, another one is a Conflict.
func (c *Catalog) Subscribe(ctx context.Context, s schema.Subscription, approved, consented bool) (*schema.Subscription, error) {
	err := c.update(ctx, func(tx *Tx) error {
		t, err := tx.topic(s.Topic)
		if err != nil {
			return err
		}
		if tx.s.users[s.Consumer] == nil {
			return schema.Errorf(schema.NotFound, "there is no user %d", s.Consumer)
		}
		pattern := tx.s.patterns[t.Pattern]
		fillSubscription(&s, t, pattern)
		if err := tx.checkSubscription(&s, pattern); err != nil {
			return err
		}
		if old := tx.s.ofConsumer[grantKey{s.Topic, s.Consumer}]; old != nil {
			if !old.State.Final() {
				if !sameAgreement(old, &s) {
					return schema.Errorf(schema.Conflict, "the consumer has another subscription to this topic: subscription_id %d; unsubscribe first, or update it", old.ID)
				}
				s.ID = old.ID
				return nil
			}
			tx.remove(schema.KindSubscription, key(old.ID))
		}
		s.ID, s.CreatedAt = schema.SubscriptionID(tx.newID()), tx.Now
		s.PublisherConsent, s.ConsumerConsent = schema.ConsentPending, schema.ConsentPending
		if approved {
			s.PublisherConsent = schema.ConsentGiven
		}
		if consented {
			s.ConsumerConsent = schema.ConsentGiven
		} else {
			s.Challenge = rand.Text()
		}
		tx.transition(&s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c.Subscription(s.ID), nil
}

func fillSubscription(s *schema.Subscription, t *schema.Topic, p *schema.Pattern) {
	if s.Target.Type == "" {
		s.Target.Type = schema.TargetPull
	}
	if s.Guarantee == "" {
		s.Guarantee = p.Guarantee
	}
	s.Ordered = s.Ordered || p.Ordered
	if s.Start.Position == "" {
		s.Start.Position = "now"
	}
	if s.AckDeadline == 0 {
		s.AckDeadline = schema.AckDeadlineDefault
	}
	if s.MaxOutstanding == 0 {
		s.MaxOutstanding = schema.OutstandingDefault
	}
	if s.DeadLetter == 0 {
		s.DeadLetter = t.DeadLetter
	}
}

func (tx *Tx) checkSubscription(s *schema.Subscription, p *schema.Pattern) error {
	switch {
	case p.Mode == schema.ModePull && s.Target.Push(), p.Mode == schema.ModePush && !s.Target.Push():
		return schema.Errorf(schema.Invalid, "the topic's pattern delivers by %s only", p.Mode)
	case s.Guarantee != schema.AtLeastOnce && s.Guarantee != schema.AtMostOnce:
		return schema.Errorf(schema.Invalid, "guarantee must be at_least_once or at_most_once")
	case s.AckDeadline < schema.AckDeadlineMin || s.AckDeadline > schema.AckDeadlineMax:
		return schema.Errorf(schema.Invalid, "ack_deadline must be between %v and %v", schema.AckDeadlineMin, schema.AckDeadlineMax)
	case s.MaxOutstanding < 1 || s.MaxOutstanding > schema.OutstandingMax:
		return schema.Errorf(schema.Invalid, "max_outstanding must be between 1 and %d", schema.OutstandingMax)
	case s.MaxAttempts < 0 || s.MaxAttempts > schema.AttemptsMax || len(s.RetrySchedule) > schema.AttemptsMax:
		return schema.Errorf(schema.Invalid, "at most %d attempts", schema.AttemptsMax)
	case len(s.AcceptPublishers) > schema.AcceptPublishersMax:
		return schema.Errorf(schema.Invalid, "accept_publishers names more than %d users", schema.AcceptPublishersMax)
	}
	for _, d := range s.RetrySchedule {
		if d < 0 || d > schema.RetryDelayMax {
			return schema.Errorf(schema.Invalid, "retry delays must be between 0 and %v", schema.RetryDelayMax)
		}
	}
	switch s.Start.Position {
	case "now", "earliest", "time", "message":
	default:
		return schema.Errorf(schema.Invalid, "start must be now, earliest, a time or a message id")
	}
	if err := checkTarget(s); err != nil {
		return err
	}
	if err := tx.checkFunctionTarget(s); err != nil {
		return err
	}
	if dead := tx.s.topics[s.DeadLetter]; dead == nil || s.DeadLetter == s.Topic || dead.Owner != tx.s.topics[s.Topic].Owner {
		if err := tx.checkDeadLetter(s.DeadLetter, s.Topic, s.Consumer); err != nil {
			return err
		}
	}
	_, err := filter.Compile(s.Filter)
	return err
}

func checkTarget(s *schema.Subscription) error {
	t := &s.Target
	switch t.Type {
	case schema.TargetPull, schema.TargetWebhook, schema.TargetFunction, schema.TargetLambda:
	default:
		return schema.Errorf(schema.Invalid, "target type must be pull, webhook, function or lambda")
	}
	batches := t.Type == schema.TargetFunction || t.Type == schema.TargetLambda
	switch {
	case t.Format != "" && t.Format != "binary" && t.Format != "structured":
		return schema.Errorf(schema.Invalid, "target format must be binary or structured, or left out")
	case t.Timeout < 0 || t.Timeout > targetTimeoutMax:
		return schema.Errorf(schema.Invalid, "target timeout must be between 0 and %v", targetTimeoutMax)
	case t.Concurrency < 0 || t.Concurrency > schema.ConcurrencyMax:
		return schema.Errorf(schema.Invalid, "target concurrency must be between 0 and %d", schema.ConcurrencyMax)
	case t.Rate < 0 || t.Rate > targetRateMax || t.Rate != t.Rate:
		return schema.Errorf(schema.Invalid, "target rate must be between 0 and %d a second", targetRateMax)
	case t.BatchSize < 0 || t.BatchSize > batchSizeMax || t.BatchWindow < 0 || t.BatchWindow > batchWindowMax:
		return schema.Errorf(schema.Invalid, "batch_size must be between 0 and %d, batch_window between 0 and %v", batchSizeMax, batchWindowMax)
	case !batches && (t.BatchSize > 1 || t.BatchWindow > 0):
		return schema.Errorf(schema.Invalid, "batches are for functions")
	}
	return nil
}

// sameAgreement tells whether two subscriptions ask for the same.
func sameAgreement(a, b *schema.Subscription) bool {
	x, y := *a, *b
	for _, s := range []*schema.Subscription{&x, &y} {
		s.ID, s.State, s.Reason, s.Challenge, s.Secrets, s.Seeks = 0, "", "", "", nil, 0
		s.PublisherConsent, s.ConsumerConsent = "", ""
		s.CreatedAt, s.ActiveAt, s.EndedAt = time.Time{}, time.Time{}, time.Time{}
	}
	if !bytes.Equal(x.Filter, y.Filter) || !x.Start.Time.Equal(y.Start.Time) {
		return false
	}
	x.Filter, y.Filter, x.Start.Time, y.Start.Time = nil, nil, time.Time{}, time.Time{}
	return reflect.DeepEqual(x, y)
}

// transition derives the state from the consents and stores the subscription.
func (tx *Tx) transition(s *schema.Subscription) {
	s.State = schema.StateOf(s.PublisherConsent, s.ConsumerConsent)
	if s.State == schema.Active && s.ActiveAt.IsZero() {
		s.ActiveAt = tx.Now
	}
	tx.put(schema.KindSubscription, key(s.ID), s)
}

// end finishes a subscription for good.
func (tx *Tx) end(s *schema.Subscription, reason string) {
	ended := *s
	ended.State, ended.Reason, ended.EndedAt, ended.Secrets, ended.Challenge = schema.Ended, reason, tx.Now, nil, ""
	tx.put(schema.KindSubscription, key(s.ID), ended)
}

// changeSubscription lets fn change a copy of a subscription that is not at its end. fn stores it by transition, or refuses.
func (c *Catalog) changeSubscription(ctx context.Context, id schema.SubscriptionID, fn func(tx *Tx, s *schema.Subscription) error) (*schema.Subscription, error) {
	err := c.update(ctx, func(tx *Tx) error {
		s := tx.s.subscriptions[id]
		if s == nil {
			return schema.Errorf(schema.NotFound, "there is no such subscription")
		}
		if s.State.Final() {
			return schema.Errorf(schema.Conflict, "the subscription is %s", s.State)
		}
		changed := *s
		return fn(tx, &changed)
	})
	if err != nil {
		return nil, err
	}
	return c.Subscription(id), nil
}

// Approve is the publisher's consent.
func (c *Catalog) Approve(ctx context.Context, id schema.SubscriptionID) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		if s.PublisherConsent == schema.ConsentGiven {
			return nil
		}
		s.PublisherConsent = schema.ConsentGiven
		tx.transition(s)
		return nil
	})
}

// Reject withdraws the publisher's consent, or never gives it. The subscription is over.
func (c *Catalog) Reject(ctx context.Context, id schema.SubscriptionID, reason string) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		s.PublisherConsent, s.Reason, s.EndedAt = schema.ConsentRefused, reason, tx.Now
		tx.transition(s)
		return nil
	})
}

// Consent is the consumer's consent, proved by its endpoint. When challenge is not empty it must be the subscription's.
func (c *Catalog) Consent(ctx context.Context, id schema.SubscriptionID, challenge string) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		if challenge != "" && subtle.ConstantTimeCompare([]byte(challenge), []byte(s.Challenge)) != 1 {
			return schema.Errorf(schema.NotFound, "there is no such subscription")
		}
		if s.ConsumerConsent == schema.ConsentGiven {
			return nil
		}
		s.ConsumerConsent, s.Challenge = schema.ConsentGiven, ""
		tx.transition(s)
		return nil
	})
}

// Unsubscribe ends a subscription.
func (c *Catalog) Unsubscribe(ctx context.Context, id schema.SubscriptionID, reason string) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		tx.end(s, reason)
		return nil
	})
}

// Pause stops deliveries until Resume. Messages wait.
func (c *Catalog) Pause(ctx context.Context, id schema.SubscriptionID, reason string) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		switch s.State {
		case schema.Paused:
			return nil
		case schema.Active:
			s.State, s.Reason = schema.Paused, reason
			tx.put(schema.KindSubscription, key(id), s)
			return nil
		}
		return schema.Errorf(schema.Conflict, "the subscription is %s", s.State)
	})
}

// Resume lets deliveries go on after Pause.
func (c *Catalog) Resume(ctx context.Context, id schema.SubscriptionID) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		if s.State != schema.Paused {
			return nil
		}
		s.Reason = ""
		tx.transition(s)
		return nil
	})
}

// Seek moves a subscription to another position: a replay, or a jump ahead.
func (c *Catalog) Seek(ctx context.Context, id schema.SubscriptionID, to schema.StartAt) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		s.Start = to
		s.Seeks++
		tx.put(schema.KindSubscription, key(id), s)
		return nil
	})
}

// UpdateSubscription changes a subscription by fn, which may set what the consumer chooses, the target and the secrets. A webhook with another URL
// has to consent again.
func (c *Catalog) UpdateSubscription(ctx context.Context, id schema.SubscriptionID, fn func(*schema.Subscription)) (*schema.Subscription, error) {
	return c.changeSubscription(ctx, id, func(tx *Tx, s *schema.Subscription) error {
		before, state := s.Target, s.State
		fn(s)
		t, err := tx.topic(s.Topic)
		if err != nil {
			return err
		}
		if err := tx.checkSubscription(s, tx.s.patterns[t.Pattern]); err != nil {
			return err
		}
		if s.Target.Type == schema.TargetWebhook && s.Target.URL != before.URL {
			s.ConsumerConsent, s.Challenge = schema.ConsentPending, rand.Text()
			state = ""
		}
		if state == schema.Paused {
			tx.put(schema.KindSubscription, key(id), s)
			return nil
		}
		tx.transition(s)
		return nil
	})
}
