package inject_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// A state's memory is touched when a thread gets it, whoever gives it out: what the routine find
// makes of zeros in the target is what the controller makes.
func TestStatesAreMadeWhenGivenOut(t *testing.T) {
	l := testLayout
	l.Threads = 1000
	h := startHost(t, l)
	first, end := l.Place(1), l.Size()
	if n := touched(t, h.seg.Mem[first:end]); n != 0 {
		t.Fatalf("%d pages of states that nobody has", n)
	}
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter}))
	h.say("start %d", 2)
	h.seg.Assign(segment.Thread{Key: h.key(1), TID: int(h.tid(1))})
	const n = 1000
	h.expectSum("f_lea", 2, n, 0, 5, 2*sums(n, 5)) // the other finds its own way
	ours, theirs := h.seg.Find(h.key(1)), h.seg.Find(h.key(2))
	if ours != 0 || theirs != 1 || h.seg.Given() != 2 {
		t.Fatalf("states %d and %d of %d", ours, theirs, h.seg.Given())
	}
	for off := -segment.StackSize; off < segment.StateCounters; off += 8 {
		a, b := h.seg.Get(h.seg.State(ours)+off), h.seg.Get(h.seg.State(theirs)+off)
		switch off {
		case segment.StateKey:
			a, b = 0, 0
		case jit.StateSlot:
			b--
		case jit.StatePidTgid:
			a, b = a>>32, b>>32
		case segment.StateCalls:
			a, b = a-uint64(h.seg.StateAddr(ours)), b-uint64(h.seg.StateAddr(theirs))
		}
		if a != b {
			t.Errorf("at %d the controller's state has %#x, the target's %#x", off, a, b)
		}
	}
	// A state and its counters, its frame and its stack: none of them is large here.
	if n, most := touched(t, h.seg.Mem[first:end]), 2*l.Stride()/segment.PageSize; n > most {
		t.Errorf("%d pages for two states of %d", n, most/2)
	}
	h.say("stop")
}

// touched counts the pages of a mapping that exist.
func touched(t *testing.T, mem []byte) (n int) {
	exist := make([]byte, len(mem)/segment.PageSize)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&exist[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, b := range exist {
		n += int(b & 1)
	}
	return n
}
