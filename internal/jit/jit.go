package jit

import (
	"fmt"

	"kprobe/arch"
	"kprobe/bpf"
)

// Env describes the place that a program is compiled for.
type Env struct {
	// Segment is the target's address of the shared memory in which the maps lie
	// as Layout says. Layout's maps are the program's, in the same order.
	Segment arch.Addr
	Layout  *bpf.Layout

	// Clock turns the time-stamp counter into what ktime_get_ns answers. Where it
	// is nil the helper is called.
	Clock *Clock

	// CPU is the offset from gs of a kernel's 4 bytes, each CPU's own, with the CPU's number. Where
	// it is nil, as in a process, the helper is called.
	CPU *int32
}

// Clock is a time-stamp counter that ticks evenly: the time in nanoseconds is
//
//	Base + counter*Mult >> Shift
//
// with a product of 128 bits. Shift is from 1 to 63. It is part of the code and stays
// as it is: in a long run it goes apart from CLOCK_MONOTONIC, which is adjusted, by
// up to 500 parts in a million.
type Clock struct {
	Base  uint64
	Mult  uint64
	Shift uint8
}

// Code is a compiled program, complete but for where it and the routines that it
// calls will be: Link puts that in. The entry is the first byte.
type Code struct {
	Bytes []byte
	Calls []Call

	// Lines has for every instruction slot the offset of its machine code. One
	// that needed none has that of the next.
	Lines []int

	// Stack is the largest number of bytes of the private stack that the program takes below the
	// address that it returns to, without its helpers' bytes.
	Stack int

	// Clobbers are the registers that may have changed when the program
	// returns, or while it runs: a bit for each, by its arch.Reg on the machine.
	Clobbers arch.RegSet

	// Context has a bit for each word of the context that may be read; see
	// ContextWords.
	Context uint64

	Needs Needs

	link linker
}

// linker aims a call, at its field's address or that of the code behind it as the machine has it;
// false: it does not reach.
type linker func(field []byte, from, to arch.Addr) bool

// Call is a place in a program's code that calls a helper.
type Call struct {
	Offset int   // of the field that leads there, which says nothing until linked: a rel32, A64's word, or two of RISC-V
	Helper int32 // its number
}

// Link gives the program's bytes for the address at, with calls of the helpers'
// routines at the addresses that helper answers for their numbers.
//
// Errors: a helper has no routine, or it is out of a call's reach.
func (c *Code) Link(at arch.Addr, helper func(int32) (arch.Addr, bool)) ([]byte, error) {
	b := append([]byte(nil), c.Bytes...)
	for _, call := range c.Calls {
		to, ok := helper(call.Helper)
		if !ok {
			return nil, fmt.Errorf("jit: no routine for helper %d", call.Helper)
		}
		if !c.link(b[call.Offset:], at+arch.Addr(call.Offset), to) {
			return nil, fmt.Errorf("jit: helper %d at %v is out of reach of the program at %v", call.Helper, to, at)
		}
	}
	return b, nil
}
