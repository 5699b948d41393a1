package gateway_test

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"

	"github.com/handfast-mq/handfast/internal/node"
)

// accessKey is the key pair of a person's token.
func (s *server) accessKey(p person) (id, secret string) {
	s.t.Helper()
	a := s.post(p.token, "/create_access_key", fields{})
	return a.word("access_key_id"), a.word("secret_access_key")
}

func (s *server) sdk(id, secret string) *lambda.Client {
	return lambda.NewFromConfig(aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(s.url), RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")})
}

// TestGoSDK calls a function with AWS's own client for Go, which knows no more than the endpoint and a key pair.
func TestGoSDK(t *testing.T) {
	s := start(t)
	alice := s.person("alice")
	s.deploy(alice, "f", "calls", nil)
	id, secret := s.accessKey(alice)
	client, ctx := s.sdk(id, secret), t.Context()
	for _, name := range []string{"f", "f:live", "arn:aws:lambda:eu-central-1:000000000000:function:f", "f:$LATEST"} {
		out, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &name, Payload: []byte(`{"a": "ü b"}`), LogType: types.LogTypeTail, ClientContext: aws.String(base64.StdEncoding.EncodeToString([]byte(`{"a":1}`)))})
		if err != nil || out.StatusCode != 200 || string(out.Payload) != `{"a":"ü b"}` || out.FunctionError != nil || aws.ToString(out.LogResult) == "" || aws.ToString(out.ExecutedVersion) == "" {
			t.Fatalf("%s: %v %+v", name, err, out)
		}
	}
	out, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String("f"), Qualifier: aws.String("1"), Payload: []byte(`{"do":"fail"}`)})
	if err != nil || aws.ToString(out.FunctionError) != "Unhandled" || !strings.Contains(string(out.Payload), "as asked") {
		t.Errorf("a function's error: %v %+v", err, out)
	}
	for kind, status := range map[types.InvocationType]int32{types.InvocationTypeEvent: 202, types.InvocationTypeDryRun: 204} {
		if out, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String("f"), InvocationType: kind, Payload: []byte(`{}`)}); err != nil || out.StatusCode != status {
			t.Errorf("%s: %v", kind, err)
		}
	}
	var missing *types.ResourceNotFoundException
	if _, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String("none")}); !errors.As(err, &missing) || missing.ErrorMessage() == "" {
		t.Errorf("no such function: %v", err)
	}
	var content *types.InvalidRequestContentException
	if _, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String("f"), Payload: []byte(`{`)}); !errors.As(err, &content) {
		t.Errorf("no JSON: %v", err)
	}
	s.post(alice.token, "/update_function", fields{"function_name": "f", "reserved_concurrency": 0})
	var busy *types.TooManyRequestsException
	if _, err := client.Invoke(ctx, &lambda.InvokeInput{FunctionName: aws.String("f")}); !errors.As(err, &busy) || busy.Reason != types.ThrottleReasonReservedFunctionConcurrentInvocationLimitExceeded {
		t.Errorf("throttled: %v", err)
	}
}

func TestBadSignatures(t *testing.T) {
	s := start(t)
	alice := s.person("alice")
	s.deploy(alice, "f", "calls", nil)
	id, secret := s.accessKey(alice)
	refused := func(what string, client *lambda.Client) {
		t.Helper()
		var api smithy.APIError
		_, err := client.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String("f"), Payload: []byte(`{}`)})
		if !errors.As(err, &api) || api.ErrorCode() != "UnrecognizedClientException" {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another secret", s.sdk(id, secret+"x"))
	refused("another key", s.sdk("HF1", secret))
	refused("no key of ours", s.sdk("AKIDEXAMPLE", secret))
	stamp := time.Now().UTC().Format("20060102T150405Z")
	day := stamp[:8]
	auth := func(date, scope, signed, sig string) string {
		return "AWS4-HMAC-SHA256 Credential=" + id + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + sig
	}
	for what, h := range map[string][]string{
		"old":              {"Authorization", auth("", "20200101/eu/lambda/aws4_request", "host;x-amz-date", "00"), "X-Amz-Date", "20200101T000000Z"},
		"another day":      {"Authorization", auth("", "20200101/eu/lambda/aws4_request", "host;x-amz-date", "00"), "X-Amz-Date", stamp},
		"another service":  {"Authorization", auth("", day+"/eu/s3/aws4_request", "host;x-amz-date", "00"), "X-Amz-Date", stamp},
		"no date":          {"Authorization", auth("", day+"/eu/lambda/aws4_request", "host;x-amz-date", "00")},
		"date not signed":  {"Authorization", auth("", day+"/eu/lambda/aws4_request", "host", "00"), "X-Amz-Date", stamp},
		"no signature":     {"Authorization", "AWS4-HMAC-SHA256 Credential=" + id + "/" + day + "/eu/lambda/aws4_request", "X-Amz-Date", stamp},
		"nonsense":         {"Authorization", "AWS4-HMAC-SHA256 ,,,=", "X-Amz-Date", stamp},
		"wrong":            {"Authorization", auth("", day+"/eu/lambda/aws4_request", "host;x-amz-date", strings.Repeat("0", 64)), "X-Amz-Date", stamp},
		"session token":    {"Authorization", auth("", day+"/eu/lambda/aws4_request", "host;x-amz-date", "00"), "X-Amz-Date", stamp, "X-Amz-Security-Token", "x"},
		"hash of the body": {"Authorization", auth("", day+"/eu/lambda/aws4_request", "host;x-amz-date", "00"), "X-Amz-Date", stamp, "X-Amz-Content-Sha256", "x"},
	} {
		if a := s.invoke(person{}, "f", `{}`, h...); a.status != 401 || a.header.Get("X-Amzn-Errortype") != "UnrecognizedClientException" {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	if _, err := s.sdk(id, secret).Invoke(t.Context(), &lambda.InvokeInput{FunctionName: aws.String("f")}); err != nil {
		t.Errorf("the right key: %v", err)
	}
	s.post(alice.token, "/rotate_token", fields{})
	refused("a key whose token ended", s.sdk(id, secret))
}

// TestLambdaTarget delivers by the invoker for AWS Lambda to this node's own Invoke API.
func TestLambdaTarget(t *testing.T) {
	inner := start(t)
	alice := inner.person("alice")
	notes := filepath.Join(t.TempDir(), "notes")
	inner.deploy(alice, "worker", "batches", fields{"env": map[string]string{"NOTES": notes}})
	id, secret := inner.accessKey(alice)
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_REGION", "eu-central-1")
	outer := start(t, func(c *node.Config) { c.Lambda, c.LambdaEndpoint = true, inner.url })
	bob := outer.person("bob")
	topic := outer.topic(bob, "orders", "open")
	outer.refused(outer.send(bob.token, "POST", "/subscribe", fields{"topic_id": topic, "target": fields{"type": "lambda", "function": "arn:aws:s3:::x"}}), 422, "an ARN of another service")
	outer.post(bob.token, "/subscribe", fields{"topic_id": topic, "target": fields{"type": "lambda", "function": "arn:aws:lambda:eu-central-1:000000000000:function:worker", "batch_size": 10},
		"retry_schedule": []any{0, 0.2}})
	outer.post(bob.token, "/publish_message", fields{"topic_id": topic, "message_content": "good"})
	outer.post(bob.token, "/publish_message", fields{"topic_id": topic, "message_content": "bad"})
	outer.eventually("both are taken", func() bool {
		b, _ := os.ReadFile(notes)
		return strings.Contains(string(b), "good 1\n") && strings.Contains(string(b), "bad 2\n")
	})
}

// cache is where what tests install stays.
func cache(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages")
	}
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "handfast-test", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func install(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

const javascript = `
const { LambdaClient, InvokeCommand } = require("@aws-sdk/client-lambda");
(async () => {
  const client = new LambdaClient({ maxAttempts: 1 });
  const call = (input) => client.send(new InvokeCommand({ FunctionName: "f", ...input }));
  const text = (out) => Buffer.from(out.Payload).toString();
  const one = await call({ Payload: JSON.stringify({ a: "ü" }), LogType: "Tail" });
  const two = await call({ FunctionName: "f:live", Payload: JSON.stringify({ do: "fail" }) });
  const three = await call({ InvocationType: "Event", Payload: "{}" });
  const four = await call({ FunctionName: "none" }).catch((e) => e);
  console.log(JSON.stringify([one.StatusCode, text(one), Buffer.from(one.LogResult, "base64").includes("hello"), two.FunctionError, three.StatusCode, four.name]));
})();
`

// TestJavaScriptSDK calls a function with AWS's own client for JavaScript.
func TestJavaScriptSDK(t *testing.T) {
	dir := cache(t, "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@aws-sdk/client-lambda/package.json")); err != nil {
		install(t, dir, "npm", "install", "--no-audit", "--no-fund", "--prefix", ".", "@aws-sdk/client-lambda@3")
	}
	s := start(t)
	alice := s.person("alice")
	s.deploy(alice, "f", "calls", nil)
	id, secret := s.accessKey(alice)
	cmd := exec.Command("node", "-e", javascript)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL="+s.url, "AWS_ACCESS_KEY_ID="+id, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_REGION=us-east-1", "NO_PROXY=*", "no_proxy=*")
	out, err := cmd.Output()
	if want := `[200,"{\"a\":\"ü\"}",true,"Unhandled",202,"ResourceNotFoundException"]`; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%v %s, want %s", err, out, want)
	}
}

// TestAWSCLI calls a function with AWS's command line.
func TestAWSCLI(t *testing.T) {
	dir := cache(t, "awscli")
	aws := filepath.Join(dir, "bin/aws")
	if _, err := os.Stat(aws); err != nil {
		install(t, dir, "python3", "-m", "venv", dir)
		install(t, dir, filepath.Join(dir, "bin/python"), "-m", "pip", "install", "-q", "awscli==1.*")
	}
	s := start(t)
	alice := s.person("alice")
	s.deploy(alice, "f", "calls", nil)
	id, secret := s.accessKey(alice)
	answer := filepath.Join(t.TempDir(), "answer")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(aws, append([]string{"lambda", "invoke", "--endpoint-url", s.url, "--function-name", "f"}, args...)...)
		cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+id, "AWS_SECRET_ACCESS_KEY="+secret, "AWS_DEFAULT_REGION=eu-west-1", "NO_PROXY=*", "no_proxy=*")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		return string(out)
	}
	out := run("--payload", `{"a":"b c"}`, "--log-type", "Tail", "--qualifier", "live", answer)
	if got, _ := os.ReadFile(answer); string(got) != `{"a":"b c"}` || !strings.Contains(out, "LogResult") || !strings.Contains(out, `"ExecutedVersion": "1"`) {
		t.Errorf("%s: %s", out, got)
	}
	if out := run("--payload", `{"do":"fail"}`, answer); !strings.Contains(out, "Unhandled") {
		t.Errorf("a function's error: %s", out)
	}
	if out := run("--invocation-type", "Event", answer); !strings.Contains(out, "202") {
		t.Errorf("an event: %s", out)
	}
}
