//go:build linux && (amd64 || arm64 || riscv64)

package ptrace

import (
	"kprobe/arch"
	"kprobe/target"
)

// abi is how programs of one machine and the kernel speak to each other. The kernel
// of an x86-64 runs those of i386 too, and shows us their registers in the order of
// x86-64. What else differs between the kernels' machines is in the files that are named
// after them, which have the same functions.
type abi struct {
	machine *arch.Arch
	name    string // as users know it
	audit   uint32 // the machine's number in seccomp's input
	callLen uint64 // of the instruction that makes a system call, in bytes

	// System calls: their numbers, and the registers of their arguments.
	mmap, munmap, madvise, sigaction, memfdCreate, close, sigreturn uint64
	args                                                            func(*registers) [6]*uint64

	entries []entry  // instructions that make a call and return, the best first
	back    []string // instructions that make sigreturn

	// interrupted tells the calls that fail with EINTR after a stop instead of
	// going on (signal(7), "Interruption of system calls and library functions by
	// stop signals"), although no handler ran.
	interrupted func(*registers) bool

	// A signal frame: where frameMark goes; and where the stack pointer is when
	// the frame is returned to, without words that are popped before.
	frameForm
	note, top int

	// A signal action as the kernel takes it, and as target.Action has it.
	actionSize int
	pack       func(target.Action) []byte
	unpack     func([]byte) target.Action

	// loop is code, for an address, that passes some time and leads to another.
	loop func(at, next uint64) []byte
}

// entry is code that makes a system call, and takes words off the stack before it
// returns.
type entry struct {
	code string
	pops int
}

func (p *Process) abi() *abi { return abis[p.arch] }

// word is a value as a register of the machine holds it.
func (a *abi) word(v uint64) uint64 {
	if a.machine.PtrSize == 4 {
		return uint64(uint32(v))
	}
	return v
}
