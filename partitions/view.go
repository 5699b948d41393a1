package partitions

import (
	"context"
	"slices"
	"strings"

	"github.com/handfast-mq/handfast/schema"
)

// View returns the cluster as this node sees it now.
func (s *Service) View(ctx context.Context) (schema.ClusterView, error) {
	head, err := s.cfg.Store.Head(ctx)
	if err != nil {
		return schema.ClusterView{}, err
	}
	rows, err := s.cfg.Store.Partitions(ctx)
	if err != nil {
		return schema.ClusterView{}, err
	}
	v := schema.ClusterView{Revision: head, Nodes: s.nodeViews(head)}
	for _, row := range rows {
		open, _ := row.Open()
		p := schema.PartitionView{ID: row.ID, Epoch: open.Epoch, Session: open.Session, Should: s.should(row.ID)}
		for i := range v.Nodes {
			if n := &v.Nodes[i]; open.Session != "" && n.Session == open.Session {
				p.Owner = n.ID
				n.Owns++
			}
		}
		v.Partitions = append(v.Partitions, p)
	}
	slices.SortFunc(v.Partitions, func(a, b schema.PartitionView) int { return int(a.ID - b.ID) })
	return v, nil
}

const aloneNode = schema.NodeID("embedded")

func (s *Service) should(p schema.PartitionID) schema.NodeID {
	if s.members == nil {
		return aloneNode
	}
	return s.members.shouldOwn(p)
}

func (s *Service) nodeViews(head schema.Revision) (list []schema.NodeView) {
	if s.members == nil {
		return []schema.NodeView{{Node: schema.Node{ID: aloneNode, Session: s.now().id, Applied: s.catalog.Revision()}, Alive: true, Lag: int64(head - s.catalog.Revision())}}
	}
	rows, alive := s.members.others()
	for i, n := range rows {
		list = append(list, schema.NodeView{Node: n, Alive: alive[i], Lag: max(int64(head-n.Applied), 0)})
	}
	s.members.mu.Lock()
	self := s.members.self
	s.members.mu.Unlock()
	self.Applied = s.catalog.Revision()
	list = append(list, schema.NodeView{Node: self, Alive: true, Lag: max(int64(head-self.Applied), 0)})
	slices.SortFunc(list, func(a, b schema.NodeView) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}
