package lambda

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/handfast-mq/handfast/schema"
)

func testLambda(t *testing.T, endpoint string) *Lambda {
	t.Helper()
	l, err := New(t.Context(), Options{Endpoint: endpoint, Config: &aws.Config{Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRecordedAnswers holds the outcome of a delivery against answers as AWS Lambda gives them.
func TestRecordedAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		headers map[string]string
		body    string
		want    schema.Outcome
	}{
		"success":       {200, map[string]string{"X-Amz-Executed-Version": "$LATEST"}, `null`, schema.Delivered},
		"batch failure": {200, nil, `{"batchItemFailures":[{"itemIdentifier":"1"}]}`, schema.Failed},
		"unhandled": {200, map[string]string{"X-Amz-Function-Error": "Unhandled", "X-Amz-Executed-Version": "$LATEST"},
			`{"errorMessage":"2026-01-01T00:00:00.000Z 9a54 Task timed out after 3.00 seconds"}`, schema.Failed},
		"throttled": {429, map[string]string{"x-amzn-ErrorType": "TooManyRequestsException", "Retry-After": "5"},
			`{"Reason":"ReservedFunctionConcurrentInvocationLimitExceeded","Type":"User","message":"Rate Exceeded."}`, schema.Held},
		"no function": {404, map[string]string{"x-amzn-ErrorType": "ResourceNotFoundException"},
			`{"Message":"Function not found: arn:aws:lambda:eu-west-1:123456789012:function:f","Type":"User"}`, schema.EndpointGone},
		"forbidden":     {403, map[string]string{"x-amzn-ErrorType": "AccessDeniedException"}, `{"Message":"User: x is not authorized"}`, schema.Held},
		"bad token":     {403, map[string]string{"x-amzn-ErrorType": "UnrecognizedClientException"}, `{"message":"The security token included in the request is invalid."}`, schema.Held},
		"too large":     {413, map[string]string{"x-amzn-ErrorType": "RequestEntityTooLargeException"}, `{"message":"Request must be smaller than 6291456 bytes"}`, schema.Failed},
		"service error": {500, map[string]string{"x-amzn-ErrorType": "ServiceException"}, `{"Message":"An error occurred and the request cannot be processed.","Type":"Service"}`, schema.Failed},
		"bad runtime":   {502, map[string]string{"x-amzn-ErrorType": "InvalidRuntimeException"}, `{"Message":"x","Type":"User"}`, schema.Failed},
	} {
		aws := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "POST" || r.URL.Path != "/2015-03-31/functions/f/invocations" {
				t.Errorf("%s %s", r.Method, r.URL.Path)
			}
			for k, v := range c.headers {
				w.Header().Set(k, v)
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		got := testLambda(t, aws.URL).Invoke(t.Context(), &schema.Subscription{Target: schema.Target{Function: "f"}}, []schema.Delivery{{Message: schema.Message{ID: 1}, Attempt: 1}})
		aws.Close()
		if len(got) != 1 || got[0].Outcome != c.want {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}

func TestNotReached(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	got := testLambda(t, "http://"+l.Addr().String()).Invoke(t.Context(), &schema.Subscription{Target: schema.Target{Function: "f"}}, []schema.Delivery{{Message: schema.Message{ID: 1}, Attempt: 1}})
	if got[0].Outcome != schema.Held || got[0].RetryAfter < time.Second {
		t.Errorf("nobody listens: %+v", got)
	}
}

func TestBreaker(t *testing.T) {
	calls := 0
	aws := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		w.WriteHeader(500)
	}))
	defer aws.Close()
	l, s, batch := testLambda(t, aws.URL), &schema.Subscription{Target: schema.Target{Function: "f"}}, []schema.Delivery{{Message: schema.Message{ID: 1}, Attempt: 1}}
	for range breakerFailures {
		l.Invoke(t.Context(), s, batch)
	}
	if got := l.Invoke(t.Context(), s, batch); got[0].Outcome != schema.Held || calls != breakerFailures {
		t.Errorf("after %d failures: %+v, %d calls", breakerFailures, got, calls)
	}
	other := &schema.Subscription{Target: schema.Target{Function: "f", Region: "us-east-1"}}
	if l.Invoke(t.Context(), other, batch); calls != breakerFailures+1 {
		t.Error("another function is held as well")
	}
}

func TestCheckTarget(t *testing.T) {
	for function, good := range map[string]bool{"f": true, "arn:aws:lambda:eu-west-1:123456789012:function:f:live": true, "arn:aws:s3:::bucket": false, "arn:x": false} {
		if err := CheckTarget(&schema.Target{Function: function}); (err == nil) != good {
			t.Errorf("%s: %v", function, err)
		}
	}
	if CheckTarget(&schema.Target{Function: "f", RoleARN: "role"}) == nil {
		t.Error("a role that is no ARN")
	}
}
