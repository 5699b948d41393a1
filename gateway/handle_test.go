package gateway

import (
	"context"
	"slices"
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

// numbers is a listing of 1 to n.
func numbers(n int) func(after, limit int) []*int {
	return func(after, limit int) (page []*int) {
		for i := after + 1; i <= n && len(page) < limit; i++ {
			page = append(page, &i)
		}
		return page
	}
}

func key(n *int) int { return *n }

func TestListGoesOnUntilTheLimit(t *testing.T) {
	seventh := func(n *int) (int, bool) { return *n, *n%7 == 0 }
	for _, c := range []struct{ n, after, limit, first, count int }{
		{0, 0, 10, 0, 0}, {6, 0, 10, 0, 0}, {7, 0, 10, 7, 1}, {10 * schema.ListMax, 0, 1000, 7, 1000}, {10 * schema.ListMax, 7, 1, 14, 1},
		{schema.ListMax, 0, schema.ListMax, 7, schema.ListMax / 7}, {3 * schema.ListMax, 3*schema.ListMax - 7, 10, 2996, 1}, {5, 5, 10, 0, 0},
	} {
		got, err := list(t.Context(), c.after, c.limit, numbers(c.n), key, seventh)
		if err != nil || len(got) != c.count || !slices.IsSorted(got) || c.count > 0 && got[0] != c.first {
			t.Errorf("%+v: %d from %v on, %v", c, len(got), got[:min(len(got), 1)], err)
		}
	}
}

// A caller who may see nothing of very much is not served beyond its time.
func TestListEndsWithItsTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	none := func(*int) (int, bool) {
		if asked++; asked == 10 {
			cancel()
		}
		return 0, false
	}
	if _, err := list(ctx, 0, 10, numbers(100*schema.ListMax), key, none); schema.KindOf(err) != schema.Unavailable || asked != schema.ListMax {
		t.Errorf("%v after %d", err, asked)
	}
}
