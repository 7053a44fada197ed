//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
)

// A seccomp filter may kill its process for a system call that the program never
// makes. Calls of ours are made in such a process only where the filter, read from
// the kernel and run here on the very arguments, allows them. To read it takes
// CAP_SYS_ADMIN (ptrace(2), PTRACE_SECCOMP_GET_FILTER).

// filterInput is the kernel's struct seccomp_data in words: the call's number, the
// machine, the instruction's address, six arguments.
type filterInput struct {
	word    [16]uint32
	unknown []int // words that may be anything
}

const (
	inputCall, inputMachine, inputArgs = 0, 1, 4
)

// callInput is the input for a call that is about to be made with these registers.
func (a *abi) callInput(r *registers) *filterInput {
	in := new(filterInput)
	in.word[inputCall], in.word[inputMachine] = uint32(r.number()), a.audit
	put := func(i int, v uint64) { in.word[i], in.word[i+1] = uint32(v), uint32(v>>32) }
	put(2, r.pc()+a.callLen)
	for i, reg := range a.args(r) {
		put(inputArgs+2*i, *reg)
	}
	return in
}

// unmapInput is the input for unmapping memory some time, from wherever.
func (a *abi) unmapInput(addr arch.Addr, size int) *filterInput {
	var r registers
	r.beginCall(a.munmap)
	regs := a.args(&r)
	*regs[0], *regs[1] = uint64(addr), uint64(size)
	in := a.callInput(&r)
	in.unknown = append(in.unknown, 2, 3)
	for i := inputArgs + 2*2; i < len(in.word); i++ {
		in.unknown = append(in.unknown, i)
	}
	return in
}

// returnInput is the input for the return from a signal handler, wherever and with
// whatever in the registers: the lifeline's handler must be able to return, and a task
// that makes a call for us, should we die.
func (a *abi) returnInput() *filterInput {
	in := new(filterInput)
	in.word[inputCall], in.word[inputMachine] = uint32(a.sigreturn), a.audit
	for i := inputMachine + 1; i < len(in.word); i++ {
		in.unknown = append(in.unknown, i)
	}
	return in
}

// filtersAllow refuses calls that the filters of a stopped task do not allow. none tells that it has
// no filters: nobody gives it one while the whole process stands still.
func filtersAllow(tid int, calls ...*filterInput) (none bool, err error) {
	for index := 0; ; index++ {
		filter, err := readFilter(tid, index)
		if index > 0 && err == unix.ENOENT {
			return false, nil
		}
		if err != nil {
			// There is none, or that of the strict mode, or this user may not read it.
			mode, e := statusField(tid, tid, "Seccomp")
			if e != nil || mode == "0" {
				return e == nil, nil // or gone
			}
			return false, fmt.Errorf("thread %d has a seccomp filter (mode %s), which may kill it for a system call of ours, and to read what it allows takes CAP_SYS_ADMIN: %w", tid, mode, unix.EACCES)
		}
		for _, in := range calls {
			if !filter.allows(in) {
				return false, fmt.Errorf("the seccomp filter of thread %d does not allow system call %d, which would have to be made in it: %w", tid, in.word[inputCall], unix.EACCES)
			}
		}
	}
}

// filter is a program of the classic BPF.
type filter []unix.SockFilter

// readFilter reads the one of a stopped task's filters that has an index, the
// newest first. Errors: ENOENT, there are no more; EINVAL, there is none; EACCES.
func readFilter(tid, index int) (filter, error) {
	if err := faults.At("ptrace", unix.PTRACE_SECCOMP_GET_FILTER); err != nil {
		return nil, err
	}
	n, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), uintptr(index), 0, 0, 0)
	if e != 0 {
		return nil, e
	}
	f := make(filter, n) // one that is not empty, and does not change
	n, _, e = unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), uintptr(index), uintptr(unsafe.Pointer(&f[0])), 0, 0)
	if e != 0 {
		return nil, e
	}
	return f[:n], nil
}

// allows runs the filter. What it does not understand, or what depends on words that
// are not known, is not allowed.
func (f filter) allows(in *filterInput) bool {
	const mode, size, class, source = 0xe0, 0x18, 0x07, 0x08
	var a, x uint32
	var mem [16]uint32
	for pc := 0; pc < len(f); pc++ {
		i := f[pc]
		operand := i.K
		if i.Code&source != 0 && (i.Code&class == unix.BPF_ALU || i.Code&class == unix.BPF_JMP) {
			operand = x
		}
		switch i.Code & class {
		case unix.BPF_LD, unix.BPF_LDX:
			var v uint32
			switch {
			case i.Code&size != unix.BPF_W:
				return false
			case i.Code&mode == unix.BPF_IMM:
				v = i.K
			case i.Code&mode == unix.BPF_LEN:
				v = uint32(4 * len(in.word))
			case i.Code&mode == unix.BPF_MEM && i.K < uint32(len(mem)):
				v = mem[i.K]
			case i.Code == unix.BPF_LD|unix.BPF_W|unix.BPF_ABS && i.K%4 == 0 && i.K/4 < uint32(len(in.word)) && !slices.Contains(in.unknown, int(i.K/4)):
				v = in.word[i.K/4]
			default:
				return false
			}
			if i.Code&class == unix.BPF_LD {
				a = v
			} else {
				x = v
			}
		case unix.BPF_ST, unix.BPF_STX:
			if i.K >= uint32(len(mem)) {
				return false
			}
			mem[i.K] = a
			if i.Code&class == unix.BPF_STX {
				mem[i.K] = x
			}
		case unix.BPF_ALU:
			switch i.Code & 0xf0 {
			case unix.BPF_ADD:
				a += operand
			case unix.BPF_SUB:
				a -= operand
			case unix.BPF_MUL:
				a *= operand
			case unix.BPF_DIV:
				if operand == 0 {
					return false
				}
				a /= operand
			case unix.BPF_AND:
				a &= operand
			case unix.BPF_OR:
				a |= operand
			case unix.BPF_XOR:
				a ^= operand
			case unix.BPF_LSH:
				a <<= operand & 31
			case unix.BPF_RSH:
				a >>= operand & 31
			case unix.BPF_NEG:
				a = -a
			default:
				return false
			}
		case unix.BPF_JMP:
			var taken bool
			switch i.Code & 0xf0 {
			case unix.BPF_JA:
				if i.K >= uint32(len(f)) {
					return false
				}
				pc += int(i.K)
				continue
			case unix.BPF_JEQ:
				taken = a == operand
			case unix.BPF_JGT:
				taken = a > operand
			case unix.BPF_JGE:
				taken = a >= operand
			case unix.BPF_JSET:
				taken = a&operand != 0
			default:
				return false
			}
			if taken {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		case unix.BPF_RET:
			verdict := i.K
			if i.Code&0x18 == unix.BPF_A {
				verdict = a
			}
			const action, allow, log = 0xffff0000, 0x7fff0000, 0x7ffc0000
			return verdict&action == allow || verdict&action == log
		case unix.BPF_MISC:
			if i.Code&0xf8 == unix.BPF_TXA {
				a = x
			} else {
				x = a
			}
		}
	}
	return false
}
