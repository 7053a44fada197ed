package lifeline

import (
	"maps"
	"math/rand/v2"
	"testing"

	"kprobe/arch"
)

// A recovery reads back from memory what the writes have put there.
func TestFramesAreReadBack(t *testing.T) {
	const base = 0x10000
	trap := NewTrap(AMD64, base, 7)
	mem := make([]byte, TrapSize())
	write := func(w Write) { copy(mem[w.Addr-base:], w.New) }
	write(Write{base, trap.Image([SigactSize]byte{})})
	f := trap.NewFrames()
	want := make(map[arch.Addr]arch.Addr)
	rnd := rand.New(rand.NewPCG(1, 2))
	rebuilt := 0
	holds := func(when string) {
		t.Helper()
		found, err := Read(arch.AMD64, base, func(at arch.Addr, p []byte) error {
			copy(p, mem[at-base:])
			return nil
		})
		if err != nil || !maps.Equal(found.Frames, want) {
			t.Fatalf("%s: %v; %d frames read back, want %d", when, err, len(found.Frames), len(want))
		}
	}
	for range 3 * FrameSlots {
		if f.Crowded() {
			left := maps.Clone(want)
			for sp := range want {
				if len(left) > f.Room() {
					delete(left, sp)
				}
			}
			ws := f.Rebuild(maps.All(left))
			for _, w := range ws[:len(ws)-1] {
				write(w)
				holds("before the last write of a rebuild")
			}
			write(ws[len(ws)-1])
			want = left
			holds("after it")
			rebuilt++
		}
		sp, ret := arch.Addr(0x7fff_0000_0000+8*rnd.IntN(1<<20)), arch.Addr(1+rnd.IntN(2))
		w, changed := f.Set(sp, ret)
		if changed == (want[sp] == ret) {
			t.Fatalf("%v: changed is %v", sp, changed)
		}
		if changed {
			write(w)
		}
		want[sp] = ret
	}
	holds("at the end")
	if rebuilt == 0 {
		t.Error("it was never crowded")
	}
}

// A session that swaps no return address needs no table of them, and one that swaps any has it.
func TestFramesAreMadeWhenUsed(t *testing.T) {
	trap := NewTrap(AMD64, 0x10000, 1)
	f := trap.NewFrames()
	if f.sps != nil || f.Crowded() || f.Room() == 0 {
		t.Errorf("a table of %d, room for %d", len(f.sps), f.Room())
	}
	if _, changed := f.Set(0x7000, 0x401000); !changed {
		t.Error("the first is not noted")
	}
	if _, changed := f.Set(0x7000, 0x401000); changed {
		t.Error("it is noted twice")
	}
}
