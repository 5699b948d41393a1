package bench

import "golang.org/x/sync/errgroup"

const (
	crowdTopics = 10_000
	crowdRate   = 10_000 // messages a second
)

// crowded measures the processor time that messages to very many topics take, in times of that of as many messages to one topic.
// Every topic has a subscription that nobody pulls from.
func (b *bench) crowded(s *server) (float64, float64, error) {
	if err := b.gather(s); err != nil {
		return 0, 0, err
	}
	many, err := b.pacedCPU(s, b.crowd)
	if err != nil {
		return 0, 0, err
	}
	one, err := b.pacedCPU(s, b.crowd[:1])
	return many / one, many / (crowdRate * b.Measure.Seconds()) * 1e6, err
}

// crowdMemory is what the node holds with all the topics and subscriptions.
func (b *bench) crowdMemory(s *server) (float64, float64, error) {
	err := b.gather(s)
	return s.memory(), 0, err
}

// gather makes the topics and their subscriptions, once.
func (b *bench) gather(s *server) error {
	if len(b.crowd) > 0 {
		return nil
	}
	crowd := make([]int64, crowdTopics)
	var makers errgroup.Group
	makers.SetLimit(publishers)
	for i := range crowd {
		makers.Go(func() (err error) {
			if crowd[i], err = b.topic(s); err != nil {
				return err
			}
			return b.subscribe(s, crowd[i], map[string]any{"type": "pull"})
		})
	}
	if err := makers.Wait(); err != nil {
		return err
	}
	b.crowd = crowd
	return nil
}

// pacedCPU returns the seconds of processor time that crowdRate messages a second take.
func (b *bench) pacedCPU(s *server, topics []int64) (float64, error) {
	if err := s.paced(topics, crowdRate, b.Warm); err != nil {
		return 0, err
	}
	before := s.cpu()
	err := s.paced(topics, crowdRate, b.Measure)
	return s.cpu() - before, err
}
