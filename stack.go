package kprobe

import (
	"syscall"

	"kprobe/arch"
	"kprobe/internal/unwind"
)

// Stack walks the stack of the thread: the PC, and then where each function will return to, the program's own
// addresses even where return probes have swapped them; at most so many. end is why there are no more, "" where
// the stack's own end was reached. Errors: ENOTSUP of anything but a process of x86-64.
func (r *Regs) Stack(limit int) (pcs []uint64, end string, err error) {
	s := r.s
	if s.on.Arch != arch.AMD64 || s.OnCPUs() {
		return nil, "", fail(syscall.ENOTSUP, "stacks are walked of processes of x86-64 only")
	}
	w := unwind.Walk{Index: s.stacks.Of(s.on.Image.Space), Limit: limit, Read: unwind.InBlocks(s.ReadMem), Real: s.realReturn}
	pcs, why := w.From(unwind.Regs{PC: uint64(r.PC()), SP: uint64(r.SP()), FP: r.r[arch.AMD64.FP]})
	return pcs, why.String(), nil
}

// realReturn is the program's own return address of a call; false where nothing is known of it.
func (s *Session) realReturn(place, ret uint64) (uint64, bool) {
	real := s.calls.ComesBackTo(arch.Addr(place), arch.Addr(ret))
	return uint64(real), !s.calls.IsTrampoline(real)
}
