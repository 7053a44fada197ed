package segment

import (
	"testing"
)

// Each counter of each state has memory of its own, which exists when so many states and lanes do.
func TestCountersHaveTheirPlaces(t *testing.T) {
	l := Layout{Threads: 600, Counters: FirstHolds + 2*PieceHolds + 1, Away: 1 << 10, Calls: 64, Extra: 1 << 16, Grouped: true}
	if l.allLanes() != 4 {
		t.Fatalf("%d lanes", l.allLanes())
	}
	for n, all := 0, l.Left(0); ; n++ {
		next, ok := l.Next(n, 1)
		if !ok {
			if left := l.Left(n); left != 0 || all < l.Counters {
				t.Errorf("%d counters are left behind the last of %d", left, all)
			}
			break
		}
		if left := all - l.Left(next+1); next > n && left <= 0 || l.Left(n) != l.Left(next) {
			t.Fatalf("%d counters from %d on, and %d from the next one, %d", l.Left(n), n, l.Left(next), next)
		}
		n = next
		// It is in a piece in which no state begins and no other state has a counter.
		at := StackSize + Counter(n)
		if lane := at / laneSize; at%laneSize+8 > pieceSize || lane == 0 && at < StackSize+StateCounters || lane != l.laneOf(n) {
			t.Fatalf("counter %d is at %#x of its state, and in lane %d", n, at, l.laneOf(n))
		}
		for _, states := range []int{0, 1, 254, 255, 256, 599} {
			if end := l.Place(states) + at + 8; end > l.SizeFor(states, l.laneOf(n)+1) {
				t.Fatalf("counter %d of state %d ends at %#x, and the segment at %#x", n, states, end, l.SizeFor(states, l.laneOf(n)+1))
			}
		}
	}
	if first, ok := l.Next(FirstHolds-3, 10); !ok || l.laneOf(first) != 1 || l.laneOf(first+9) != 1 {
		t.Errorf("ten counters in one piece are from %d on", first)
	}
	if whole := (Layout{Threads: MaxThreads, Counters: MaxCounters, Grouped: true}); Counter(whole.last())+8 > 1<<31 {
		t.Errorf("the last counter is %#x from its state", Counter(whole.last()))
	}
}

// last is the last counter's number.
func (l Layout) last() int {
	_, end := l.numbers(l.allLanes() - 1)
	return end - 1
}
