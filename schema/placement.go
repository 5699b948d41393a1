package schema

import "hash/fnv"

// TopicPartition returns the i-th of a topic's partitions, of a cluster with total slots. Neighbouring topics begin at
// different slots, and a topic's own slots differ.
func TopicPartition(t TopicID, i, total int) PartitionID {
	h := uint64(t) * 0x9e3779b97f4a7c15 // Fibonacci hashing spreads consecutive ids
	return PartitionID((h>>32 + uint64(i)) % uint64(total))
}

// KeyPartition returns the index, below n, of the partition that an ordering key always goes to.
func KeyPartition(key string, n int) int {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int((h.Sum64() * 0x9e3779b97f4a7c15 >> 32) % uint64(n))
}

// Uses tells whether one of a topic's partitions is p.
func (t *Topic) Uses(p PartitionID, total int) bool {
	first := TopicPartition(t.ID, 0, total)
	return (int(p)-int(first)+total)%total < t.Partitions
}
