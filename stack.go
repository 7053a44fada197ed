package kprobe

import (
	"syscall"

	"kprobe/arch"
	"kprobe/internal/roles"
	"kprobe/internal/unwind"
)

// Stack walks the stack of the thread: the PC, and then where each function will return to, the program's own
// addresses even where return probes have swapped them; at most so many. end is why there are no more, "" where
// the stack's own end was reached. A kernel's stack ends where a program was interrupted or has called it.
// Errors: ENOTSUP of anything but x86-64.
func (r *Regs) Stack(limit int) (pcs []uint64, end string, err error) {
	return r.s.StackFrom(uint64(r.PC()), uint64(r.SP()), r.v.R[r.s.e.On.Arch.FP], r.s.ReadMem, limit)
}

// StackFrom walks as Regs.Stack does, but from registers that were taken elsewhere, in the memory
// that read reads. The walk ends at a return address that was swapped and whose call has returned
// since: end says so. Errors: ENOTSUP on all machines but x86-64.
func (s *Session) StackFrom(pc, sp, fp uint64, read func(arch.Addr, []byte) error, limit int) (pcs []uint64, end string, err error) {
	if !s.e.On.Arch.Stacks {
		return nil, "", fail(syscall.ENOTSUP, "stacks are walked of x86-64 only")
	}
	w := unwind.Walk{Index: s.stacks.Of(s.e.On.Image.Space), Limit: limit, Read: unwind.InBlocks(read), Real: s.e.Calls.Real}
	pcs, why := w.From(unwind.Regs{PC: pc, SP: sp, FP: fp})
	return pcs, why.String(), nil
}

// Snapshot stops the target for a moment, and shows f each of its threads, of a kernel its CPUs, as it stands; f may do what a handler may. Not from
// a handler (EDEADLK). Errors: ESRCH.
func (s *Session) Snapshot(f func(*Regs)) (err error) {
	if f == nil {
		return fail(syscall.EINVAL, "no function given")
	}
	if err := s.e.Turns.Begin(); err != nil {
		return err
	}
	defer s.e.Turns.End(&err)
	return s.e.On.Owner.Frozen(func() error {
		s.e.Views(func(v *roles.View) bool { f(regsOf(v)); return true }, s.view)
		return nil
	})
}
