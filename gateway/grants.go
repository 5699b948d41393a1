package gateway

import (
	"cmp"
	"context"

	"github.com/handfast-mq/handfast/schema"
)

// wireGrant names a topic and who may publish to it.
type wireGrant struct {
	Topic     schema.TopicID `json:"topic_id"`
	Publisher schema.UserID  `json:"publisher_id"`
}

func (g *Gateway) grantPublish(ctx context.Context, by caller, in *wireGrant) (nothing, error) {
	if err := g.mayGrant(ctx, by, schema.ActionGrant, in); err != nil {
		return nothing{}, err
	}
	return nothing{}, g.cfg.Catalog.Grant(ctx, in.Topic, in.Publisher)
}

func (g *Gateway) revokePublish(ctx context.Context, by caller, in *wireGrant) (nothing, error) {
	if err := g.mayGrant(ctx, by, schema.ActionRevoke, in); err != nil {
		return nothing{}, err
	}
	return nothing{}, g.cfg.Catalog.Revoke(ctx, in.Topic, in.Publisher)
}

func (g *Gateway) mayGrant(ctx context.Context, by caller, action schema.Action, in *wireGrant) error {
	if err := cmp.Or(checkID("topic_id", in.Topic), checkID("publisher_id", in.Publisher)); err != nil {
		return err
	}
	_, err := g.topicFor(ctx, by, 0, action, in.Topic)
	return err
}

// wireGrants lists who may publish to a topic beside its owner.
type wireGrants struct {
	Grants []wireGranted `json:"grants"`
}

type wireGranted struct {
	Publisher schema.UserID `json:"publisher_id"`
	CreatedAt string        `json:"created_at"`
}

func (g *Gateway) listGrants(ctx context.Context, by caller, q *params) (out wireGrants, err error) {
	topic := neededID[schema.TopicID](q, "topic_id")
	if q.err != nil {
		return out, q.err
	}
	if err := g.cfg.Catalog.Sync(ctx); err != nil {
		return out, err
	}
	if _, err := g.topicFor(ctx, by, 0, schema.ActionGrant, topic); err != nil {
		return out, err
	}
	out.Grants = []wireGranted{}
	for _, grant := range g.cfg.Catalog.Grants(topic) {
		out.Grants = append(out.Grants, wireGranted{grant.Publisher, stamp(grant.CreatedAt)})
	}
	return out, nil
}
