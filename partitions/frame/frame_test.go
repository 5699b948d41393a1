package frame

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

func build(t testing.TB, ms []schema.Publish) *schema.Frame {
	t.Helper()
	blob := NewBlob(100)
	for i := range ms {
		blob = AppendRecord(blob, &ms[i])
	}
	Seal(blob)
	if err := Check(blob); err != nil {
		t.Fatal(err)
	}
	return &schema.Frame{Topic: 7, First: 1000, Count: len(ms), Time: time.UnixMilli(1700000000123), Blob: blob}
}

func randomPublish(r *rand.Rand) schema.Publish {
	text := func(n int) string {
		b := make([]byte, r.IntN(n))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		return string(b)
	}
	m := schema.Publish{Publisher: schema.UserID(r.Int64N(schema.IDMax)), Content: []byte(text(3000))}
	if r.IntN(2) == 0 {
		m.Key = text(schema.KeyBytesMax)
	}
	if r.IntN(2) == 0 {
		m.ContentType = text(50)
	}
	if r.IntN(3) == 0 {
		m.Delay = time.Duration(r.IntN(900000)) * time.Millisecond
	}
	if r.IntN(4) == 0 {
		m.Only = schema.SubscriptionID(r.Int64N(schema.IDMax))
	}
	for range r.IntN(4) {
		m.Attributes = append(m.Attributes, schema.Attribute{Name: text(100), Value: text(400)})
	}
	return m
}

func TestMessagesComeBackAsTheyWent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ms := make([]schema.Publish, 1+r.IntN(20))
		for i := range ms {
			ms[i] = randomPublish(r)
		}
		f := build(t, ms)
		skip := r.IntN(len(ms))
		rd := Read(f)
		rd.Skip(f.First + schema.Offset(skip))
		for i := skip; i < len(ms); i++ {
			var got schema.Message
			if !rd.Next(3, &got) {
				t.Fatalf("message %d is missing: %v", i, rd.Err())
			}
			want := schema.Message{ID: schema.NewMessageID(3, 1000+schema.Offset(i)), Topic: 7, Time: f.Time, Publisher: ms[i].Publisher,
				Key: ms[i].Key, ContentType: ms[i].ContentType, Attributes: ms[i].Attributes, Only: ms[i].Only, Content: ms[i].Content}
			if ms[i].Delay > 0 {
				want.DeliverAt = f.Time.Add(ms[i].Delay)
			}
			if !bytes.Equal(want.Content, got.Content) {
				t.Fatal("content differs")
			}
			want.Content, got.Content = nil, nil
			if !reflect.DeepEqual(want, got) {
				t.Fatalf("want %+v\ngot  %+v", want, got)
			}
		}
		if rd.Next(3, &schema.Message{}) || rd.Err() != nil {
			t.Fatal("more than went in", rd.Err())
		}
	}
}

func TestCheckFindsAnyChangedBit(t *testing.T) {
	f := build(t, []schema.Publish{{Publisher: 1, Content: []byte("hello")}})
	for i := range f.Blob {
		if i == 1 || i == 2 || i == 3 {
			continue // reserved
		}
		bad := bytes.Clone(f.Blob)
		bad[i] ^= 1
		if Check(bad) == nil {
			t.Errorf("a flipped bit in byte %d went unseen", i)
		}
	}
}

func FuzzRead(f *testing.F) {
	seed := build(f, []schema.Publish{{Publisher: 1, Key: "k", ContentType: "a/b", Delay: time.Second,
		Attributes: []schema.Attribute{{Name: "n", Value: "v"}}, Content: []byte("hello")}, {Content: nil}})
	f.Add(seed.Blob, 2)
	f.Add([]byte{}, 1)
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff}, 3)
	f.Fuzz(func(t *testing.T, blob []byte, count int) {
		fr := &schema.Frame{First: 5, Count: count % 1000, Blob: blob}
		rd := Read(fr)
		var m schema.Message
		for n := 0; rd.Next(1, &m); n++ {
			if n > fr.Count {
				t.Fatal("more messages than the frame has")
			}
		}
	})
}
