package traced

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/symbol"
)

// A program may ask without the function: by an instruction of its own, by libc's syscall, or by those of Go's packages. A probe on that would cost every call of
// it a stop. But who asks says so in the text, as a constant: in the function that makes the system call, or a few instructions before a call of
// what makes any.

// rawReach is how many instructions may be between the constant and the call of a function.
const rawReach = 12

// What makes any system call for its caller: C's function has the number for its first argument, in edi, and Go's have it in eax.
var (
	ofC  = []string{"syscall", "syscall@plt"}
	ofGo = []string{
		"syscall.Syscall", "syscall.Syscall6", "syscall.RawSyscall", "syscall.RawSyscall6",
		"golang.org/x/sys/unix.Syscall", "golang.org/x/sys/unix.Syscall6", "golang.org/x/sys/unix.RawSyscall", "golang.org/x/sys/unix.RawSyscall6",
	}
)

// raw are the places in a file where it makes a system call of x86-64's without libc's function: system calls, and calls of what makes any. What looks
// like one may be none, nor the start of an instruction: Arg knows when it is hit, the engine when it is placed.
func raw(space *symbol.Space, m *symbol.Module, set isa.ISA, number byte) (all []symbol.Loc) {
	if m.File == nil || m.File.Machine() != elf.EM_X86_64 {
		return nil
	}
	type key struct{ number byte }
	found := m.File.Memo(key{number}, func() any { return rawIn(m.File, set, number) })
	for _, at := range found.([]uint64) {
		if loc, ok := space.At(m.InProcess(at)); ok && loc.Off != 0 {
			all = append(all, loc)
		}
	}
	return all
}

func rawIn(f *symbol.File, set isa.ISA, number byte) (all []uint64) {
	addresses := func(names []string) (all []arch.Addr) {
		for _, name := range names {
			for _, s := range f.Lookup(name) {
				all = append(all, arch.Addr(s.Addr))
			}
		}
		return all
	}
	c, goes := addresses(ofC), addresses(ofGo)
	for _, text := range f.Text() {
		off, ok := f.OffOf(text.Start)
		code := make([]byte, text.End-text.Start)
		if !ok {
			continue
		}
		if n, _ := f.Reader().ReadAt(code, int64(off)); n < len(code) {
			continue
		}
		function := func(at uint64) (symbol.Symbol, []byte) {
			fn, ok := f.FuncAt(at)
			if !ok || fn.Addr < text.Start || fn.Size > text.End-fn.Addr {
				return fn, nil
			}
			return fn, code[fn.Addr-text.Start:][:fn.Size]
		}
		calls := func(at arch.Addr) bool {
			_, code := function(uint64(at))
			return slices.Contains(c, at) || len(systemCalls(code, uint64(at), set)) > 0
		}
		var seen uint64
		for _, i := range constants(code, number) {
			if at, ok := leadsTo(code[i:], text.Start+uint64(i), calls, goes, set); ok {
				all = append(all, at)
			}
			if fn, code := function(text.Start + uint64(i)); code != nil && fn.Addr != seen {
				seen = fn.Addr
				all = append(all, systemCalls(code, fn.Addr, set)...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// constants are where the opcodes stand, or the last bytes of them, of what looks like an instruction with the number.
func constants(code []byte, number byte) (all []int) {
	for _, constant := range [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(number)), {push, number}, {toAL, number}} {
		for i := 0; ; i++ {
			next := bytes.Index(code[i:], constant)
			if next < 0 {
				break
			}
			if i += next; len(constant) == 2 {
				all = append(all, i)
			} else if i > 0 {
				all = append(all, i-1)
			}
		}
	}
	slices.Sort(all)
	return all
}

const push, toAL = 0x6a, 0xb0

// systemCalls are a function's. One that has the number somewhere may make any of them with it, however far away: in a loop, by a register.
func systemCalls(code []byte, pc uint64, set isa.ISA) (all []uint64) {
	for i := 0; i < len(code); {
		insn, err := set.Decode(code[i:min(len(code), i+16)], arch.Addr(pc)+arch.Addr(i))
		if err != nil {
			break
		}
		if insn.Flow == isa.Syscall {
			all = append(all, pc+uint64(i))
		}
		i += insn.Len
	}
	return all
}

// leadsTo is where the constant that the first instruction loads, with whatever prefix, is used: c tells what may be called with it
// as the first argument, goes are what may with it in eax.
func leadsTo(code []byte, pc uint64, c func(arch.Addr) bool, goes []arch.Addr, set isa.ISA) (uint64, bool) {
	callee, calls := c, false
	switch code[0] {
	case 0xb8, 0xc0: // mov to eax, in its two forms
		callee, calls = func(at arch.Addr) bool { return slices.Contains(goes, at) }, true
	case 0xbf, 0xc7: // to edi
	default:
		return 0, false
	}
	for i, n := 5, 0; i < len(code) && n < rawReach; n++ {
		insn, err := set.Decode(code[i:min(len(code), i+16)], arch.Addr(pc)+arch.Addr(i))
		switch {
		case err != nil:
			return 0, false
		case insn.Flow == isa.Syscall && calls || insn.Flow == isa.Call && insn.PCRel && callee(insn.Target):
			return pc + uint64(i), true
		case insn.Flow != isa.Next:
			return 0, false
		}
		i += insn.Len
	}
	return 0, false
}

// CallAt is the call that is made at one of the Places, with arguments as a function has them there; ax is what the register of
// results has. Where Go code calls a function, goArgs reads all that this will be given. It has errors for arguments where something else is called.
func CallAt(at symbol.Loc, insn isa.Insn, arg func(n int) (uint64, error), goArgs func(ptrs ...any) error, ax uint64, mem arch.Reader) Call {
	all := slices.Concat(tracers, executers)
	if i := slices.IndexFunc(all, func(a asked) bool { return a.function == strings.TrimLeft(at.Func.Name, "_") }); at.Off == 0 && i >= 0 {
		return Call{all[i], arg, mem}
	}
	if insn.Flow == isa.Call && at.Go() {
		arg = func(n int) (uint64, error) {
			var all [3]uint64
			err := goArgs(&all[0], &all[1], &all[2])
			return all[n], err
		}
	}
	first, err := arg(0)
	for _, a := range all {
		switch {
		case a.number == 0:
		case err == nil && uint32(first) == uint32(a.number): // no request is, and no path
			return Call{a, func(n int) (uint64, error) { return arg(n + 1) }, mem}
		case uint32(ax) == uint32(a.number):
			return Call{a, arg, mem} // the kernel's first three are the same ones
		}
	}
	return Call{arg: func(int) (uint64, error) { return 0, errors.ErrUnsupported }}
}
