package traced

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/symbol"
)

// A program may ask without the function: by an instruction of its own, or by libc's syscall. A probe on that would cost every call of
// it a stop. But who asks says so in the text, as a constant that is given to the one or the other a few instructions before.

// number is that of ptrace among x86-64's system calls. Other machines are not looked at.
const number = 101

// rawReach is how many instructions may be between the constant and the call.
const rawReach = 12

// raw are the places in the program where it asks without Function: system calls, and calls of libc's syscall. What looks
// like one may be none, nor the start of an instruction: Arg knows when it is hit, the engine when it is placed.
func raw(space *symbol.Space, program *symbol.Module, set isa.ISA) (all []symbol.Loc) {
	if program == nil || program.File == nil || program.File.Machine() != elf.EM_X86_64 {
		return nil
	}
	type key struct{}
	found := program.File.Memo(key{}, func() any { return rawIn(program.File, set) })
	for _, at := range found.([]uint64) {
		if loc, ok := space.At(at + program.Bias); ok && loc.Off != 0 {
			all = append(all, loc)
		}
	}
	return all
}

func rawIn(f *symbol.File, set isa.ISA) (all []uint64) {
	var callees []arch.Addr
	for _, name := range []string{"syscall", "syscall@plt"} {
		for _, s := range f.Lookup(name) {
			callees = append(callees, arch.Addr(s.Addr))
		}
	}
	constant := binary.LittleEndian.AppendUint32(nil, number)
	for _, text := range f.Text() {
		off, ok := f.OffOf(text.Start)
		code := make([]byte, text.End-text.Start)
		if !ok {
			continue
		}
		if n, _ := f.Reader().ReadAt(code, int64(off)); n < len(code) {
			continue
		}
		for i := 0; ; i += len(constant) {
			next := bytes.Index(code[i:], constant)
			if next < 0 {
				break
			}
			i += next
			if i == 0 {
				continue
			}
			if at, ok := leadsTo(code[i-1:], text.Start+uint64(i-1), callees, set); ok && !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	return all
}

// leadsTo is where the constant that the first instruction loads, with whatever prefix, is used.
func leadsTo(code []byte, pc uint64, callees []arch.Addr, set isa.ISA) (uint64, bool) {
	flow := isa.Syscall
	switch code[0] {
	case 0xb8, 0xc0: // mov to eax, in its two forms
	case 0xbf, 0xc7: // to edi
		flow = isa.Call
	default:
		return 0, false
	}
	for i, n := 5, 0; i < len(code) && n < rawReach; n++ {
		insn, err := set.Decode(code[i:min(len(code), i+16)], arch.Addr(pc)+arch.Addr(i))
		switch {
		case err != nil:
			return 0, false
		case insn.Flow == flow && (flow == isa.Syscall || slices.Contains(callees, insn.Target)):
			return pc + uint64(i), true
		case insn.Flow != isa.Next:
			return 0, false
		}
		i += insn.Len
	}
	return 0, false
}

// Arg gives the arguments of ptrace at one of the Places, off bytes behind a function's start, from those that a function has
// there; ax is what the register of results has. The request is an error where something else is called.
func Arg(off uint64, arg func(n int) (uint64, error), ax uint64) func(n int) (uint64, error) {
	if off == 0 {
		return arg // Function itself
	}
	if first, err := arg(0); err == nil && uint32(first) == number { // no request is
		return func(n int) (uint64, error) { return arg(n + 1) }
	}
	if uint32(ax) == number {
		return arg // the kernel's first three are the same ones
	}
	return func(int) (uint64, error) { return 0, errors.ErrUnsupported }
}
