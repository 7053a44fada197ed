package inject_test

import (
	"testing"

	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// TestGroups has threads of several groups find their states by themselves, and count in several lanes: the controller has each state where the
// target's code has it.
func TestGroups(t *testing.T) {
	l := testLayout
	l.Threads, l.Counters, l.Grouped = 600, 3*segment.PieceHolds, true
	h := startHost(t, l)
	for i := range 300 { // so many have come before
		if h.seg.Assign(segment.Thread{Key: uint64(0x1000 + 0x1000*i), TID: 100_000 + i}) != i {
			t.Fatalf("state %d is not given out", i)
		}
	}
	second, _ := l.Next(segment.FirstHolds, 1)
	third, _ := l.Next(second+segment.PieceHolds, segment.Counters)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: second, Programs: []inject.Program{h.program(clobber)},
		Return: &inject.Return{ID: uint32(third), Max: 50, Missed: second + 1, Hits: second + 2}}))
	h.say("start %d", 4)
	const n = 10_000
	h.expectSum("f_lea", 4, n, 0, 5, 4*sums(n, 5)) // they find their own way
	for c, want := range map[int]uint64{3: 4 * n, second: 0, second + 1: 0, second + 2: 4 * n, third: 0} {
		h.expectCounter(c, want)
	}
	for i := range 4 {
		at := h.seg.Find(h.key(i + 1))
		if at < 300 || at >= 304 || h.seg.NumberOf(uint64(h.seg.StateAddr(at))) != at || uint64(h.seg.Get(h.seg.State(at)+jit.StateSlot)) != uint64(at) {
			t.Errorf("thread %d has state %d", i, at)
		}
	}
	h.say("stop")
}
