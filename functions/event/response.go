package event

import (
	"bytes"
	"encoding/json"

	"github.com/handfast-mq/handfast/schema"
)

// Judge reads a function's answer to a batch, by the rules of ReportBatchItemFailures. No answer, null, an object without failures: all is
// well. A list of identifiers: those failed. Anything else, and an identifier that is empty, null, misnamed or not of the batch: all failed.
// Of a key of an ordered subscription the first failure and all after it fail.
func Judge(answer []byte, batch []schema.Delivery, ordered bool) []schema.Result {
	results := make([]schema.Result, len(batch))
	failed, words := failures(answer, batch)
	broken := map[string]bool{}
	for i := range batch {
		key := batch[i].Key
		switch {
		case words != "":
			results[i] = failure(words, answer)
		case failed[identifier(&batch[i])]:
			results[i] = failure("the function reported this message as failed", nil)
			broken[key] = true
		case ordered && key != "" && broken[key]:
			results[i] = failure("an earlier message of the same key failed", nil)
		default:
			results[i] = schema.Result{Outcome: schema.Delivered, Status: 200}
		}
	}
	return results
}

func failure(words string, answer []byte) schema.Result {
	return schema.Result{Outcome: schema.Failed, Error: words, Status: 200, Response: bytes.Clone(answer[:min(len(answer), schema.ResponseBytesMax)])}
}

// failures returns the identifiers that an answer names, or why it cannot be understood.
func failures(answer []byte, batch []schema.Delivery) (failed map[string]bool, words string) {
	const malformed = "the function's answer is not a batch response"
	if len(bytes.TrimSpace(answer)) == 0 {
		return nil, ""
	}
	var response *struct {
		Failures []*struct {
			ID *string `json:"itemIdentifier"`
		} `json:"batchItemFailures"`
	}
	if json.Unmarshal(answer, &response) != nil {
		return nil, malformed
	}
	if response == nil {
		return nil, ""
	}
	known := make(map[string]bool, len(batch))
	for i := range batch {
		known[identifier(&batch[i])] = true
	}
	failed = map[string]bool{}
	for _, f := range response.Failures {
		switch {
		case f == nil || f.ID == nil || *f.ID == "":
			return nil, malformed + ": an itemIdentifier is missing or empty"
		case !known[*f.ID]:
			return nil, malformed + ": an itemIdentifier is not of the batch"
		}
		failed[*f.ID] = true
	}
	return failed, ""
}
