package inside

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/returns"
	"kprobe/internal/segment"
	"kprobe/target"
)

// Whoever walks a stack must find the program's own return addresses there. A thread
// that is about to is stopped, and so in no detour and in no routine: its calls'
// addresses can be exchanged as if it had not made them.

// Unswapped is a call whose real return address is in its slot, in place of a detour's.
type Unswapped struct {
	Detour *Detour // that it would return into
	call   segment.Call
	ret    arch.Addr // what was in the slot
}

// Unswap puts the real return addresses back of the calls of a thread that is stopped with these
// registers. A slot may have several calls, each of which is the next one's caller:
// ask until there are none, and tell which of them have been put back already. A function that comes
// twice in a chain of tail calls has two calls there with one and the same address.
func (in *Inside) Unswap(th target.Thread, r *arch.Regs, mem arch.Memory, already []Unswapped) (us []Unswapped) {
	calls := in.Seg.CallsOf(in.key(th, r, mem))
	for _, u := range already {
		if i := slices.Index(calls, u.call); i >= 0 {
			calls = slices.Delete(calls, i, i+1)
		}
	}
	for _, c := range calls {
		word, err := in.word(mem, c.Slot)
		if err != nil {
			continue
		}
		d := in.returning(word)
		if d != nil && d.Detour.Return.ID == c.Probe && in.putWord(mem, c.Slot, c.Ret) == nil {
			us = append(us, Unswapped{d, c, word})
		}
	}
	return us
}

// Way answers where a call with a stack slot goes in the end that would return to an
// address: where that is a detour's, and its call's again, on to the next. Each was a call that
// ended in a jump to the one before. Asked once more, it goes on from there: where somebody else has
// swapped the address in between, the function of a detour may come again further out, and that is another call.
func (in *Inside) Way(slot arch.Addr) func(ret arch.Addr) arch.Addr {
	step := in.steps(slot)
	return func(ret arch.Addr) arch.Addr {
		for next, ok := step(ret); ok; next, ok = step(ret) {
			ret = next
		}
		return ret
	}
}

// leadsTo tells whether to is on that way.
func (in *Inside) leadsTo(slot, ret, to arch.Addr) bool {
	step := in.steps(slot)
	for next, ok := step(ret); ok; next, ok = step(next) {
		if next == to {
			return true
		}
	}
	return false
}

// steps goes one step of the way each time that it is called.
func (in *Inside) steps(slot arch.Addr) func(ret arch.Addr) (next arch.Addr, ok bool) {
	var calls []segment.Call
	read := false
	return func(ret arch.Addr) (arch.Addr, bool) {
		d := in.returning(ret)
		if d == nil {
			return 0, false
		}
		if !read {
			calls, read = in.Seg.Calls(), true
		}
		i := slices.IndexFunc(calls, func(c segment.Call) bool { return c.Slot == slot && c.Probe == d.Detour.Return.ID })
		if i < 0 {
			return 0, false
		}
		next := calls[i].Ret
		calls = slices.Delete(calls, i, i+1)
		return next, true
	}
}

// Returns tells whether calls with this return address come back into a detour.
func (in *Inside) Returns(ret arch.Addr) bool { return in.returning(ret) != nil }

// returning is the detour that calls with this return address return into, if any.
func (in *Inside) returning(ret arch.Addr) *Detour {
	d := in.Find(ret)
	if d == nil || !d.Returns() {
		return nil
	}
	if at, err := d.ReturnAt(); err != nil || at != ret {
		return nil
	}
	return d
}

// SwapAgain undoes it for a call that is still under way and watched.
func (in *Inside) SwapAgain(u Unswapped, mem arch.Memory) {
	word, err := in.word(mem, u.call.Slot)
	if err == nil && word == u.call.Ret && in.Find(u.ret) == u.Detour && in.Seg.Has(u.call) {
		in.putWord(mem, u.call.Slot, u.ret)
	}
}

// OwnStack is the part in use of the stack that a stopped thread was born with; all of it where
// the thread stands on another.
func OwnStack(t target.Target, th target.Thread, r *arch.Regs) arch.Range {
	maps, _ := t.Maps()
	stack := returns.NativeStack(maps, int(th) == t.PID(), PointerOf(t, th, r))
	if sp := r.Addr(t.Arch().SP); stack.Contains(sp) {
		stack.Start = sp
	}
	return stack
}

// End takes a call off its list that may be over when the walk is, if it is on a stack
// that is its thread's own: nobody else can return from there. Calls on others, coroutines', stay
// on the list until their slot is used again.
func (in *Inside) End(u Unswapped, stack arch.Range) bool {
	if u.call.Slot < stack.Start || u.call.Slot >= stack.End || !in.Seg.Has(u.call) {
		return false
	}
	in.Seg.Drop(u.call)
	return true
}
