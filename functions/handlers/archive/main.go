// Command archive is a function that writes each batch of messages it gets as one object of JSON lines: to a bucket of S3 or anything that
// speaks its API, or to a directory. A batch that comes again has the same name and overwrites itself. The same binary runs on AWS Lambda
// and on Handfast:
//
//	CGO_ENABLED=0 go build -o build/bootstrap ./functions/handlers/archive
//	handfast function deploy archive build --env ARCHIVE_BUCKET=b --env AWS_REGION=eu-central-1 --env AWS_ACCESS_KEY_ID=… --env AWS_SECRET_ACCESS_KEY=…
//
// ARCHIVE_BUCKET names the bucket, ARCHIVE_ENDPOINT a server that is not AWS's; ARCHIVE_DIR is a directory instead.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// put writes one object whole.
type put func(ctx context.Context, name string, content []byte) error

func main() {
	p, err := target(context.Background(), os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(func(ctx context.Context, e events.SQSEvent) error { return archive(ctx, e, p) })
}

// target chooses where objects go.
func target(ctx context.Context, env func(string) string) (put, error) {
	if dir := env("ARCHIVE_DIR"); dir != "" {
		return toDirectory(dir), nil
	}
	bucket := env("ARCHIVE_BUCKET")
	if bucket == "" {
		return nil, errors.New("ARCHIVE_BUCKET or ARCHIVE_DIR must say where to write")
	}
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return toBucket(s3.NewFromConfig(c, func(o *s3.Options) {
		if endpoint := env("ARCHIVE_ENDPOINT"); endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = &endpoint, true
		}
	}), bucket), nil
}

func toBucket(client *s3.Client, bucket string) put {
	return func(ctx context.Context, name string, content []byte) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &name, Body: bytes.NewReader(content), ContentType: aws.String("application/x-ndjson")})
		return err
	}
}

func toDirectory(dir string) put {
	return func(_ context.Context, name string, content []byte) error {
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		half := to + ".half"
		if err := os.WriteFile(half, content, 0o644); err != nil {
			return err
		}
		return os.Rename(half, to)
	}
}

// line is what is kept of a message.
type line struct {
	ID         string            `json:"id"`
	SentAt     string            `json:"sent_at"`
	Body       string            `json:"body"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

func archive(ctx context.Context, e events.SQSEvent, p put) error {
	if len(e.Records) == 0 {
		return nil
	}
	var out bytes.Buffer
	encoder, names := json.NewEncoder(&out), sha256.New()
	for i := range e.Records {
		m := &e.Records[i]
		l := line{ID: m.MessageId, SentAt: sentAt(m).Format(time.RFC3339Nano), Body: m.Body, Attributes: map[string]string{}}
		for name, a := range m.MessageAttributes {
			if a.StringValue != nil {
				l.Attributes[name] = *a.StringValue
			}
		}
		if err := encoder.Encode(l); err != nil {
			return err
		}
		fmt.Fprintln(names, m.MessageId)
	}
	first := &e.Records[0]
	name := path.Join(sentAt(first).Format("2006/01/02/15"), first.MessageId+"-"+hex.EncodeToString(names.Sum(nil)[:8])+".jsonl")
	return p(ctx, name, out.Bytes())
}

func sentAt(m *events.SQSMessage) time.Time {
	ms, _ := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64)
	return time.UnixMilli(ms).UTC()
}
