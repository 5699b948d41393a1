package ring

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

func nodes(n int) (list []schema.NodeID) {
	for i := range n {
		list = append(list, schema.NodeID(fmt.Sprintf("node-%d", i)))
	}
	return list
}

func TestLoadIsBounded(t *testing.T) {
	for _, partitions := range []int{1, 8, 64, 1024, 8192} {
		for n := 1; n <= 9; n++ {
			load := map[schema.NodeID]int{}
			r := New(nodes(n), partitions)
			for p := range partitions {
				load[r.Owner(schema.PartitionID(p))]++
			}
			most := int(math.Ceil(float64(partitions) / float64(n) * loadFactor))
			for node, l := range load {
				if l > most {
					t.Errorf("%d partitions on %d nodes: %s has %d, at most %d are allowed", partitions, n, node, l, most)
				}
			}
		}
	}
}

func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	list := nodes(5)
	a := New(list, 64)
	slices.Reverse(list)
	b := New(list, 64)
	if !slices.Equal(a.owners, b.owners) {
		t.Fatal("two orders, two rings")
	}
}

// TestAJoinMovesAboutItsShare compares neighbouring rings: a joining node takes about 1/N of the partitions, and little moves between the others.
func TestAJoinMovesAboutItsShare(t *testing.T) {
	const partitions = 1024
	for n := 2; n <= 8; n++ {
		before, after := New(nodes(n), partitions), New(nodes(n+1), partitions)
		joined, others := 0, 0
		for p := range partitions {
			from, to := before.Owner(schema.PartitionID(p)), after.Owner(schema.PartitionID(p))
			switch {
			case from == to:
			case to == schema.NodeID(fmt.Sprintf("node-%d", n)):
				joined++
			default:
				others++
			}
		}
		share := partitions / (n + 1)
		if joined < share/2 || joined > share*5/4+1 {
			t.Errorf("%d nodes: the new one takes %d of %d", n, joined, partitions)
		}
		if others > share {
			t.Errorf("%d nodes: %d partitions move between the others", n, others)
		}
		t.Logf("%d to %d nodes: %d move to the new one, %d between the others", n, n+1, joined, others)
	}
}

func TestNoNodes(t *testing.T) {
	if New(nil, 8).Owner(3) != "" {
		t.Fatal("an owner without nodes")
	}
}
