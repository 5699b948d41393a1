// Command web is a function that answers at its function URL: a small service that shortens what it is sent to its SHA-256, and says so in
// JSON or plain text. The same binary runs on AWS Lambda and on Handfast:
//
//	CGO_ENABLED=0 go build -o build/bootstrap ./functions/handlers/web
//	handfast function deploy web build --url-auth none
//	curl http://127.0.0.1:8080/functions/web/url/digest -d hello
package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() { lambda.Start(handle) }

func handle(_ context.Context, r events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
	if r.RawPath != "/digest" {
		return answer(r, http.StatusNotFound, "error", "there is /digest alone"), nil
	}
	if r.RequestContext.HTTP.Method != http.MethodPost {
		return answer(r, http.StatusMethodNotAllowed, "error", "POST what to digest"), nil
	}
	body := []byte(r.Body)
	if r.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(r.Body); err != nil {
			return answer(r, http.StatusBadRequest, "error", "the body is not in base64"), nil
		}
	}
	sum := sha256.Sum256(body)
	return answer(r, http.StatusOK, "sha256", hex.EncodeToString(sum[:])), nil
}

// answer says one thing, as plain text to those who ask for it and else as JSON.
func answer(r events.LambdaFunctionURLRequest, status int, name, value string) events.LambdaFunctionURLResponse {
	if strings.HasPrefix(r.Headers["accept"], "text/plain") {
		return events.LambdaFunctionURLResponse{StatusCode: status, Headers: map[string]string{"content-type": "text/plain; charset=utf-8"}, Body: value + "\n"}
	}
	body, _ := json.Marshal(map[string]string{name: value}) // two strings
	return events.LambdaFunctionURLResponse{StatusCode: status, Headers: map[string]string{"content-type": "application/json"}, Body: string(body)}
}
