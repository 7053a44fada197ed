// Package samples takes samples of a process's threads by the kernel's counters
// (perf_event_open(2)): each time that an event has happened so often, the registers and
// the top of the stack of the thread that it happened to. Threads are not stopped for it, and
// no privilege is needed for processes of one's own where kernel.perf_event_paranoid is 2 or less.
package samples

import "encoding/binary"

// Event is an event that is counted, by the kernel's numbers.
type Event struct {
	Type   uint32 // Software or Hardware
	Config uint64 // which one of its kind
	Period uint64 // a sample is taken each time that so many have happened; of clocks nanoseconds
}

// Types of events.
const (
	Hardware = 0
	Software = 1
)

// Sample is one that was taken.
type Sample struct {
	PID, TID int
	CPU      uint32
	Time     uint64 // nanoseconds of the monotonic clock
	of       *registers
	regs     []uint64
	stack    []byte // from the stack pointer on
}

// Reg is a register by the name that struct pt_regs has for it in programs.
func (s *Sample) Reg(name string) uint64 {
	i, ok := s.of.at[name]
	if !ok || i >= len(s.regs) {
		return 0
	}
	return s.regs[i]
}

// Stack copies memory of the sampled stack, as it was. It is false for addresses outside of it.
func (s *Sample) Stack(addr uint64, to []byte) bool {
	off := addr - s.Reg(s.of.sp)
	if off > uint64(len(s.stack)) || uint64(len(to)) > uint64(len(s.stack))-off {
		return false
	}
	copy(to, s.stack[off:])
	return true
}

// parse reads the body of a record that Open asks for; false for one without registers, as of a
// thread of the kernel, or of a program of another word.
func parse(b []byte, s *Sample) bool {
	const native = 2 // PERF_SAMPLE_REGS_ABI_64
	if len(b) < 32 {
		return false
	}
	s.PID, s.TID = int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	s.Time, s.CPU = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])
	abi := binary.LittleEndian.Uint64(b[24:])
	b = b[32:]
	n := len(s.of.at)
	if abi != native || len(b) < 8*n+8 {
		return false
	}
	s.regs = s.regs[:0]
	for i := range n {
		s.regs = append(s.regs, binary.LittleEndian.Uint64(b[8*i:]))
	}
	b = b[8*n:]
	size := binary.LittleEndian.Uint64(b)
	if b = b[8:]; size == 0 {
		s.stack = nil
		return true
	}
	if uint64(len(b)) < size+8 {
		return false
	}
	is := min(binary.LittleEndian.Uint64(b[size:]), size) // the bytes that there were
	s.stack = b[:is]
	return true
}
