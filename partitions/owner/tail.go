package owner

import (
	"sort"

	"github.com/handfast-mq/handfast/schema"
)

// tail keeps the newest committed frames of a partition in memory, so that those who keep up never read from the log.
// It holds every frame from start on.
type tail struct {
	start    schema.Offset
	order    []schema.Frame // oldest first
	topics   map[schema.TopicID][]schema.Frame
	bytes    int
	bytesMax int
}

func newTail(start schema.Offset, bytesMax int) *tail {
	return &tail{start: start, bytesMax: bytesMax, topics: map[schema.TopicID][]schema.Frame{}}
}

func (t *tail) add(frames []schema.Frame) {
	for _, f := range frames {
		t.order = append(t.order, f)
		t.topics[f.Topic] = append(t.topics[f.Topic], f)
		t.bytes += len(f.Blob)
	}
	drop := 0
	for t.bytes > t.bytesMax && drop < len(t.order) {
		f := t.order[drop]
		t.order[drop] = schema.Frame{}
		t.bytes -= len(f.Blob)
		t.start = f.End()
		t.forget(f.Topic)
		drop++
	}
	t.order = t.order[drop:]
}

func (t *tail) forget(topic schema.TopicID) {
	frames := t.topics[topic]
	if len(frames) == 1 {
		delete(t.topics, topic)
		return
	}
	frames[0] = schema.Frame{}
	t.topics[topic] = frames[1:]
}

// read returns the topic's frames that hold offsets from on, up to bytesMax of blob and at least one when there is one. from must not be before start.
func (t *tail) read(topic schema.TopicID, from schema.Offset, bytesMax int) []schema.Frame {
	frames := t.topics[topic]
	i := sort.Search(len(frames), func(i int) bool { return frames[i].End() > from })
	j, bytes := i, 0
	for j < len(frames) && (j == i || bytes+len(frames[j].Blob) <= bytesMax) {
		bytes += len(frames[j].Blob)
		j++
	}
	return append([]schema.Frame(nil), frames[i:j]...)
}
