package inside

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
)

// A detour keeps registers on the program's own stack. A thread may have too little left of it: a function that calls none at the end
// of a stack with a guard page, a runtime's stacks, a signal's of the least size. It takes a fault in our code then. That is no
// fault of the program's, and nothing has happened yet: the thread goes on in the displaced instructions, and its hit is missed.

// pass has a thread pass by a detour that its stack has no room for; false where that is not what has stopped it. Errors: of
// the memory.
func (in *Inside) pass(d *Detour, r *arch.Regs, mem arch.Memory) (passed bool, err error) {
	at, err := d.NoRoom(r, mem.ReadAt)
	if at == nil {
		return false, err
	}
	at.Regs[in.arch.PC] = uint64(at.Resume)
	in.missed(d)
	in.cramped = append(in.cramped, d)
	return true, leave(at, r, mem)
}

// missed counts a hit of a detour as missed, as it does itself where its programs cannot run.
func (in *Inside) missed(d *Detour) {
	n := d.Detour.Missed
	if n == inject.NoCounter {
		n = d.Detour.Hits
	}
	in.Seg.Lose(n)
	if d.Detour.Return != nil {
		in.Seg.Lose(d.Detour.Return.Missed)
	}
	for _, e := range d.Enters {
		in.Seg.Lose(e.Missed)
	}
}

// Cramped are the detours that threads had no room for since it was last asked. It is asked by the one who serves the target's
// stops.
func (in *Inside) Cramped() (ds []*Detour) {
	ds, in.cramped = in.cramped, nil
	return ds
}

// Needs tells whether a detour is of no use without another: that is itself, or of the same function's entry and exits.
func (d *Detour) Needs(other *Detour) bool {
	return d == other || slices.ContainsFunc(d.accounts, func(r *Returns) bool { return slices.Contains(other.accounts, r) })
}
