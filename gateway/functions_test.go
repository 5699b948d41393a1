package gateway_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

// handlerVariable makes the test binary a handler of functions.
const handlerVariable = "TEST_HANDLER"

func TestMain(m *testing.M) {
	switch os.Getenv(handlerVariable) {
	case "":
		os.Exit(m.Run())
	case "calls":
		lambda.Start(answerCall)
	case "batches":
		lambda.Start(takeBatch)
	case "url":
		lambda.Start(answerRequest)
	}
}

func answerCall(ctx context.Context, in map[string]any) (any, error) {
	switch in["do"] {
	case "fail":
		return nil, errors.New("as asked")
	case "sleep":
		time.Sleep(2 * time.Second)
	case "fail once":
		file := in["file"].(string)
		if _, err := os.Stat(file); err != nil {
			os.WriteFile(file, nil, 0o600)
			return nil, errors.New("the first time")
		}
	}
	fmt.Println("hello from the handler")
	return in, nil
}

// takeBatch fails what says so, and notes the rest in a file.
func takeBatch(ctx context.Context, e events.SQSEvent) (events.SQSEventResponse, error) {
	var out events.SQSEventResponse
	for _, m := range e.Records {
		if strings.HasPrefix(m.Body, "bad") && m.Attributes["ApproximateReceiveCount"] == "1" {
			out.BatchItemFailures = append(out.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
			continue
		}
		f, err := os.OpenFile(os.Getenv("NOTES"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return out, err
		}
		fmt.Fprintf(f, "%s %s\n", m.Body, m.Attributes["ApproximateReceiveCount"])
		f.Close()
	}
	return out, nil
}

func answerRequest(ctx context.Context, r events.LambdaFunctionURLRequest) (any, error) {
	if r.RawPath == "/plain" {
		return "plain", nil
	}
	if r.RawPath == "/fail" {
		return nil, errors.New("no")
	}
	seen, _ := json.Marshal(r)
	return events.LambdaFunctionURLResponse{StatusCode: 418, Headers: map[string]string{"content-type": "application/x-seen", "X-Mine": "yes", "Connection": "close"},
		Cookies: []string{"a=1", "b=2"}, Body: base64.StdEncoding.EncodeToString(seen), IsBase64Encoded: true}, nil
}

// code is the zip of a function that is this test binary.
func code(t testing.TB) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return zipFiles(t, map[string]string{"bootstrap": "#!/bin/sh\nexec " + self + "\n"})
}

func zipFiles(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, content := range files {
		h := &zip.FileHeader{Name: name}
		h.SetMode(0o755)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(content))
	}
	w.Close()
	return out.Bytes()
}

// deploy makes a function of this test binary.
func (s *server) deploy(p person, name, mode string, settings fields) *answer {
	s.t.Helper()
	env := map[string]string{handlerVariable: mode}
	if more, ok := settings["env"].(map[string]string); ok {
		for k, v := range more {
			env[k] = v
		}
	}
	all := fields{"timeout": 20, "memory": 1024}
	for k, v := range settings {
		all[k] = v
	}
	all["env"] = env
	raw, _ := json.Marshal(all)
	a := s.send(p.token, "POST", "/deploy_function?function_name="+name+"&settings="+url.QueryEscape(string(raw)), code(s.t))
	if a.status != http.StatusOK {
		s.t.Fatalf("deploy: %d %s", a.status, a.body)
	}
	return a
}

func (s *server) invoke(p person, name string, body any, headers ...string) *answer {
	s.t.Helper()
	return s.send(p.token, "POST", "/2015-03-31/functions/"+name+"/invocations", body, headers...)
}

func walkFunctions(s *server, alice, bob person) {
	s.deploy(alice, "walk", "calls", nil)
	s.post(alice.token, "/update_function", fields{"function_name": "walk", "memory": 512, "invokers": []int64{bob.id}, "reserved_concurrency": 5, "async": fields{"max_retries": 1, "max_age": 60}})
	s.post(alice.token, "/rollback_function", fields{"function_name": "walk", "version": 1})
	s.get(alice.token, "/function?function_name=walk")
	s.get(alice.token, "/functions")
	s.get(alice.token, "/function_logs?function_name=walk")
	s.post(alice.token, "/create_access_key", fields{})
	s.post(alice.token, "/delete_function", fields{"function_name": "walk"})
}

func TestFunctionInvoke(t *testing.T) {
	s := start(t)
	alice, bob := s.person("alice"), s.person("bob")
	s.deploy(alice, "f", "calls", fields{"reserved_concurrency": 1})

	a := s.invoke(alice, "f", `{"x":1}`, "X-Amz-Log-Type", "Tail")
	log, _ := base64.StdEncoding.DecodeString(a.header.Get("X-Amz-Log-Result"))
	if a.status != 200 || string(a.body) != `{"x":1}` || a.header.Get("X-Amz-Executed-Version") != "1" || a.header.Get("X-Amz-Function-Error") != "" ||
		!bytes.Contains(log, []byte("hello from the handler")) || a.header.Get("X-Amzn-Requestid") == "" {
		t.Errorf("%d %v %s, log %s", a.status, a.header, a.body, log)
	}
	for _, name := range []string{"f:1", "f:live", "f:$LATEST", "f:%24LATEST", "arn:aws:lambda:us-east-1:000000000000:function:f", "000000000000:function:f:live",
		"arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Af", "f"} {
		if a := s.invoke(alice, name, nil); a.status != 200 || string(a.body) != "{}" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := s.invoke(alice, "f", `{"do":"fail"}`); a.status != 200 || a.header.Get("X-Amz-Function-Error") != "Unhandled" || a.word("errorMessage") != "as asked" {
		t.Errorf("a function's error: %d %v %s", a.status, a.header, a.body)
	}
	if a := s.invoke(alice, "f", `{}`, "X-Amz-Invocation-Type", "DryRun"); a.status != 204 || len(a.body) > 0 {
		t.Errorf("dry run: %d %s", a.status, a.body)
	}
	for _, c := range []struct {
		who     person
		name    string
		body    string
		headers []string
		status  int
		name2   string
	}{
		{alice, "f", `{`, nil, 400, "InvalidRequestContentException"},
		{alice, "f", `{}`, []string{"X-Amz-Invocation-Type", "Later"}, 400, "InvalidParameterValueException"},
		{alice, "f", `{}`, []string{"X-Amz-Log-Type", "All"}, 400, "InvalidParameterValueException"},
		{alice, "f", `{}`, []string{"X-Amz-Client-Context", "!"}, 400, "InvalidParameterValueException"},
		{alice, "f%20g", `{}`, nil, 400, "InvalidParameterValueException"},
		{alice, "nobody", `{}`, nil, 404, "ResourceNotFoundException"},
		{alice, "f:7", `{}`, nil, 404, "ResourceNotFoundException"},
		{bob, "f", `{}`, nil, 404, "ResourceNotFoundException"},
		{person{}, "f", `{}`, nil, 401, "UnrecognizedClientException"},
		{alice, "f", `"` + strings.Repeat("x", 6<<20) + `"`, nil, 413, "RequestTooLargeException"},
		{alice, "f", `"` + strings.Repeat("x", 1<<20) + `"`, []string{"X-Amz-Invocation-Type", "Event"}, 413, "RequestTooLargeException"},
	} {
		a := s.invoke(c.who, c.name, c.body, c.headers...)
		if a.status != c.status || a.header.Get("X-Amzn-Errortype") != c.name2 || a.word("message") == "" {
			t.Errorf("%s %.40s %v: %d %s %s, want %d %s", c.name, c.body, c.headers, a.status, a.header.Get("X-Amzn-Errortype"), clip(a.body), c.status, c.name2)
		}
	}
	s.post(alice.token, "/update_function", fields{"function_name": "f", "reserved_concurrency": 0})
	if a := s.invoke(alice, "f", `{}`); a.status != 429 || a.header.Get("X-Amzn-Errortype") != "TooManyRequestsException" || a.word("Reason") != "ReservedFunctionConcurrentInvocationLimitExceeded" {
		t.Errorf("none reserved: %d %s", a.status, a.body)
	}
	s.post(alice.token, "/update_function", fields{"function_name": "f", "reserved_concurrency": -1, "invokers": []int64{bob.id}})
	if a := s.invoke(bob, "f", `{}`); a.status != 200 {
		t.Errorf("an invoker: %d %s", a.status, a.body)
	}
}

func TestFunctionBadDeploys(t *testing.T) {
	s := start(t)
	alice, bob := s.person("alice"), s.person("bob")
	s.deploy(alice, "f", "calls", nil)
	s.refused(s.send(alice.token, "POST", "/deploy_function?function_name=g", "no zip"), 422, "no zip")
	s.refused(s.send(alice.token, "POST", "/deploy_function?function_name=a%20b", code(t)), 422, "a bad name")
	s.refused(s.send(alice.token, "POST", "/deploy_function?function_name=g&settings=%7B%22x%22%3A1%7D", code(t)), 422, "unknown settings")
	s.refused(s.send(bob.token, "POST", "/deploy_function?function_name=f", code(t)), 409, "somebody else's function")
	s.refused(s.send("", "POST", "/deploy_function?function_name=g", code(t)), 401, "nobody")
	s.refused(s.send(alice.token, "POST", "/deploy_function?function_name=g", make([]byte, 51<<20)), 413, "more than 50 MiB")
	s.refused(s.send("", "POST", "/deploy_function?function_name=g", make([]byte, 9<<20)), 413, "more than 8 MiB from nobody")
	for what, settings := range map[string]fields{"timeout": {"timeout": 901}, "memory": {"memory": 1}, "env": {"env": fields{"AWS_LAMBDA_RUNTIME_API": "x"}}, "instances": {"min_instances": 3, "max_instances": 2},
		"invokers": {"invokers": []int64{999999}}, "url": {"url_auth": "open"}, "retries": {"async": fields{"max_retries": 3}}, "topic": {"async": fields{"on_success_topic_id": 77}}} {
		settings["function_name"] = "f"
		s.refused(s.send(alice.token, "POST", "/update_function", settings), 422, what)
	}
	for _, path := range []string{"/update_function", "/rollback_function", "/delete_function"} {
		body := fields{"function_name": "f"}
		if path == "/rollback_function" {
			body["version"] = 1
		}
		s.refused(s.send(bob.token, "POST", path, body), 404, path)
	}
	s.refused(s.send(alice.token, "POST", "/rollback_function", fields{"function_name": "f", "version": 9}), 404, "a version that is not there")
	s.refused(s.send(bob.token, "GET", "/function?function_name=f", nil), 404, "another's function")
	s.refused(s.send(bob.token, "GET", "/function_logs?function_name=f", nil), 404, "another's log")
}

// eventually waits for what must come to be.
func (s *server) eventually(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func TestFunctionSubscription(t *testing.T) {
	s := start(t)
	alice, bob := s.person("alice"), s.person("bob")
	notes := t.TempDir() + "/notes"
	s.deploy(alice, "worker", "batches", fields{"env": map[string]string{"NOTES": notes}})
	topic := s.topic(bob, "orders", "open")
	target := fields{"type": "function", "function": "worker", "batch_size": 10, "batch_window": 0.05}
	s.refused(s.send(bob.token, "POST", "/subscribe", fields{"topic_id": topic, "target": target}), 404, "a function that its owner does not share")
	s.post(alice.token, "/update_function", fields{"function_name": "worker", "invokers": []int64{bob.id}})
	s.refused(s.send(bob.token, "POST", "/subscribe", fields{"topic_id": topic, "target": target, "ack_deadline": 15}), 422, "an ack deadline below the function's timeout")
	sub := s.post(bob.token, "/subscribe", fields{"topic_id": topic, "target": target, "retry_schedule": []any{0, 0.2}})
	if sub.word("state") != "active" {
		t.Fatalf("%s", sub.body)
	}
	for i := range 20 {
		word := "good"
		if i%5 == 0 {
			word = "bad"
		}
		s.post(bob.token, "/publish_message", fields{"topic_id": topic, "message_content": fmt.Sprintf("%s-%d", word, i)})
	}
	read := func() []string { b, _ := os.ReadFile(notes); return strings.Fields(string(b)) }
	s.eventually("all are taken", func() bool { return len(read()) >= 40 })
	words := map[string]string{}
	for i := 0; i < len(read()); i += 2 {
		if words[read()[i]] != "" {
			t.Errorf("%s was taken twice", read()[i])
		}
		words[read()[i]] = read()[i+1]
	}
	for i := range 20 {
		name, attempt := fmt.Sprintf("good-%d", i), "1"
		if i%5 == 0 {
			name, attempt = fmt.Sprintf("bad-%d", i), "2"
		}
		if words[name] != attempt {
			t.Errorf("%s was taken at attempt %q, want %s", name, words[name], attempt)
		}
	}
}

func TestFunctionEvents(t *testing.T) {
	s := start(t)
	alice := s.person("alice")
	won, lost, dead := s.topic(alice, "won", "closed"), s.topic(alice, "lost", "closed"), s.topic(alice, "dead", "closed")
	for _, topic := range []int64{won, lost, dead} {
		s.post(alice.token, "/subscribe", fields{"topic_id": topic})
	}
	s.deploy(alice, "f", "calls", fields{"async": fields{"max_retries": 0, "on_success_topic_id": won, "on_failure_topic_id": lost, "dead_letter_topic_id": dead}})
	accepted := s.invoke(alice, "f", `{"x":1}`, "X-Amz-Invocation-Type", "Event")
	if accepted.status != 202 || len(accepted.body) > 0 {
		t.Fatalf("%d %s", accepted.status, accepted.body)
	}
	record := func(topic int64) (r map[string]any) {
		a := s.get(alice.token, fmt.Sprintf("/message?topic_id=%d&wait=20", topic))
		json.Unmarshal([]byte(a.word("message_content")), &r)
		return r
	}
	r := record(won)
	rc, _ := r["requestContext"].(map[string]any)
	if rc["condition"] != "Success" || rc["requestId"] != accepted.header.Get("X-Amzn-Requestid") || fmt.Sprint(r["requestPayload"]) != "map[x:1]" || fmt.Sprint(r["responsePayload"]) != "map[x:1]" {
		t.Errorf("record of a success: %v", r)
	}
	s.invoke(alice, "f", `{"do":"fail"}`, "X-Amz-Invocation-Type", "Event")
	r = record(lost)
	rc, _ = r["requestContext"].(map[string]any)
	if answer, _ := r["responseContext"].(map[string]any); rc["condition"] != "RetriesExhausted" || rc["approximateInvokeCount"] != 1.0 || answer["functionError"] != "Unhandled" {
		t.Errorf("record of a failure: %v", r)
	}
	if a := s.get(alice.token, fmt.Sprintf("/message?topic_id=%d&wait=20", dead)); a.word("message_content") != `{"do":"fail"}` {
		t.Errorf("dead letter: %s", a.body)
	}
	for _, topic := range s.get(alice.token, "/topics").json["topics"].([]any) {
		if name := fmt.Sprint(topic.(map[string]any)["topic_name"]); strings.HasPrefix(name, "function") {
			t.Errorf("the listing shows %s", name)
		}
	}
}

func TestFunctionURL(t *testing.T) {
	s := start(t)
	alice, bob := s.person("alice"), s.person("bob")
	s.deploy(alice, "web", "url", nil)
	s.refused(s.send("", "GET", "/functions/web/url/x", nil), 404, "a function without a URL")
	s.post(alice.token, "/update_function", fields{"function_name": "web", "url_auth": "none"})
	a := s.send("", "PUT", "/functions/web/url/some%20path/x?a=1&b=2&a=3", "\xff\xfe", "Cookie", "k=v; l=w", "X-Twice", "1", "Content-Type", "application/octet-stream")
	var seen events.LambdaFunctionURLRequest
	if err := json.Unmarshal(a.body, &seen); err != nil || a.status != 418 || a.header.Get("Content-Type") != "application/x-seen" || a.header.Get("X-Mine") != "yes" || len(a.header.Values("Set-Cookie")) != 2 {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	body, _ := base64.StdEncoding.DecodeString(seen.Body)
	if seen.Version != "2.0" || seen.RawPath != "/some%20path/x" || seen.RawQueryString != "a=1&b=2&a=3" || seen.QueryStringParameters["a"] != "1,3" || len(seen.Cookies) != 2 ||
		seen.Headers["x-twice"] != "1" || seen.RequestContext.HTTP.Method != "PUT" || !seen.IsBase64Encoded || string(body) != "\xff\xfe" || seen.RequestContext.HTTP.SourceIP == "" {
		t.Errorf("the handler saw %+v", seen)
	}
	if a := s.send("", "GET", "/functions/web/url/plain", nil); a.status != 200 || string(a.body) != `"plain"` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("a plain answer: %d %s", a.status, a.body)
	}
	if a := s.send("", "HEAD", "/functions/web/url/plain", nil); a.status != 200 || len(a.body) != 0 {
		t.Errorf("a HEAD: %d %s", a.status, a.body)
	}
	s.refused(s.send("", "GET", "/functions/web/url/fail", nil), 502, "a function that fails")
	s.post(alice.token, "/update_function", fields{"function_name": "web", "url_auth": "token"})
	s.refused(s.send("", "GET", "/functions/web/url/", nil), 401, "without a token")
	s.refused(s.send(bob.token, "GET", "/functions/web/url/", nil), 404, "with another's token")
	a = s.send(alice.token, "GET", "/functions/web/url/", nil)
	if json.Unmarshal(a.body, &seen); a.status != 418 || bytes.Contains(a.body, []byte(alice.token)) {
		t.Errorf("with a token: %d %s", a.status, a.body)
	}
}
