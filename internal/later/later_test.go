package later

import (
	"slices"
	"testing"
)

// Whoever is given something may add more and ask for it: it comes in order, and once.
func TestQueueIsGivenInOrder(t *testing.T) {
	var q Queue[int]
	var got []int
	var give func(int)
	give = func(v int) {
		got = append(got, v)
		if v < 3 {
			q.Add(v + 10)
			q.Give(give)
		}
	}
	for v := range 4 {
		q.Add(v)
	}
	q.Give(give)
	if want := []int{0, 1, 2, 3, 10, 11, 12}; !slices.Equal(got, want) {
		t.Errorf("given %v, want %v", got, want)
	}
}
