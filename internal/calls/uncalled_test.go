package calls

import (
	"testing"

	"kprobe/arch"
)

// What a function is jumped to with is no return address, and stays; a detour's return address is one, whatever it leads to.
func TestWhatIsNotCalledIsMissed(t *testing.T) {
	w := newWorld()
	u := New[int](w, arch.AMD64)
	u.SetTrampoline(trampolineAt)
	p := &Probe[int]{}
	p.Reset(10, func() bool { return false })
	asked := 0
	swap := func(slot, word arch.Addr) Outcome {
		w.mem[slot] = word
		return u.Swap(p, Spot{Thread: 1, SP: slot}, func(*Call[int]) bool { asked++; return true })
	}
	for _, tt := range []struct {
		word arch.Addr
		want Outcome
	}{{0, Missed}, {1, Missed}, {keptAt - 8, Missed}, {sitesAt, Watched}, {detour(3), Watched}} {
		slot := stacksAt + 8*tt.word%stackSize
		if got := swap(slot, tt.word); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.word, got, tt.want)
		}
		if stays := w.mem[slot] == tt.word; stays != (tt.want == Missed) {
			t.Errorf("%v has become %v", tt.word, w.mem[slot])
		}
	}
	if asked != 2 {
		t.Errorf("the owner was asked %d times", asked)
	}
}
