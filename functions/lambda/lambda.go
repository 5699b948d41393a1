// Package lambda delivers messages to functions on AWS Lambda, by its Invoke API.
package lambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sony/gobreaker/v2"

	"github.com/handfast-mq/handfast/functions/event"
	"github.com/handfast-mq/handfast/schema"
)

const (
	clientsMax = 1000 // by region, role and who it is assumed for
	// breakersMax bounds the functions whose failures are counted. One that drops out begins anew.
	breakersMax = 16 << 10
	// breakerFailures in a row open a breaker; breakerPause is how long it then waits before one probe.
	breakerFailures = 10
	breakerPause    = 30 * time.Second
	// timeoutDefault bounds an invocation when the target does not say: the longest that Lambda runs, and the way there.
	timeoutDefault = schema.FunctionTimeoutMax + 10*time.Second
	// throttledPause is how long a throttled function is left alone.
	throttledPause = 2 * time.Second
	// sessionName is how what is done with an assumed role appears in the records of its account.
	sessionName = "handfast"
)

// Options say how AWS is reached. The zero value takes all from the default chain: environment, shared files, the machine's role.
type Options struct {
	Config   *aws.Config // nil = the default chain
	Endpoint string      // instead of AWS's own; "" = AWS
}

// Lambda is schema.Invoker for targets of type lambda.
type Lambda struct {
	base     aws.Config
	endpoint string
	clients  *lru.Cache[clientKey, *lambda.Client]
	breakers *lru.Cache[breakerKey, *gobreaker.TwoStepCircuitBreaker[struct{}]]
}

type clientKey struct {
	region, role string
	consumer     schema.UserID // 0 without a role
}

type breakerKey struct {
	clientKey
	function string
}

var _ schema.Invoker = (*Lambda)(nil)

// New loads the configuration and makes an invoker.
func New(ctx context.Context, o Options) (*Lambda, error) {
	if o.Config == nil {
		c, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, fmt.Errorf("load the AWS configuration: %w", err)
		}
		o.Config = &c
	}
	clients, err := lru.New[clientKey, *lambda.Client](clientsMax)
	if err != nil {
		return nil, err
	}
	breakers, err := lru.New[breakerKey, *gobreaker.TwoStepCircuitBreaker[struct{}]](breakersMax)
	return &Lambda{*o.Config, o.Endpoint, clients, breakers}, err
}

// CheckTarget refuses targets that could never be invoked.
func CheckTarget(t *schema.Target) error {
	if strings.HasPrefix(t.Function, "arn:") {
		a, err := arn.Parse(t.Function)
		if err != nil || a.Service != "lambda" || !strings.HasPrefix(a.Resource, "function:") {
			return schema.Errorf(schema.Invalid, "target: function is not the ARN of a Lambda function")
		}
	}
	if t.RoleARN != "" {
		if a, err := arn.Parse(t.RoleARN); err != nil || a.Service != "iam" {
			return schema.Errorf(schema.Invalid, "target: role_arn is not the ARN of a role")
		}
	}
	return nil
}

func (l *Lambda) keyOf(s *schema.Subscription) clientKey {
	key := clientKey{region: cmp.Or(s.Target.Region, regionOf(s.Target.Function), l.base.Region), role: s.Target.RoleARN}
	if key.role != "" {
		key.consumer = s.Consumer
	}
	return key
}

// ExternalID is what roles are assumed with for a consumer. A role that asks for its owner's is nobody else's to name in a subscription.
func ExternalID(consumer schema.UserID) string { return fmt.Sprintf("handfast-%d", consumer) }

// client returns the client for a subscription's region and role.
func (l *Lambda) client(key clientKey) *lambda.Client {
	if c, ok := l.clients.Get(key); ok {
		return c
	}
	c := l.base.Copy()
	c.Region = key.region
	if key.role != "" {
		c.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(c), key.role, func(o *stscreds.AssumeRoleOptions) {
			o.RoleSessionName, o.ExternalID = sessionName, aws.String(ExternalID(key.consumer))
		}))
	}
	made := lambda.NewFromConfig(c, func(o *lambda.Options) {
		o.Retryer = aws.NopRetryer{} // the subscription's schedule decides
		if l.endpoint != "" {
			o.BaseEndpoint = aws.String(l.endpoint)
		}
	})
	l.clients.Add(key, made)
	return made
}

func regionOf(function string) string {
	a, err := arn.Parse(function)
	if err != nil {
		return ""
	}
	return a.Region
}

// Invoke delivers a batch as an event in the shape of SQS. Throttling uses up no attempt; a function's own error does.
func (l *Lambda) Invoke(ctx context.Context, s *schema.Subscription, batch []schema.Delivery) []schema.Result {
	key := l.keyOf(s)
	client, breaker := l.client(key), l.breaker(breakerKey{key, s.Target.Function})
	return event.Deliver(ctx, s, batch, func(ctx context.Context, payload []byte) (*schema.Invoked, error) {
		done, err := breaker.Allow()
		if err != nil {
			return nil, schema.Errorf(schema.Busy, "the function failed many times in a row; deliveries wait").Retry(breakerPause)
		}
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.Target.Timeout, timeoutDefault))
		defer cancel()
		out, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String(s.Target.Function), Payload: payload})
		switch {
		case err == nil && out.FunctionError != nil:
			done(errFunction)
			return &schema.Invoked{Payload: out.Payload, FunctionError: *out.FunctionError}, nil
		case err == nil:
			done(nil)
			return &schema.Invoked{Payload: out.Payload}, nil
		}
		err = kindOf(ctx, err)
		done(verdict(err))
		return nil, err
	})
}

var errFunction = errors.New("the function failed")

// verdict is an error as the breaker counts it: being throttled says nothing about a function's health.
func verdict(err error) error {
	if schema.KindOf(err) == schema.Busy {
		return nil
	}
	return err
}

func (l *Lambda) breaker(key breakerKey) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	if b, ok := l.breakers.Get(key); ok {
		return b
	}
	b := gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{MaxRequests: 1, Timeout: breakerPause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures }})
	if old, ok, _ := l.breakers.PeekOrAdd(key, b); ok {
		return old
	}
	return b
}

// kindOf sorts what AWS and the way to it can answer: who is throttled or cannot be reached waits, what is not there ends, what is refused waits longer,
// and what nobody knows counts as an attempt.
func kindOf(ctx context.Context, err error) error {
	var throttled *types.TooManyRequestsException
	var gone *types.ResourceNotFoundException
	var large *types.RequestTooLargeException
	var api smithy.APIError
	var response *awshttp.ResponseError
	switch {
	case errors.As(err, &throttled), code(err, "ThrottlingException", "EC2ThrottledException"):
		return schema.WrapError(schema.Busy, err, "AWS Lambda throttles the function").Retry(throttledPause)
	case errors.As(err, &gone):
		return schema.WrapError(schema.NotFound, err, "AWS Lambda has no such function")
	case errors.As(err, &large):
		return schema.WrapError(schema.TooLarge, err, "AWS Lambda does not take an event of this size")
	case errors.As(err, &response) && (response.HTTPStatusCode() == http.StatusForbidden || response.HTTPStatusCode() == http.StatusUnauthorized):
		return schema.WrapError(schema.Forbidden, err, "AWS does not let this node invoke the function")
	case errors.As(err, &response) && response.HTTPStatusCode() >= 500:
		return schema.WrapError(schema.Unknown, err, "AWS Lambda failed").Retry(throttledPause)
	case errors.As(err, &api):
		return schema.WrapError(schema.Unknown, err, "AWS Lambda refused the invocation: %s", api.ErrorCode())
	case ctx.Err() != nil:
		return schema.WrapError(schema.Unknown, err, "AWS Lambda did not answer in time")
	}
	return schema.WrapError(schema.Unavailable, err, "AWS Lambda cannot be reached").Retry(throttledPause)
}

func code(err error, codes ...string) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	for _, c := range codes {
		if api.ErrorCode() == c {
			return true
		}
	}
	return false
}
