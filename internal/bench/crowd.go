package bench

import "sync"

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
	failed := make(chan error, publishers)
	var makers sync.WaitGroup
	for m := range publishers {
		makers.Go(func() {
			for i := m; i < len(crowd); i += publishers {
				topic, err := b.topic(s)
				if err == nil {
					err = b.subscribe(s, topic, map[string]any{"type": "pull"})
				}
				if err != nil {
					failed <- err
					return
				}
				crowd[i] = topic
			}
		})
	}
	makers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		b.crowd = crowd
		return nil
	}
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
