package later

import (
	"slices"
	"testing"
	"time"
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

// A call that is lost is made again, and what was done at the last moment is done.
func TestAsked(t *testing.T) {
	done, over, calls := make(chan struct{}), make(chan struct{}), 0
	if !Asked(done, over, func() bool {
		if calls++; calls == 3 {
			close(done)
		}
		return false
	}) || calls != 3 {
		t.Errorf("not done after %d calls", calls)
	}
	later, calls := make(chan struct{}), 0
	if !Asked(later, over, func() bool {
		calls++
		time.AfterFunc(10*time.Millisecond, func() { close(later) })
		return true
	}) || calls != 1 {
		t.Errorf("what was heard for sure was said %d times", calls)
	}
	close(over)
	if !Asked(done, over, func() bool { return false }) {
		t.Error("what is done and over is not done")
	}
	if Asked(make(chan struct{}), over, func() bool { return true }) {
		t.Error("what is over is done")
	}
}
