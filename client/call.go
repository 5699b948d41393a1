package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/handfast-mq/handfast/schema"
)

// call is one call of the API.
type call struct {
	method, path string
	query        url.Values
	body         any           // nil = none; becomes JSON
	raw          []byte        // a body as it is, where body is nil
	again        bool          // doing it twice is as good as once
	wait         time.Duration // that the server may take beside its work
}

func get(path string, query url.Values) call {
	return call{method: http.MethodGet, path: path, query: query, again: true}
}

func post(path string, body any) call { return call{method: http.MethodPost, path: path, body: body} }

// repeatable marks a call that can be made again when nobody knows whether it was done.
func (k call) repeatable() call {
	k.again = true
	return k
}

// waitMax bounds how long a call waits because the server asked it to.
const waitMax = 30 * time.Second

// do makes a call and decodes the answer into out. It is made again, with growing pauses or as the server advises, when the server was
// busy or away and did nothing, or when nothing is known and the call is repeatable.
func (c *Client) do(ctx context.Context, k call, out any) error {
	body := k.raw
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return schema.WrapError(schema.Invalid, err, "the request cannot be written as JSON: %v", err)
		}
	}
	pause := newPause()
	for try := 0; ; try++ {
		err := c.once(ctx, k, body, out)
		if err == nil || try >= c.retries || ctx.Err() != nil || !worthAnother(err, k.again) {
			return err
		}
		d := pause.NextBackOff()
		var e *Error
		if asError(err, &e) {
			d = max(d, min(e.RetryAfter, waitMax))
		}
		if wait(ctx, d) != nil {
			return err
		}
	}
}

func newPause() *backoff.ExponentialBackOff {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, 5*time.Second
	return pause
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// worthAnother tells whether what failed may be done again; repeatable: also when it may have been done.
func worthAnother(err error, repeatable bool) bool {
	switch schema.KindOf(err) {
	case schema.Busy, schema.Unavailable, schema.NotOwner: // nothing was done
		return true
	case schema.Unknown:
		return repeatable
	}
	return false
}

// once makes one request. Errors of the connection have the kind Unknown, since the request may have arrived, unless there was no connection.
func (c *Client) once(ctx context.Context, k call, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+max(k.wait, 0))
	defer cancel()
	u := *c.base
	u.Path += k.path
	u.RawQuery = k.query.Encode()
	r, err := http.NewRequestWithContext(ctx, k.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if k.body != nil {
		r.Header.Set("Content-Type", "application/json")
	} else if k.raw != nil {
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return schema.WrapError(kindOfFailure(err), causeOf(err), "no answer from %s", c.base.Host)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax+1))
	switch {
	case err != nil:
		return schema.WrapError(schema.Unknown, err, "the answer of %s broke off", c.base.Host)
	case len(answer) > answerBytesMax:
		return schema.Errorf(schema.Internal, "the answer of %s has more than %d bytes", c.base.Host, answerBytesMax)
	case resp.StatusCode != http.StatusOK:
		return errorOf(resp, answer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return schema.WrapError(schema.Internal, err, "%s did not answer as Handfast does", c.base.Host)
	}
	return nil
}

// query builds the parameters of a GET; 0 and "" are left out.
type query struct{ url.Values }

func newQuery() query { return query{url.Values{}} }

func (q query) text(name, value string) query {
	if value != "" {
		q.Set(name, value)
	}
	return q
}

func (q query) seconds(name string, d time.Duration) query {
	if d != 0 {
		q.Set(name, strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
	}
	return q
}

func number[T ~int | ~int64](q query, name string, n T) query {
	if n != 0 {
		q.Set(name, strconv.FormatInt(int64(n), 10))
	}
	return q
}

// Page is one page of a listing: what comes after an id, at most so many.
type Page struct {
	After int64
	Limit int // 0 = 100
}

func (p Page) into(q query) query { return number(number(q, "after", p.After), "limit", p.Limit) }
