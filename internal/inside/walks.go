package inside

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/target"
)

// Whoever walks a stack must find the program's own return addresses there. A thread
// that is about to is stopped, and so in no detour and in no routine: its calls'
// addresses can be exchanged as if it had not made them.

// Unswapped is a call whose real return address is in its slot, in place of a detour's.
type Unswapped struct {
	Detour *Detour // that it would return into
	call   inject.Call
	ret    arch.Addr // what was in the slot
}

// Unswap puts the real return addresses back of the calls of a thread that is stopped with these
// registers. A slot may have several calls, each of which is the next one's caller:
// ask until there are none.
func (in *Inside) Unswap(th target.Thread, r *arch.Regs, mem Memory) (us []Unswapped) {
	for _, c := range in.Seg.CallsOf(in.key(th, r, mem)) {
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

// Follow answers where a call with a stack slot goes in the end that would return to an
// address: where that is a detour's, and its call's again, on to the next. Each was a call that
// ended in a jump to the one before.
func (in *Inside) Follow(slot, ret arch.Addr) arch.Addr {
	in.follow(slot, ret, func(to arch.Addr) bool { ret = to; return true })
	return ret
}

// leadsTo tells whether to is on the way that Follow goes.
func (in *Inside) leadsTo(slot, ret, to arch.Addr) (yes bool) {
	in.follow(slot, ret, func(next arch.Addr) bool { yes = next == to; return !yes })
	return yes
}

// follow tells of each step of the way.
func (in *Inside) follow(slot, ret arch.Addr, step func(arch.Addr) bool) {
	d := in.returning(ret)
	if d == nil {
		return
	}
	for calls := in.Seg.Calls(); d != nil; d = in.returning(ret) {
		i := slices.IndexFunc(calls, func(c inject.Call) bool { return c.Slot == slot && c.Probe == d.Detour.Return.ID })
		if i < 0 || !step(calls[i].Ret) {
			return
		}
		ret = calls[i].Ret
		calls = slices.Delete(calls, i, i+1)
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
func (in *Inside) SwapAgain(u Unswapped, mem Memory) {
	word, err := in.word(mem, u.call.Slot)
	if err == nil && word == u.call.Ret && in.Find(u.ret) == u.Detour && in.Seg.Has(u.call) {
		in.putWord(mem, u.call.Slot, u.ret)
	}
}

// OwnStack is the part in use of the stack that a stopped thread was born with; all of it where
// the thread stands on another.
func OwnStack(t target.Target, th target.Thread, r *arch.Regs) patch.Range {
	maps, _ := t.Maps()
	stack := returns.NativeStack(maps, int(th) == t.PID(), t.Arch().ThreadPointer(r))
	if sp := arch.Addr(r[arch.SP]); sp >= stack.Start && sp < stack.End {
		stack.Start = sp
	}
	return stack
}

// End takes a call off its list that may be over when the walk is, if it is on a stack
// that is its thread's own: nobody else can return from there. Calls on others, coroutines', stay
// on the list until their slot is used again.
func (in *Inside) End(u Unswapped, stack patch.Range) bool {
	if u.call.Slot < stack.Start || u.call.Slot >= stack.End || !in.Seg.Has(u.call) {
		return false
	}
	in.Seg.Drop(u.call)
	return true
}
