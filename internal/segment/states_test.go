package segment

import (
	"fmt"
	"testing"

	"kprobe/arch"
)

// TestTableHasRoom gives as many threads an entry as there are states, whatever lies between their thread pointers: stacks of all
// sizes, with guard pages and without, in one piece or from the end of memory down; and ids.
func TestTableHasRoom(t *testing.T) {
	for _, m := range []struct {
		of   *Machine
		l    Layout
		from uint64
	}{
		{wide, Layout{Threads: 1<<14 - 1}, 0x7fff_f7d8_a740},
		{wide, Layout{Threads: 255}, 0x7fff_f7d8_a740},
		{narrowOne, Layout{Threads: 1<<12 - 1}, 0xf7d8_ab40},
		{narrowOne, Layout{Threads: 255}, 0xf7d8_ab40},
	} {
		keys := map[string]func(s *Segment, i int) uint64{
			"ids":             func(s *Segment, i int) uint64 { return s.IDKey(4_000_000 + i) },
			"every other id":  func(s *Segment, i int) uint64 { return s.IDKey(1000 + 2*i) },
			"heap":            func(_ *Segment, i int) uint64 { return 0x10_0000 + uint64(i)*0x890 },
			"mixed, from two": func(_ *Segment, i int) uint64 { return m.from - uint64(i/2)*0x21000 - uint64(i%2)*0x3800_0000 },
		}
		for _, size := range []uint64{16, 20, 32, 40, 64, 128, 132, 256, 512, 1 << 10, 2 << 10, 8 << 10, 10 << 10, 64 << 10, 1 << 20} {
			for _, guard := range []uint64{0, 4, 64} {
				if stride := (size + guard) << 10; m.of.PtrSize == 8 || stride*uint64(m.l.Threads) < m.from {
					keys[fmt.Sprintf("%#x apart", stride)] = func(_ *Segment, i int) uint64 { return m.from - uint64(i)*stride }
				}
			}
		}
		s, err := New(m.of, m.l, 0x1000_0000, make([]byte, m.l.Size()), 1)
		if err != nil {
			t.Fatal(err)
		}
		for name, key := range keys {
			clear(s.Mem[HeadTable:m.l.TableEnd()])
			for i := range m.l.Threads {
				if s.vacant(key(s, i)) == 0 {
					t.Errorf("%s, %d threads, keys %s: none has room from the %dth on", m.of.Name, m.l.Threads, name, i)
					break
				}
			}
		}
	}
}

// TestHeadHasOneWordForEach has goroutines and a kernel's ways be told of without harm to what else is known by the head.
func TestHeadHasOneWordForEach(t *testing.T) {
	l := Layout{Threads: 8, Counters: 8, Calls: 64}
	s, err := New(wide, l, 0x1000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	s.SetGoroutines(0xa0)
	if at := s.Get(HeadReadText); at != 0 {
		t.Errorf("texts are read by a routine at %#x in a process", at)
	}
	if proof, table := s.Get(headProof), s.Get(poolGoroutines); proof == table {
		t.Errorf("the word that is nowhere else is an address: %#x", proof)
	}
}

// TestStatesAreUsedAgain has a hundred thousand threads come and go, fifty at a time, none with a key that was there before.
func TestStatesAreUsedAgain(t *testing.T) {
	l := Layout{Threads: 1000}
	s, err := New(wide, l, 0x1000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	const all, at = 100_000, 50
	key := func(i int) uint64 { return 0x7f00_0000_0000 + uint64(i)*0x801000 }
	for i := range all {
		if i >= at {
			s.Forget(1000 + i - at)
		}
		if s.Assign(Thread{Key: key(i), TID: 1000 + i}) < 0 {
			t.Fatalf("thread %d has no state, of %d", i, s.Given())
		}
	}
	if n := s.Given(); n > at+1 {
		t.Errorf("%d states for %d threads at a time", n, at)
	}
	for i := range all { // as where a libc gives a new thread the memory of one that has ended
		s.Forget(1000 + all + i - at)
		s.Assign(Thread{Key: key(all + i%at), TID: 1000 + all + i})
	}
	if n := len(s.freed); n > 4*s.Given() {
		t.Errorf("%d entries are remembered for %d states", n, s.Given())
	}
}

// TestStatesAreAllowed has no more states be given out than is agreed to.
func TestStatesAreAllowed(t *testing.T) {
	l := Layout{Threads: 100}
	s, err := New(wide, l, 0x1000_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	most, asked := 30, 0
	s.Allow(0, func(states, _ int) bool {
		asked++
		return states <= most
	}, nil)
	for i := range 40 {
		if got, want := s.Assign(Thread{Key: uint64(0x10000 + i*0x1000), TID: 1 + i}), i < 30; got >= 0 != want {
			t.Fatalf("thread %d has state %d, and %d are allowed", i, got, most)
		}
	}
	if s.Allowed() != 30 || s.Given() != 30 || asked > 40 {
		t.Errorf("%d of %d allowed states are given out, and %d times it was asked", s.Given(), s.Allowed(), asked)
	}
	most = 200
	s.Forget(1)
	for i, want := range []int{0, 30, 31} {
		if got := s.Assign(Thread{Key: uint64(0x90000 + i*0x1000), TID: 100 + i}); got != want {
			t.Errorf("thread %d then has state %d, not %d", i, got, want)
		}
	}
}

// TestStacksHaveTheirStates finds a thread's own stack pointer from wherever it is on its private stack, and from nowhere else.
func TestStacksHaveTheirStates(t *testing.T) {
	for _, l := range []Layout{{Threads: 600}, {Threads: 600, Counters: FirstHolds + 2*PieceHolds + 1, Grouped: true}} {
		s, err := New(wide, l, 0x1000_0000, make([]byte, l.Size()), 1)
		if err != nil {
			t.Fatal(err)
		}
		const given = 500
		for i := range given {
			s.Assign(Thread{Key: uint64(0x10000 + i*0x1000), TID: 1 + i})
			s.Put(s.State(i)+StateRSP, uint64(0x7000_0000+i))
		}
		for i := range l.Threads {
			top := s.StateAddr(i)
			for _, sp := range []arch.Addr{top - 1, top - 8, top - StackSize/2, top - StackSize} {
				if got, ok := s.Before(sp); ok != (i < given) || ok && got != arch.Addr(0x7000_0000+i) {
					t.Fatalf("%d counters: from %#x of thread %d's stack: %#x, %v", l.Counters, sp, i, got, ok)
				}
			}
			for _, sp := range []arch.Addr{top, top + 8, top + arch.Addr(Counter(max(l.Counters-1, 0)))} {
				if got, ok := s.Before(sp); ok && got == arch.Addr(0x7000_0000+i) {
					t.Fatalf("%d counters: %#x of thread %d's state is on a stack", l.Counters, sp, i)
				}
			}
		}
		for _, sp := range []arch.Addr{0, 8, s.Addr - 1, s.Addr, s.StateAddr(l.Threads), s.StateAddr(l.Threads) - 1, s.Addr + arch.Addr(l.Size()), 1 << 63, ^arch.Addr(0)} {
			if got, ok := s.Before(sp); ok {
				t.Errorf("%d counters: %#x leads to %#x", l.Counters, sp, got)
			}
		}
	}
}
