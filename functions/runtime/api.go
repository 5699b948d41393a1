package runtime

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"

	"github.com/handfast-mq/handfast/schema"
)

// The paths of the Lambda Runtime API, https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
const (
	runtimePath    = "/2018-06-01/runtime/"
	invocationPath = runtimePath + "invocation/"
)

const (
	errorBytesMax = 256 << 10 // of an error document
	// drainBytesMax bounds what is still read of an answer that is too large, so that the runtime hears why.
	drainBytesMax = 64 << 20
)

var discardLog = log.New(io.Discard, "", 0)

// ServeHTTP is the Runtime API of one instance.
func (i *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, method := r.URL.Path, r.Method
	switch {
	case path == invocationPath+"next" && method == http.MethodGet:
		i.next(w, r)
	case path == runtimePath+"init/error" && method == http.MethodPost:
		i.failInit(w, r)
	case strings.HasPrefix(path, invocationPath) && method == http.MethodPost:
		id, what, _ := strings.Cut(strings.TrimPrefix(path, invocationPath), "/")
		switch what {
		case "response":
			i.takeResponse(w, r, id)
		case "error":
			i.takeError(w, r, id)
		default:
			refuse(w, http.StatusNotFound, "InvalidPath", "there is no such path")
		}
	default:
		refuse(w, http.StatusNotFound, "InvalidPath", "there is no such path, or it does not take this method")
	}
}

func refuse(w http.ResponseWriter, status int, kind, words string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(errorDocument{kind, words})
}

func accept(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	io.WriteString(w, `{"status":"OK"}`+"\n")
}

// next hands the runtime its next invocation, whenever that comes. Asking is what finishes the one before.
func (i *instance) next(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	if i.asking || i.current != nil && !i.current.answered {
		i.mu.Unlock()
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "an instance has one invocation at a time, and this one has not been answered")
		return
	}
	i.asking = true
	if i.current != nil {
		i.current.timer.Stop()
		i.current = nil
	}
	i.initTimer.Stop()
	i.mu.Unlock()
	i.pool.release(i)
	select {
	case j := <-i.jobs:
		i.mu.Lock()
		i.asking, j.taken = false, true
		i.mu.Unlock()
		i.handOut(w, j)
	case <-r.Context().Done():
		i.kill(killedLost)
	case <-i.dead:
	}
}

func (i *instance) handOut(w http.ResponseWriter, j *job) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(j.call.Payload)))
	h.Set("Lambda-Runtime-Aws-Request-Id", j.call.RequestID)
	h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(j.deadline.UnixMilli(), 10))
	h.Set("Lambda-Runtime-Invoked-Function-Arn", i.pool.function().ARN())
	h.Set("Lambda-Runtime-Trace-Id", j.call.TraceID)
	if j.call.ClientContext != "" {
		h.Set("Lambda-Runtime-Client-Context", j.call.ClientContext)
	}
	w.Write(j.call.Payload) // a runtime that is gone ends the invocation by its exit
}

func (i *instance) takeResponse(w http.ResponseWriter, r *http.Request, id string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, schema.InvokeBytesMax+1))
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidRequest", "the answer broke off")
		return
	}
	a := &schema.Invoked{Payload: body, ContentType: r.Header.Get("Content-Type")}
	tooLarge := len(body) > schema.InvokeBytesMax
	switch {
	case tooLarge:
		io.CopyN(io.Discard, r.Body, drainBytesMax)
		a = unhandled(errorResponseSize, "Response payload size exceeded maximum allowed payload size ("+strconv.Itoa(schema.InvokeBytesMax)+" bytes).")
	case r.Trailer.Get("Lambda-Runtime-Function-Error-Type") != "":
		a = trailerError(r.Trailer)
	}
	known, first := i.answer(id, a)
	switch {
	case known && first && tooLarge:
		refuse(w, http.StatusRequestEntityTooLarge, errorResponseSize, "the answer has more than "+strconv.Itoa(schema.InvokeBytesMax)+" bytes")
	default:
		settled(w, known, first)
	}
}

func settled(w http.ResponseWriter, known, first bool) {
	switch {
	case !known:
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "this instance has no invocation of this id")
	case !first:
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation was answered before, or its time is over")
	default:
		accept(w)
	}
}

// trailerError is the error that a streamed answer ended with.
func trailerError(t http.Header) *schema.Invoked {
	body, err := base64.StdEncoding.DecodeString(t.Get("Lambda-Runtime-Function-Error-Body"))
	if err != nil || !json.Valid(body) {
		return unhandled(t.Get("Lambda-Runtime-Function-Error-Type"), "the function failed while it answered")
	}
	return &schema.Invoked{Payload: body, FunctionError: functionUnhandled}
}

func (i *instance) takeError(w http.ResponseWriter, r *http.Request, id string) {
	known, first := i.answer(id, readError(r))
	settled(w, known, first)
}

// readError makes an answer of a runtime's error report.
func readError(r *http.Request) *schema.Invoked {
	body, err := io.ReadAll(io.LimitReader(r.Body, errorBytesMax+1))
	if err != nil || len(body) > errorBytesMax || !json.Valid(body) {
		kind := r.Header.Get("Lambda-Runtime-Function-Error-Type")
		if kind == "" {
			kind = "Runtime.Unknown"
		}
		return unhandled(kind, "the function failed, and its error report cannot be read")
	}
	return &schema.Invoked{Payload: body, FunctionError: functionUnhandled}
}

// failInit takes the report of a runtime that cannot start. Its process is expected to end.
func (i *instance) failInit(w http.ResponseWriter, r *http.Request) {
	a := readError(r)
	i.mu.Lock()
	early := i.initError == nil && i.current == nil && !i.asking
	if early {
		i.initError = a
	}
	i.mu.Unlock()
	if !early {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the instance has started already")
		return
	}
	accept(w)
	i.pool.host.work.Go(i.endAfterInitError)
}
