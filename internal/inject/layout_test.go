package inject

import (
	"testing"

	"kprobe/internal/jit"
)

// Each counter of each state has memory of its own, which exists when so many states and lanes do.
func TestCountersHaveTheirPlaces(t *testing.T) {
	l := Layout{Threads: 600, Counters: firstHolds + 2*pieceHolds + 1, Away: 1 << 10, Calls: 64, Extra: 1 << 16, Grouped: true}
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
		at := stackSize + counter(n)
		if lane := at / laneSize; at%laneSize+8 > pieceSize || lane == 0 && at < stackSize+stateCounters || lane != l.laneOf(n) {
			t.Fatalf("counter %d is at %#x of its state, and in lane %d", n, at, l.laneOf(n))
		}
		for _, states := range []int{0, 1, 254, 255, 256, 599} {
			if end := l.place(states) + at + 8; end > l.SizeFor(states, l.laneOf(n)+1) {
				t.Fatalf("counter %d of state %d ends at %#x, and the segment at %#x", n, states, end, l.SizeFor(states, l.laneOf(n)+1))
			}
		}
	}
	if first, ok := l.Next(firstHolds-3, 10); !ok || l.laneOf(first) != 1 || l.laneOf(first+9) != 1 {
		t.Errorf("ten counters in one piece are from %d on", first)
	}
	if whole := (Layout{Threads: MaxThreads, Counters: MaxCounters, Grouped: true}); counter(whole.last())+8 > 1<<31 {
		t.Errorf("the last counter is %#x from its state", counter(whole.last()))
	}
}

// last is the last counter's number.
func (l Layout) last() int {
	_, end := l.numbers(l.allLanes() - 1)
	return end - 1
}

// TestGroups has threads of several groups find their states by themselves, and count in several lanes: the controller has each state where the
// target's code has it.
func TestGroups(t *testing.T) {
	l := testLayout
	l.Threads, l.Counters, l.Grouped = 600, 3*pieceHolds, true
	h := startHost(t, l)
	for i := range 300 { // so many have come before
		if h.seg.Assign(Thread{Key: uint64(0x1000 + 0x1000*i), TID: 100_000 + i}) != i {
			t.Fatalf("state %d is not given out", i)
		}
	}
	second, _ := l.Next(firstHolds, 1)
	third, _ := l.Next(second+pieceHolds, Counters)
	h.arm(h.detour("f_lea", Detour{Hits: 3, Missed: second, Programs: []Program{h.program(clobber)},
		Return: &Return{ID: uint32(third), Max: 50, Missed: second + 1, Hits: second + 2}}))
	h.say("start %d", 4)
	const n = 10_000
	h.expectSum("f_lea", 4, n, 0, 5, 4*sums(n, 5)) // they find their own way
	for c, want := range map[int]uint64{3: 4 * n, second: 0, second + 1: 0, second + 2: 4 * n, third: 0} {
		h.expectCounter(c, want)
	}
	for i := range 4 {
		at := h.seg.Find(h.key(i + 1))
		if at < 300 || at >= 304 || h.seg.numberOf(uint64(h.seg.stateAddr(at))) != at || uint64(h.seg.get(h.seg.state(at)+jit.StateSlot)) != uint64(at) {
			t.Errorf("thread %d has state %d", i, at)
		}
	}
	h.say("stop")
}
