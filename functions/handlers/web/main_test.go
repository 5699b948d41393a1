package main

import (
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

func TestHandle(t *testing.T) {
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for _, c := range []struct {
		method, path, body, accept string
		base64                     bool
		status                     int
		want                       string
	}{
		{"POST", "/digest", "hello", "", false, 200, `{"sha256":"` + hello + `"}`},
		{"POST", "/digest", "aGVsbG8=", "text/plain", true, 200, hello + "\n"},
		{"POST", "/digest", "!", "", true, 400, `{"error":"the body is not in base64"}`},
		{"GET", "/digest", "", "", false, 405, `{"error":"POST what to digest"}`},
		{"GET", "/", "", "text/plain", false, 404, "there is /digest alone\n"},
	} {
		r := events.LambdaFunctionURLRequest{RawPath: c.path, Body: c.body, IsBase64Encoded: c.base64, Headers: map[string]string{"accept": c.accept}}
		r.RequestContext.HTTP.Method = c.method
		got, err := handle(t.Context(), r)
		if err != nil || got.StatusCode != c.status || got.Body != c.want {
			t.Errorf("%s %s: %v %d %q, want %d %q", c.method, c.path, err, got.StatusCode, got.Body, c.status, c.want)
		}
	}
}
