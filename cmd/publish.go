package cmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/handfast-mq/handfast/client"
	"github.com/handfast-mq/handfast/schema"
)

const (
	// fileBatchMax and fileBatchBytesMax bound one request when a file is published: large enough for its cost not to count, small
	// enough for progress to be seen.
	fileBatchMax      = 500
	fileBatchBytesMax = 1 << 20
	// lineBytesMax bounds a line of a file: a content at its limit, in base64, with an envelope.
	lineBytesMax = 2 << 20
)

type publishing struct {
	file       string
	message    client.Message
	attributes []string
}

func newPublish(r *remote) *cobra.Command {
	var p publishing
	c := r.verb("publish TOPIC [CONTENT | - | --file FILE]", "Publish a message, or a file of them", between(1, 2), p.run)
	c.Long = `Publish a message: CONTENT, or standard input for -. It is accepted when the command returns.

With --file, every line of FILE is a message (- = standard input). A line that is a JSON object with message_content or
message_content_base64 says itself what goes with it, as in POST /publish_messages:

  {"message_content": "hello", "key": "k", "attributes": {"kind": "greeting"}}

Any other line is the content. ` + topicHelp
	c.Example = `  handfast publish orders '{"id": 1}' --key 1 --attribute kind=new
  date | handfast publish orders -
  handfast publish orders --file events.jsonl`
	f := c.Flags()
	f.StringVar(&p.file, "file", "", "publish every line of this file")
	f.StringVar(&p.message.Key, "key", "", "messages of one key keep their order on ordered subscriptions; without a key there is none")
	f.StringArrayVar(&p.attributes, "attribute", nil, "name=value beside the content; can be given several times")
	f.StringVar(&p.message.ContentType, "content-type", "", "media type of the content")
	f.DurationVar(&p.message.Delay, "delay", 0, "hold it back this long, up to 15m")
	f.StringVar(&p.message.IdempotencyKey, "idempotency-key", "", "the same key within 10 minutes is the same message")
	return c
}

func (p *publishing) run(ctx context.Context, s *session) (err error) {
	switch {
	case p.file == "" && len(s.args) < 2:
		return usagef("say what to publish: CONTENT, - for standard input, or --file")
	case p.file != "" && len(s.args) > 1:
		return usagef("CONTENT and --file exclude each other")
	case p.file != "" && p.message.IdempotencyKey != "":
		return usagef("--idempotency-key is for one message")
	}
	if p.message.Attributes, err = pairs("attribute", p.attributes); err != nil {
		return err
	}
	topic, err := s.topicOf(ctx, s.args[0])
	if err != nil {
		return err
	}
	if p.file != "" {
		return p.publishFile(ctx, s, topic)
	}
	p.message.Content = []byte(s.args[1])
	if s.args[1] == "-" {
		if p.message.Content, err = readAll(s.cmd.InOrStdin(), "-", schema.ContentBytesMax); err != nil {
			return err
		}
	}
	published, err := s.Publish(ctx, topic, p.message)
	if err != nil {
		return err
	}
	return s.one(published)
}

// publishFile publishes every line of a file, batch by batch, in their order. Lines that are refused are told on stderr.
func (p *publishing) publishFile(ctx context.Context, s *session, topic schema.TopicID) error {
	in, size := s.cmd.InOrStdin(), int64(-1)
	if p.file != "-" {
		f, err := os.Open(p.file)
		if err != nil {
			return err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		in = f
	}
	lines := &lineReader{r: bufio.NewReaderSize(in, 64<<10)}
	bar := newBar(s.cmd.ErrOrStderr(), size)
	defer bar.Exit()
	done, refused := 0, 0
	for {
		batch, err := p.nextBatch(lines)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w (%d messages are published)", p.file, lines.n, err, done)
		}
		if len(batch) == 0 {
			break
		}
		results, err := s.PublishBatch(ctx, topic, batch)
		if err != nil {
			return fmt.Errorf("%s: up to line %d: %w (%d messages are published before)", p.file, lines.n, err, done)
		}
		for _, r := range results {
			if r.Err != nil {
				if refused++; refused == 1 {
					fmt.Fprintf(s.cmd.ErrOrStderr(), "handfast: a message up to line %d: %v\n", lines.n, r.Err)
				}
				continue
			}
			done++
		}
		bar.Set64(lines.bytes)
	}
	bar.Finish()
	if err := s.one(struct {
		Published int `json:"published"`
		Refused   int `json:"refused"`
	}{done, refused}); err != nil || refused == 0 {
		return err
	}
	return fmt.Errorf("%d messages were refused", refused)
}

// newBar shows progress on a terminal, and nothing elsewhere.
func newBar(w io.Writer, size int64) *progressbar.ProgressBar {
	f, is := w.(*os.File)
	seen := is && term.IsTerminal(int(f.Fd()))
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(w), progressbar.OptionSetVisibility(seen), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

func (p *publishing) nextBatch(lines *lineReader) ([]client.Message, error) {
	var batch []client.Message
	for bytes := 0; len(batch) < fileBatchMax && bytes < fileBatchBytesMax; {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return batch, nil
		}
		if err != nil {
			return nil, err
		}
		m, err := p.parse(line)
		if err != nil {
			return nil, err
		}
		batch = append(batch, m)
		bytes += len(m.Content)
	}
	return batch, nil
}

// parse makes a message of a line: of an envelope, or of a content with what the flags say.
func (p *publishing) parse(line []byte) (client.Message, error) {
	m := p.message
	m.Content = line
	if !bytes.HasPrefix(line, []byte("{")) {
		return m, nil
	}
	var names map[string]json.RawMessage
	if json.Unmarshal(line, &names) != nil {
		return m, nil
	}
	if m.ContentType == "" {
		m.ContentType = "application/json"
	}
	_, text := names["message_content"]
	_, raw := names["message_content_base64"]
	if !text && !raw {
		return m, nil
	}
	return m, decodeEnvelope(line, &m)
}

func decodeEnvelope(line []byte, m *client.Message) error {
	var w struct {
		Content        string            `json:"message_content"`
		ContentBase64  []byte            `json:"message_content_base64"`
		ContentType    string            `json:"content_type"`
		Key            *string           `json:"key"`
		Attributes     map[string]string `json:"attributes"`
		Delay          *client.Seconds   `json:"delay"`
		IdempotencyKey string            `json:"idempotency_key"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return err
	}
	if m.Content = w.ContentBase64; m.Content == nil {
		m.Content = []byte(w.Content)
	}
	m.ContentType, m.IdempotencyKey = w.ContentType, w.IdempotencyKey
	if w.Key != nil {
		m.Key = *w.Key
	}
	if w.Attributes != nil {
		m.Attributes = w.Attributes
	}
	if w.Delay != nil {
		m.Delay = time.Duration(*w.Delay)
	}
	return nil
}

// lineReader gives the lines of a file that are not empty, each a copy.
type lineReader struct {
	r     *bufio.Reader
	n     int   // the line that was read last, from 1
	bytes int64 // read so far
}

func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			return line, nil
		}
	}
}

func (l *lineReader) line() (line []byte, err error) {
	l.n++
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		l.bytes += int64(len(part))
		switch {
		case len(line) > lineBytesMax:
			return nil, fmt.Errorf("it has more than %d bytes", lineBytesMax)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		}
		return line, err
	}
}
