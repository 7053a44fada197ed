package bind

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
)

// calls is the address that the frame's call names; not direct: it names none.
func (f *frame) calls() (to arch.Addr, direct bool) {
	const call, size = 0xe8, 5
	b, err := f.m.File.Bytes(f.pc+1-size, size)
	if err != nil || b[0] != call {
		return 0, false
	}
	return f.m.InProcess(f.pc+1) + arch.Addr(int32(binary.LittleEndian.Uint32(b[1:]))), true
}

// written are the registers that the instructions write which lead to the frame's call without a branch. Not known: the
// function's code is not understood.
func (f *frame) written() (regs arch.RegSet, known bool) {
	fn, ok := f.m.File.FuncAt(f.pc)
	if !ok {
		return 0, false
	}
	code, err := f.m.File.Bytes(fn.Addr, fn.Size)
	if err != nil {
		return 0, false
	}
	type step struct {
		at     uint64
		writes arch.RegSet
	}
	var before []step // up to the call
	begins := fn.Addr // the last place up to the call that a branch leads to, or that is behind one
	begin := func(at uint64) {
		if at <= f.pc {
			begins = max(begins, at)
		}
	}
	for at := fn.Addr; at < fn.Addr+fn.Size; {
		rest := code[at-fn.Addr:]
		i, err := amd64.Decode(rest, 64)
		if err != nil {
			return 0, false
		}
		next := at + uint64(i.Len)
		switch i.Flow {
		case isa.Jump, isa.CondJump:
			begin(next + uint64(i.Rel))
			begin(next)
		case isa.IndirectJump, isa.Return:
			begin(next)
		}
		if at <= f.pc && f.pc < next && next != f.pc+1 {
			return 0, false // no call ends there
		}
		if next <= f.pc {
			u := i.Uses(rest)
			before = append(before, step{at, u.Writes})
		}
		at = next
	}
	for _, s := range before {
		if s.at >= begins {
			regs |= s.writes
		}
	}
	return regs, true
}
