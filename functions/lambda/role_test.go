package lambda

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/handfast-mq/handfast/schema"
)

const testRole = "arn:aws:iam::123456789012:role/invoker"

// The answers of AssumeRole as AWS STS gives them.
const (
	assumed = `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleResult>
    <AssumedRoleUser>
      <AssumedRoleId>AROACLKWSDQRAOEXAMPLE:handfast</AssumedRoleId>
      <Arn>arn:aws:sts::123456789012:assumed-role/invoker/handfast</Arn>
    </AssumedRoleUser>
    <Credentials>
      <AccessKeyId>%s</AccessKeyId>
      <SecretAccessKey>%s</SecretAccessKey>
      <SessionToken>%s</SessionToken>
      <Expiration>%s</Expiration>
    </Credentials>
  </AssumeRoleResult>
  <ResponseMetadata>
    <RequestId>c6104cbe-af31-11e0-8154-cbc7ccf896c7</RequestId>
  </ResponseMetadata>
</AssumeRoleResponse>`
	notAssumed = `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <Error>
    <Type>Sender</Type>
    <Code>AccessDenied</Code>
    <Message>User: arn:aws:iam::111122223333:user/node is not authorized to perform: sts:AssumeRole on resource: arn:aws:iam::123456789012:role/invoker</Message>
  </Error>
  <RequestId>c6104cbe-af31-11e0-8154-cbc7ccf896c7</RequestId>
</ErrorResponse>`
)

// account is an AWS account with one role, whose trust policy asks for an external id, and one function, which only that role may invoke.
type account struct {
	t          *testing.T
	externalID string
	validFor   time.Duration // of the credentials that it gives

	mu       sync.Mutex
	issued   int // credentials
	invoked  int
	sessions map[string]aws.Credentials
}

func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Error(err)
	}
	if strings.HasSuffix(r.URL.Path, "/invocations") {
		a.invoke(w, r, body)
		return
	}
	a.assumeRole(w, r, body)
}

func (a *account) assumeRole(w http.ResponseWriter, r *http.Request, body []byte) {
	if err := verify(r, body, nodeCredentials, "sts"); err != nil {
		a.t.Errorf("AssumeRole: %v", err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if r.ParseForm() != nil || r.Form.Get("Action") != "AssumeRole" || r.Form.Get("Version") != "2011-06-15" || r.Form.Get("RoleSessionName") == "" {
		a.t.Errorf("%s", body)
	}
	w.Header().Set("Content-Type", "text/xml")
	if r.Form.Get("RoleArn") != testRole || r.Form.Get("ExternalId") != a.externalID {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, notAssumed)
		return
	}
	a.issued++
	c := aws.Credentials{AccessKeyID: fmt.Sprintf("ASIA%d", a.issued), SecretAccessKey: fmt.Sprintf("secret%d", a.issued), SessionToken: fmt.Sprintf("token%d==", a.issued)}
	a.sessions[c.AccessKeyID] = c
	fmt.Fprintf(w, assumed, c.AccessKeyID, c.SecretAccessKey, c.SessionToken, time.Now().Add(a.validFor).UTC().Format(time.RFC3339))
}

func (a *account) invoke(w http.ResponseWriter, r *http.Request, body []byte) {
	scope := credential.FindStringSubmatch(r.Header.Get("Authorization"))
	if scope == nil {
		a.t.Errorf("Invoke is not signed: %v", r.Header)
		return
	}
	if err := verify(r, body, a.sessions[scope[1]], "lambda"); err != nil {
		a.t.Errorf("Invoke: %v", err)
	}
	a.invoked++
	io.WriteString(w, `null`)
}

var (
	nodeCredentials = aws.Credentials{AccessKeyID: "AKIANODE", SecretAccessKey: "node's secret"}
	credential      = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8}/([a-z0-9-]+)/([a-z0-9]+)/aws4_request), SignedHeaders=([^,]+), Signature=[0-9a-f]{64}$`)
)

// verify signs a request anew, with what its signer should have, and holds the signatures against each other.
func verify(r *http.Request, body []byte, c aws.Credentials, service string) error {
	got := r.Header.Get("Authorization")
	scope := credential.FindStringSubmatch(got)
	if scope == nil || c.AccessKeyID == "" || scope[1] != c.AccessKeyID || scope[3] != "eu-west-1" || scope[4] != service {
		return fmt.Errorf("signed as %q, want the key %q in eu-west-1 for %s", got, c.AccessKeyID, service)
	}
	if token := r.Header.Get("X-Amz-Security-Token"); token != c.SessionToken {
		return fmt.Errorf("the session token is %q, want %q", token, c.SessionToken)
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return err
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), nil)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(scope[5], ";") {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(context.Background(), c, again, hex.EncodeToString(sum[:]), service, "eu-west-1", at); err != nil {
		return err
	}
	if want := again.Header.Get("Authorization"); got != want {
		return fmt.Errorf("signed as\n%s, want\n%s", got, want)
	}
	return nil
}

// open gives the account an endpoint and returns an invoker that knows no other.
func (a *account) open(t *testing.T) *Lambda {
	t.Helper()
	a.t, a.sessions = t, map[string]aws.Credentials{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	l, err := New(t.Context(), Options{Config: &aws.Config{Region: "eu-west-1", BaseEndpoint: &server.URL,
		Credentials: credentials.NewStaticCredentialsProvider(nodeCredentials.AccessKeyID, nodeCredentials.SecretAccessKey, "")}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func roleSubscription(consumer schema.UserID) *schema.Subscription {
	return &schema.Subscription{Consumer: consumer, Target: schema.Target{Function: "arn:aws:lambda:eu-west-1:123456789012:function:f", RoleARN: testRole}}
}

var oneMessage = []schema.Delivery{{Message: schema.Message{ID: 1}, Attempt: 1}}

// TestAssumedRole invokes a function with a role, which is assumed once for the consumer whose it is, and for nobody else.
func TestAssumedRole(t *testing.T) {
	a := &account{externalID: "handfast-42", validFor: time.Hour}
	l := a.open(t)
	for range 3 {
		if got := l.Invoke(t.Context(), roleSubscription(42), oneMessage); got[0].Outcome != schema.Delivered {
			t.Errorf("%+v", got)
		}
	}
	if a.issued != 1 || a.invoked != 3 {
		t.Errorf("the role was assumed %d times for %d invocations", a.issued, a.invoked)
	}
	for range breakerFailures + 1 {
		if got := l.Invoke(t.Context(), roleSubscription(43), oneMessage); got[0].Outcome != schema.Held {
			t.Errorf("another consumer: %+v", got)
		}
	}
	if got := l.Invoke(t.Context(), roleSubscription(42), oneMessage); got[0].Outcome != schema.Delivered || a.invoked != 4 {
		t.Errorf("the consumer, after another one was refused: %+v, %d invocations", got, a.invoked)
	}
}

// TestAssumedRoleExpires assumes a role again when its credentials are about to end.
func TestAssumedRoleExpires(t *testing.T) {
	a := &account{externalID: "handfast-42", validFor: -time.Minute}
	l := a.open(t)
	for range 2 {
		if got := l.Invoke(t.Context(), roleSubscription(42), oneMessage); got[0].Outcome != schema.Delivered {
			t.Errorf("%+v", got)
		}
	}
	if a.issued != 2 {
		t.Errorf("the role was assumed %d times", a.issued)
	}
}
