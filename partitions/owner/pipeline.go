package owner

import "github.com/handfast-mq/handfast/schema"

// Pipeline decides when the commits of an epoch may be acknowledged. It knows no clock, no goroutine and no store, so
// that the simulation runs this very code.
//
// The rule: a commit is acknowledged when it and all earlier ones are durable, and a check of the session that
// *began after that* said that the session lives. A successor fences the session before it reads the log. So either
// the check sees the fence, and nothing is acknowledged, or the successor sees the commits, and keeps them.
type Pipeline struct {
	acked   schema.Seq          // all up to it may be acknowledged
	durable schema.Seq          // all up to it are durable
	ahead   map[schema.Seq]bool // durable ones above a hole
}

// Durable notes that a commit is durable at its ack level.
func (p *Pipeline) Durable(s schema.Seq) {
	if s != p.durable+1 {
		if p.ahead == nil {
			p.ahead = map[schema.Seq]bool{}
		}
		p.ahead[s] = true
		return
	}
	p.durable = s
	for len(p.ahead) > 0 && p.ahead[p.durable+1] {
		delete(p.ahead, p.durable+1)
		p.durable++
	}
}

// BeginCheck returns the last commit that a check of the session which begins now covers; ok is false when there is nothing to check for.
func (p *Pipeline) BeginCheck() (covered schema.Seq, ok bool) {
	return p.durable, p.durable > p.acked
}

// EndCheck notes that a check, whose BeginCheck returned covered, found the session alive. It returns the
// last commit that may be acknowledged now.
func (p *Pipeline) EndCheck(covered schema.Seq) schema.Seq {
	p.acked = max(p.acked, covered)
	return p.acked
}

// Acked returns the last commit that may be acknowledged.
func (p *Pipeline) Acked() schema.Seq { return p.acked }
