//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"debug/elf"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// ABI is how programs of one machine and the kernel speak to each other. The kernel
// of an x86-64 runs those of i386 too, and shows us their registers in the order of
// x86-64. What else differs between the kernels' machines is in the files that are named
// after them, which have the same functions.
type ABI struct {
	Machine  *arch.Arch
	Lifeline *lifeline.Machine

	Name    string // as users know it
	Audit   uint32 // the machine's number in seccomp's input
	callLen uint64 // of the instruction that makes a system call, in bytes

	// System calls: their numbers, and the registers of their arguments.
	Mmap, Munmap, Madvise, Sigaction, MemfdCreate, Close, sigreturn, Shmat uint64
	Args                                                                   func(*Registers) [6]*uint64

	// InMemory tells the calls that take their arguments in memory, and its address in the first register; nil: none.
	InMemory func(nr uint64) bool

	Entries []entry  // instructions that make a call and return, the best first
	Back    []string // instructions that make sigreturn

	// interrupted tells the calls that fail with EINTR after a stop instead of
	// going on (signal(7), "Interruption of system calls and library functions by
	// stop signals"), although no handler ran.
	interrupted func(*Registers) bool

	// restart is restart_syscall(2), by which the kernel goes on with an interrupted call that has a time limit, and
	// restarts are those calls. Only where it does so by that call, and the number is lost.
	restart  uint64
	restarts []uint64

	// A signal frame: where FrameMark goes; and where the stack pointer is when
	// the frame is returned to, without words that are popped before.
	frameForm
	Note, top int

	// A signal action as the kernel takes it, and as target.Action has it.
	ActionSize int
	Pack       func(target.Action) []byte
	Unpack     func([]byte) target.Action

	// loop is code that passes some time, and then goes on with the registers and the mask that the loop is to end with.
	loop func(*Loop) []byte
}

// ABIOf is the record of a machine's programs; nil where none run here.
func ABIOf(a *arch.Arch) *ABI {
	for _, abi := range ABIs {
		if abi.Machine == a {
			return abi
		}
	}
	return nil
}

// entry is code that makes a system call, and takes words off the stack before it
// returns.
type entry struct {
	Code string
	Pops int
}

// Word is a value as a register of the machine holds it.
func (a *ABI) Word(v uint64) uint64 {
	if a.Machine.PtrSize == 4 {
		return uint64(uint32(v))
	}
	return v
}

// interruptedBut are the calls that fail with EINTR after a stop, of which a machine has some besides those that all have; by
// number of the call that registers tell.
func interruptedBut(number func(*Registers) uint64, more ...uint64) func(*Registers) bool {
	all := append([]uint64{
		unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_SEMTIMEDOP, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_IO_GETEVENTS,
		unix.SYS_IO_PGETEVENTS, unix.SYS_MSGRCV, unix.SYS_MSGSND, unix.SYS_ACCEPT4, unix.SYS_RECVMMSG, unix.SYS_SENDTO, unix.SYS_SENDMSG,
		unix.SYS_READ, unix.SYS_RECVFROM, unix.SYS_RECVMSG, // inotify; sockets with a timeout
	}, more...)
	return func(r *Registers) bool { return slices.Contains(all, number(r)) }
}

// FrameMark tells a frame of ours, which a call that nobody saw the end of may have
// left, from memory that is in use. The thread that it is for follows.
const FrameMark = "kprobe's signal frame for thread"

// altStackIgnored are no such flags: a return to a frame of ours leaves the alternate stack
// as it is.
const altStackIgnored = 0x1234

// program is how a program's file tells that it is of a machine.
type program struct {
	Machine elf.Machine
	Class   elf.Class
	Arch    *arch.Arch
}

// interruptedCall tells the kernel's own codes for a call to be restarted.
func interruptedCall(result uint64) bool {
	const restartSys, restartNoIntr, restartNoHand, restartBlock = 512, 513, 514, 516
	switch -result {
	case restartSys, restartNoIntr, restartNoHand, restartBlock:
		return true
	}
	return false
}

// socketCallInterrupted is interrupted of socketcall(2), by what it calls.
func socketCallInterrupted(what uint64) bool {
	switch what {
	case 5, 9, 10, 11, 12, 16, 17, 18, 19: // accept, send, recv, sendto, recvfrom, sendmsg, recvmsg, accept4, recvmmsg
		return true
	}
	return false
}
