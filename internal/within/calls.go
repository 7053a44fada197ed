package within

import (
	"iter"

	"kprobe/arch"
	"kprobe/internal/ground"
	"kprobe/internal/inside"
	"kprobe/internal/mem"
	"kprobe/symbol"
	"kprobe/target"
)

// Target is the target as the calls under way see it (calls.World).
type Target struct {
	on *ground.Ground
	w  func() *Within
}

// TargetOf is a ground's. What is within may come later.
func TargetOf(on *ground.Ground, w func() *Within) Target {
	return Target{on, w}
}

// Word reads a word of the program's memory.
func (t Target) Word(at arch.Addr) (arch.Addr, error) {
	v, err := mem.Word(t.on.T, t.on.Arch, at)
	return arch.Addr(v), err
}

// PutWord writes a word of the program's memory.
func (t Target) PutWord(at, v arch.Addr) error {
	return mem.PutWord(t.on.T, t.on.Arch, at, uint64(v))
}

// Note tells the lifeline which return address a slot has, before it is swapped.
func (t Target) Note(slot, real arch.Addr, all func() (int, iter.Seq2[arch.Addr, arch.Addr])) error {
	return t.on.Text.Lifeline.NoteFrame(slot, real, all)
}

// Returns tells whether calls with this return address come back into a detour.
func (t Target) Returns(ret arch.Addr) bool {
	t.on.View.RLock()
	defer t.on.View.RUnlock()
	return t.w().Some() && t.w().Returns(ret)
}

// Way is where calls that come back into a detour go then, by their return address.
func (t Target) Way(slot arch.Addr) func(ret arch.Addr) arch.Addr {
	t.on.View.RLock()
	defer t.on.View.RUnlock()
	if !t.w().Some() {
		return func(ret arch.Addr) arch.Addr { return ret }
	}
	way := t.w().Way(slot)
	return func(ret arch.Addr) arch.Addr {
		t.on.View.RLock()
		defer t.on.View.RUnlock()
		return way(ret)
	}
}

// Called tells whether a word may be the return address of a call.
func (t Target) Called(word arch.Addr) bool { return t.on.Image.Origin().Called(word) }

// Keeps tells whether the target keeps the address of a call that returns to this one.
func (t Target) Keeps(word arch.Addr) bool {
	k, ok := t.on.T.(target.Keeper)
	return ok && k.Keeps(word)
}

// Kept are other places that have a return address, and Carried tells whether there may be any.
func (t Target) Kept(slot, ret arch.Addr) []arch.Addr {
	if k, ok := t.on.T.(target.Keeper); ok {
		return k.Kept(slot, ret)
	}
	return nil
}

func (t Target) Carried() bool {
	k, ok := t.on.T.(target.Keeper)
	return ok && k.Carried()
}

// Ended tells whether a goroutine has ended.
func (t Target) Ended(g arch.Addr, id uint64) bool {
	return t.on.Image.Goroutines().Ended(g, id, t.on.T)
}

// Maps is the program's memory, PID its process.
func (t Target) Maps() ([]symbol.Mapping, error) { return t.on.T.Maps() }
func (t Target) PID() int                        { return t.on.T.PID() }

// Walked are the detours while a thread's stack is walked (calls.Detours).
type Walked struct {
	w  *Within
	th target.Thread
	r  *arch.Regs
}

// Walked is that of a thread which stands with these registers; they are not asked of by SwapAgain.
func (w *Within) Walked(th target.Thread, r *arch.Regs) Walked { return Walked{w, th, r} }

// Hold keeps the detours as they are.
func (x Walked) Hold() (release func()) {
	x.w.on.View.RLock()
	return x.w.on.View.RUnlock
}

// Unswap puts the return addresses back that detours have swapped, but for those that are.
func (x Walked) Unswap(already []inside.Unswapped) []inside.Unswapped {
	if !x.w.Some() {
		return nil
	}
	return x.w.Unswap(x.th, x.r, x.w.on.T, already)
}

// SwapAgain undoes that.
func (x Walked) SwapAgain(d inside.Unswapped) {
	if x.w.Some() {
		x.w.SwapAgain(d, x.w.on.T)
	}
}

// End says that the call was unwound, perhaps.
func (x Walked) End(d inside.Unswapped) {
	if !x.w.Some() || !x.w.End(d, inside.OwnStack(x.w.on.T, x.th, x.r)) {
		return
	}
	for _, p := range x.w.probes(d.Detour) {
		p.Unwound()
	}
}
