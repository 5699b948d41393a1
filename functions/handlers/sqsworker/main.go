// Command sqsworker is a function that takes batches of messages in the shape of Amazon SQS and reports which of them failed. It counts the
// orders that it gets, and refuses what is no order. The same binary runs on AWS Lambda and on Handfast:
//
//	CGO_ENABLED=0 go build -o build/bootstrap ./functions/handlers/sqsworker
//	handfast function deploy worker build
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

// order is what a message must hold.
type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"` // in cents
}

func main() { lambda.Start(handle) }

// handle works on each message by itself, so that one that fails does not bring the others back. Of a message group (an ordering key), what
// follows on a failure is left alone and reported with it.
func handle(ctx context.Context, e events.SQSEvent) (events.SQSEventResponse, error) {
	var failed events.SQSEventResponse
	broken := map[string]bool{}
	for i := range e.Records {
		m := &e.Records[i]
		group := m.Attributes["MessageGroupId"]
		err := errors.New("an earlier message of the group failed")
		if group == "" || !broken[group] {
			err = take(ctx, m)
		}
		if err != nil {
			slog.Error("a message failed", "message", m.MessageId, "attempt", m.Attributes["ApproximateReceiveCount"], "err", err)
			broken[group] = group != ""
			failed.BatchItemFailures = append(failed.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		}
	}
	return failed, nil
}

func take(_ context.Context, m *events.SQSMessage) error {
	var o order
	if err := json.Unmarshal([]byte(m.Body), &o); err != nil {
		return err
	}
	if o.ID == "" || o.Amount <= 0 {
		return errors.New("an order has an id and an amount above 0")
	}
	slog.Info("order taken", "id", o.ID, "amount", o.Amount)
	return nil
}
