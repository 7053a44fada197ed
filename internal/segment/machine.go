package segment

import (
	"kprobe/arch"
	"kprobe/internal/jit"
)

// Machine has what a segment needs to know of a machine. What is in it is the same for all: words
// have 8 bytes, of which 32-bit code uses the lower half where they are addresses, and the upper one
// stays 0.
type Machine struct {
	*arch.Arch

	// What programs need; nil and empty where detours only count.
	Code   *jit.Machine
	Fixed  map[int]uint64 // words of the context that have always one value
	BackAt int            // offset of a program's return address from the beginning of its private stack
}

// WordAt is the offset from the state of a word of the context.
func (m *Machine) WordAt(i int) int { return 8 * (i - m.Code.Words) }

// Narrow tells whether its addresses have 32 bits.
func (m *Machine) Narrow() bool { return m.PtrSize == 4 }

// TargetSP is how far below a thread's state its private stack begins: below the context, with the
// program's own stack pointer on top.
func (m *Machine) TargetSP() arch.Addr {
	if m.Code == nil {
		return 0
	}
	return arch.Addr(RoundUp(8*m.Code.Words+8, 16))
}

// ReturnTo is where, in memory, a thread that runs a program has the address that the program will
// return to: x86 where the call has put it, below the private stack's beginning, and arm64 beside the
// program's own stack pointer, for the detour to go by. It is to be replaced by Area.TrapExit, and the
// thread sent to the address that was there, which BackAt keeps, when it has trapped. r are the
// thread's registers: programs and helpers keep that of its state.
func (s *Segment) ReturnTo(r *arch.Regs) arch.Addr {
	m := s.machine
	return arch.Addr(r[m.Code.State]) - m.TargetSP() + arch.Addr(m.BackAt)
}

// BackAt is where, in memory, the address is to be kept that was in ReturnTo, before it is
// replaced.
func (s *Segment) BackAt(r *arch.Regs) arch.Addr {
	return arch.Addr(r[s.machine.Code.State]) + stateBack
}
