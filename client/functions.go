package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// Function is a handler that the cluster hosts.
type Function struct {
	ID           schema.FunctionID `json:"function_id"`
	Name         string            `json:"function_name"`
	ARN          string            `json:"function_arn"`
	Owner        schema.UserID     `json:"owner_id"`
	Live         int               `json:"live"` // number of the version in use
	Versions     []FunctionVersion `json:"versions"`
	MinInstances int               `json:"min_instances"`
	MaxInstances int               `json:"max_instances"`
	Reserved     *int              `json:"reserved_concurrency,omitempty"`
	IdleStop     Seconds           `json:"idle_stop"`
	Invokers     []schema.UserID   `json:"invokers"`
	Async        FunctionAsync     `json:"async"`
	URLAuth      string            `json:"url_auth"`
	CreatedAt    time.Time         `json:"created_at"`
	UpdatedAt    time.Time         `json:"updated_at"`
}

// FunctionVersion is code with what it runs under.
type FunctionVersion struct {
	Number    int               `json:"version"`
	SHA256    string            `json:"sha256"`
	Size      int64             `json:"size"`
	Handler   string            `json:"handler,omitempty"`
	Timeout   Seconds           `json:"timeout"`
	Memory    int               `json:"memory"` // MiB
	Env       map[string]string `json:"env,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
}

// FunctionAsync says what becomes of invocations that nobody waits for; nil = unchanged.
type FunctionAsync struct {
	MaxRetries *int            `json:"max_retries,omitempty"`
	MaxAge     *Seconds        `json:"max_age,omitempty"`
	OnSuccess  *schema.TopicID `json:"on_success_topic_id,omitempty"`
	OnFailure  *schema.TopicID `json:"on_failure_topic_id,omitempty"`
	DeadLetter *schema.TopicID `json:"dead_letter_topic_id,omitempty"`
}

// FunctionSettings says what to change of a function; nil = nothing.
type FunctionSettings struct {
	Handler      *string            `json:"handler,omitempty"`
	Timeout      *Seconds           `json:"timeout,omitempty"`
	Memory       *int               `json:"memory,omitempty"`
	Env          *map[string]string `json:"env,omitempty"`
	MinInstances *int               `json:"min_instances,omitempty"`
	MaxInstances *int               `json:"max_instances,omitempty"`
	Reserved     *int               `json:"reserved_concurrency,omitempty"` // below 0 = no bound
	IdleStop     *Seconds           `json:"idle_stop,omitempty"`
	Invokers     *[]schema.UserID   `json:"invokers,omitempty"`
	Async        *FunctionAsync     `json:"async,omitempty"`
	URLAuth      *string            `json:"url_auth,omitempty"`
}

// AccessKey is the key pair that goes with a token, for clients that sign as for AWS.
type AccessKey struct {
	ID        string    `json:"access_key_id"`
	Secret    string    `json:"secret_access_key"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero = never
}

// deployWait is what uploading and checking code may take beside a call's own time.
const deployWait = 5 * time.Minute

// DeployFunction makes a function of a zip, or its next version, which is live when this returns.
func (c *Client) DeployFunction(ctx context.Context, name string, zip []byte, settings FunctionSettings) (f Function, err error) {
	raw, err := json.Marshal(settings)
	if err != nil {
		return f, schema.WrapError(schema.Invalid, err, "the settings cannot be written as JSON")
	}
	k := call{method: http.MethodPost, path: "/deploy_function", query: newQuery().text("function_name", name).text("settings", string(raw)).Values, raw: zip, wait: deployWait}
	err = c.do(ctx, k.repeatable(), &f)
	return f, err
}

// UpdateFunction changes a function's settings.
func (c *Client) UpdateFunction(ctx context.Context, name string, settings FunctionSettings) (f Function, err error) {
	err = c.do(ctx, post("/update_function", struct {
		Name string `json:"function_name"`
		FunctionSettings
	}{name, settings}).repeatable(), &f)
	return f, err
}

// RollbackFunction makes another version the live one.
func (c *Client) RollbackFunction(ctx context.Context, name string, version int) (f Function, err error) {
	err = c.do(ctx, post("/rollback_function", struct {
		Name    string `json:"function_name"`
		Version int    `json:"version"`
	}{name, version}).repeatable(), &f)
	return f, err
}

// DeleteFunction deletes a function with its versions and pending events.
func (c *Client) DeleteFunction(ctx context.Context, name string) error {
	return c.do(ctx, post("/delete_function", struct {
		Name string `json:"function_name"`
	}{name}), nil)
}

// Function shows a function.
func (c *Client) Function(ctx context.Context, name string) (f Function, err error) {
	err = c.do(ctx, get("/function", newQuery().text("function_name", name).Values), &f)
	return f, err
}

// Functions lists the caller's functions after a name, up to limit (0 = 100).
func (c *Client) Functions(ctx context.Context, after string, limit int) ([]Function, error) {
	var out struct {
		Functions []Function `json:"functions"`
	}
	err := c.do(ctx, get("/functions", number(newQuery().text("after", after), "limit", limit).Values), &out)
	return out.Functions, err
}

// FunctionLogs shows what a function wrote from a place on, and the next place. It waits up to wait, in whole seconds, for more.
func (c *Client) FunctionLogs(ctx context.Context, name string, after int64, wait time.Duration) (log string, next int64, err error) {
	var out struct {
		Log  string `json:"log"`
		Next int64  `json:"next"`
	}
	k := get("/function_logs", number(newQuery().text("function_name", name), "after", after).seconds("wait", wait.Truncate(time.Second)).Values)
	k.wait = wait
	err = c.do(ctx, k, &out)
	return out.Log, out.Next, err
}

// CreateAccessKey shows the access key of the client's token.
func (c *Client) CreateAccessKey(ctx context.Context) (key AccessKey, err error) {
	err = c.do(ctx, post("/create_access_key", struct{}{}).repeatable(), &key)
	return key, err
}

// Invoked is how an invocation ended.
type Invoked struct {
	Payload       json.RawMessage
	FunctionError string // "" = success; else Payload is the error
	Version       string
	Log           []byte // the end of what was logged
	RequestID     string
}

// Invoke calls a function (name, or name:qualifier) with a JSON payload and waits for its answer. With event it only has the invocation
// accepted, durably. It is never made twice.
func (c *Client) Invoke(ctx context.Context, name string, payload []byte, event bool) (*Invoked, error) {
	u := *c.base
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String()+"/2015-03-31/functions/"+url.PathEscape(name)+"/invocations", bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("X-Amz-Log-Type", "Tail")
	if event {
		r.Header.Set("X-Amz-Invocation-Type", "Event")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, schema.WrapError(kindOfFailure(err), causeOf(err), "no answer from %s", c.base.Host)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	if err != nil {
		return nil, schema.WrapError(schema.Unknown, err, "the answer of %s broke off", c.base.Host)
	}
	if resp.StatusCode >= 300 {
		return nil, errorOf(resp, answer)
	}
	log, _ := base64.StdEncoding.DecodeString(resp.Header.Get("X-Amz-Log-Result")) // none is as good
	return &Invoked{answer, resp.Header.Get("X-Amz-Function-Error"), resp.Header.Get("X-Amz-Executed-Version"), log, resp.Header.Get("X-Amzn-Requestid")}, nil
}
