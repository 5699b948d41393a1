package gateway

import (
	"github.com/handfast-mq/handfast/schema"
)

type wireAsync struct {
	MaxRetries *int            `json:"max_retries,omitzero"`
	MaxAge     *seconds        `json:"max_age,omitzero"`
	OnSuccess  *schema.TopicID `json:"on_success_topic_id,omitzero"`
	OnFailure  *schema.TopicID `json:"on_failure_topic_id,omitzero"`
	DeadLetter *schema.TopicID `json:"dead_letter_topic_id,omitzero"`
}

// wireFunctionTerms is what a function's owner chooses. What is left out stays as it is.
type wireFunctionTerms struct {
	// Of the version: a change makes a new one.
	Handler *string            `json:"handler"`
	Timeout *seconds           `json:"timeout"`
	Memory  *int               `json:"memory"`
	Env     *map[string]string `json:"env"`
	// Of the function.
	MinInstances *int             `json:"min_instances"`
	MaxInstances *int             `json:"max_instances"`
	Reserved     *int             `json:"reserved_concurrency"` // below 0 = no bound
	IdleStop     *seconds         `json:"idle_stop"`
	Invokers     *[]schema.UserID `json:"invokers"`
	Async        *wireAsync       `json:"async"`
	URLAuth      *string          `json:"url_auth"`
}

func (w *wireFunctionTerms) set(f *schema.Function, v *schema.FunctionVersion) error {
	set(&v.Handler, w.Handler)
	setSeconds(&v.Timeout, w.Timeout)
	set(&v.Memory, w.Memory)
	set(&v.Env, w.Env)
	set(&f.MinInstances, w.MinInstances)
	set(&f.MaxInstances, w.MaxInstances)
	if w.Reserved != nil {
		f.Reserved = w.Reserved
		if *w.Reserved < 0 {
			f.Reserved = nil
		}
	}
	setSeconds(&f.IdleStop, w.IdleStop)
	set(&f.URLAuth, w.URLAuth)
	if w.Invokers != nil {
		for _, id := range *w.Invokers {
			if err := checkID("invokers", id); err != nil {
				return err
			}
		}
		f.Invokers = *w.Invokers
	}
	if a := w.Async; a != nil {
		set(&f.Async.MaxRetries, a.MaxRetries)
		setSeconds(&f.Async.MaxAge, a.MaxAge)
		set(&f.Async.OnSuccess, a.OnSuccess)
		set(&f.Async.OnFailure, a.OnFailure)
		set(&f.Async.DeadLetter, a.DeadLetter)
	}
	return nil
}

type wireVersion struct {
	Number    int               `json:"version"`
	SHA256    string            `json:"sha256"`
	Size      int64             `json:"size"`
	Handler   string            `json:"handler,omitempty"`
	Timeout   seconds           `json:"timeout"`
	Memory    int               `json:"memory"`
	Env       map[string]string `json:"env,omitempty"`
	CreatedAt string            `json:"created_at"`
}

type wireFunction struct {
	ID           schema.FunctionID `json:"function_id"`
	Name         string            `json:"function_name"`
	ARN          string            `json:"function_arn"`
	Owner        schema.UserID     `json:"owner_id"`
	Live         int               `json:"live"`
	Versions     []wireVersion     `json:"versions"`
	MinInstances int               `json:"min_instances"`
	MaxInstances int               `json:"max_instances"`
	Reserved     *int              `json:"reserved_concurrency,omitzero"`
	IdleStop     seconds           `json:"idle_stop"`
	Invokers     []schema.UserID   `json:"invokers"`
	Async        wireAsync         `json:"async"`
	URLAuth      string            `json:"url_auth"`
	CreatedAt    string            `json:"created_at"`
	UpdatedAt    string            `json:"updated_at"`
}

func wireFunctionOf(f *schema.Function) wireFunction {
	age := seconds(f.Async.MaxAge)
	w := wireFunction{ID: f.ID, Name: f.Name, ARN: f.ARN(), Owner: f.Owner, Live: f.Live, MinInstances: f.MinInstances, MaxInstances: f.MaxInstances,
		Reserved: f.Reserved, IdleStop: seconds(f.IdleStop), Invokers: f.Invokers, URLAuth: f.URLAuth, CreatedAt: stamp(f.CreatedAt), UpdatedAt: stamp(f.UpdatedAt),
		Async: wireAsync{&f.Async.MaxRetries, &age, some(f.Async.OnSuccess), some(f.Async.OnFailure), some(f.Async.DeadLetter)}}
	for i := range f.Versions {
		v := &f.Versions[i]
		w.Versions = append(w.Versions, wireVersion{v.Number, v.SHA256, v.Size, v.Handler, seconds(v.Timeout), v.Memory, v.Env, stamp(v.CreatedAt)})
	}
	return w
}

// some is nil for no topic.
func some(id schema.TopicID) *schema.TopicID {
	if id == 0 {
		return nil
	}
	return &id
}
