package segment

import (
	"math/rand/v2"
	"testing"

	"kprobe/arch"
)

// led is what the gate does: it looks at entries until it has found the trap, or one that was never used.
func led(s *Segment, at arch.Addr) (to uint64, known bool) {
	for e := s.TrapsAt() + int(uint32(at)*HashFactor>>TrapShift)&TrapMask; ; e += TrapEntry {
		switch s.Get(e) {
		case uint64(at):
			return s.Get(e + 8), true
		case 0:
			return 0, false
		}
	}
}

// Traps come and go at random, more than there is room for. What the gate finds is what was said last; who
// has left is known until nobody can be on his way from there, and nobody else has his entry.
func TestTrapTable(t *testing.T) {
	l := Layout{Threads: 1, Counters: 1, Gate: true}
	s, err := New(wide, l, 0x10_0000, make([]byte, l.Size()), 1)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	want := make(map[arch.Addr]uint64) // 0: it has left
	refused := 0
	rounds := 40
	if testing.Short() {
		rounds = 12 // the race detector takes two hundred times as long
	}
	for round := range rounds {
		for range 1000 {
			at := arch.Addr(0xffff_ffff_8100_0000) + arch.Addr(rnd.IntN(1<<14))
			_, known := want[at]
			if known && rnd.IntN(2) == 0 {
				s.LeaveTrap(at)
				want[at] = 0
				continue
			}
			room, to := s.RoomForTrap(at), rnd.Uint64()|1
			if s.LeadTrap(at, arch.Addr(to)) != room || known && !room {
				t.Fatalf("%v: room %v, known %v", at, room, known)
			}
			if !room {
				refused++
				continue
			}
			want[at] = to
		}
		if round%4 == 3 {
			s.ForgetTraps()
			for at, to := range want {
				if to == 0 {
					delete(want, at)
				}
			}
		}
		for at := arch.Addr(0xffff_ffff_8100_0000); at < 0xffff_ffff_8100_0000+1<<14; at++ {
			to, known := led(s, at)
			if w, ours := want[at]; known != ours || to != w {
				t.Fatalf("round %d: %v leads to %#x (%v), want %#x (%v)", round, at, to, known, w, ours)
			}
		}
	}
	if refused == 0 || len(want) < 1<<trapBits/2 {
		t.Errorf("%d refused, %d traps", refused, len(want))
	}
}
