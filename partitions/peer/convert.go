package peer

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/handfast-mq/handfast/partitions/owner"
	"github.com/handfast-mq/handfast/partitions/peer/peerpb"
	"github.com/handfast-mq/handfast/schema"
)

func toError(err error) *peerpb.Error {
	if err == nil {
		return nil
	}
	var ours *schema.Error
	if errors.As(err, &ours) {
		return &peerpb.Error{Kind: ours.Kind.String(), Message: ours.Message, RetryAfterMs: ours.RetryAfter.Milliseconds()}
	}
	return &peerpb.Error{Kind: schema.KindOf(err).String(), Message: "the node that owns the partition failed"}
}

func fromError(e *peerpb.Error) error {
	if e == nil {
		return nil
	}
	return &schema.Error{Kind: schema.ParseKind(e.Kind), Message: e.Message, RetryAfter: time.Duration(e.RetryAfterMs) * time.Millisecond}
}

// toStatus carries an error of ours through gRPC.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	s, detailed := status.New(codes.Aborted, "handfast").WithDetails(toError(err))
	if detailed != nil {
		return status.Error(codes.Internal, "an error could not be encoded")
	}
	return s.Err()
}

// fromStatus is the inverse of toStatus. An error of the transport means that the peer cannot be reached: look again who owns the partition.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*peerpb.Error); ok {
			return fromError(e)
		}
	}
	return schema.WrapError(schema.NotOwner, err, "the node that owns the partition does not answer").Retry(time.Second)
}

func toBatch(b *owner.Batch) *peerpb.Batch {
	out := &peerpb.Batch{Topic: int64(b.Topic), Level: int32(b.Level), RetentionMs: b.Retention.Milliseconds(), Records: b.Records, Ends: make([]uint32, len(b.Ends))}
	for i, e := range b.Ends {
		out.Ends[i] = uint32(e)
	}
	for i := range b.Keys {
		k := &b.Keys[i]
		out.Keys = append(out.Keys, &peerpb.Key{Index: uint32(k.Index), Count: uint32(k.Count), Digest: k.Digest[:], Fingerprint: k.Fingerprint})
	}
	return out
}

func fromBatch(b *peerpb.Batch) (*owner.Batch, error) {
	out := &owner.Batch{Topic: schema.TopicID(b.Topic), Level: schema.AckLevel(b.Level), Retention: time.Duration(b.RetentionMs) * time.Millisecond,
		Records: b.Records, Ends: make([]int, len(b.Ends))}
	bad := schema.Errorf(schema.Invalid, "a batch from a peer is malformed")
	last := 0
	for i, e := range b.Ends {
		if int(e) < last || int(e) > len(b.Records) {
			return nil, bad
		}
		last = int(e)
		out.Ends[i] = last
	}
	if last != len(b.Records) {
		return nil, bad
	}
	next := uint64(0)
	for _, k := range b.Keys {
		first := uint64(k.Index)
		if len(k.Digest) != len(owner.Digest{}) || first < next || k.Count < 1 || first+uint64(k.Count) > uint64(len(b.Ends)) {
			return nil, bad
		}
		next = first + uint64(k.Count)
		out.Keys = append(out.Keys, owner.Key{Index: int(k.Index), Count: int(k.Count), Digest: owner.Digest(k.Digest), Fingerprint: k.Fingerprint})
	}
	return out, nil
}

func toPublished(list []schema.Published) []*peerpb.Published {
	out := make([]*peerpb.Published, len(list))
	for i, r := range list {
		out[i] = &peerpb.Published{Id: int64(r.ID), Duplicate: r.Duplicate, Error: toError(r.Err)}
	}
	return out
}

func fromPublished(list []*peerpb.Published) []schema.Published {
	out := make([]schema.Published, len(list))
	for i, r := range list {
		out[i] = schema.Published{ID: schema.MessageID(r.Id), Duplicate: r.Duplicate, Err: fromError(r.Error)}
	}
	return out
}

func toMessage(m *schema.Message) *peerpb.StoredMessage {
	out := &peerpb.StoredMessage{Id: int64(m.ID), Topic: int64(m.Topic), Publisher: int64(m.Publisher), TimeMs: m.Time.UnixMilli(),
		Key: []byte(m.Key), ContentType: []byte(m.ContentType), Only: int64(m.Only), Content: m.Content}
	if !m.DeliverAt.IsZero() {
		out.DeliverAtMs = m.DeliverAt.UnixMilli()
	}
	for _, a := range m.Attributes {
		out.Attributes = append(out.Attributes, &peerpb.Attribute{Name: []byte(a.Name), Value: []byte(a.Value)})
	}
	return out
}

func fromMessage(m *peerpb.StoredMessage) schema.Message {
	out := schema.Message{ID: schema.MessageID(m.GetId()), Topic: schema.TopicID(m.GetTopic()), Publisher: schema.UserID(m.GetPublisher()),
		Time: time.UnixMilli(m.GetTimeMs()), Key: string(m.GetKey()), ContentType: string(m.GetContentType()), Only: schema.SubscriptionID(m.GetOnly()), Content: m.GetContent()}
	if at := m.GetDeliverAtMs(); at != 0 {
		out.DeliverAt = time.UnixMilli(at)
	}
	for _, a := range m.GetAttributes() {
		out.Attributes = append(out.Attributes, schema.Attribute{Name: string(a.Name), Value: string(a.Value)})
	}
	return out
}

func toDeliveries(list []schema.Delivery) []*peerpb.Delivery {
	out := make([]*peerpb.Delivery, len(list))
	for i := range list {
		out[i] = &peerpb.Delivery{Message: toMessage(&list[i].Message), Attempt: int32(list[i].Attempt), Lease: list[i].Lease}
	}
	return out
}

func fromDeliveries(s schema.SubscriptionID, list []*peerpb.Delivery) []schema.Delivery {
	out := make([]schema.Delivery, len(list))
	for i, d := range list {
		out[i] = schema.Delivery{Message: fromMessage(d.Message), Subscription: s, Attempt: int(d.Attempt), Lease: d.Lease}
	}
	return out
}
