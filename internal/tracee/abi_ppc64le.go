//go:build linux && ppc64le

package tracee

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// ABIs are the records of the programs that this machine runs.
var ABIs = []*ABI{abiPPC64LE}

// What can be probed here.
const (
	ThisMachine = "ppc64le"
	ProgramsOf  = "64-bit ppc64le"
)

// abiPPC64LE is that of Power: the call's number in r0, arguments from r3 on, the result in r3. There are two instructions
// for calls, which tell of errors in two ways (registers.result); ours are made by sc, which leaves LR as it is.
var abiPPC64LE = &ABI{
	Machine: arch.PPC64LE, Lifeline: lifeline.PPC64LE, Name: "64-bit ppc64le", callLen: 4,
	Audit: 0xc0000015, // AUDIT_ARCH_PPC64LE

	Mmap: unix.SYS_MMAP, Munmap: unix.SYS_MUNMAP, Madvise: unix.SYS_MADVISE, Sigaction: unix.SYS_RT_SIGACTION,
	MemfdCreate: unix.SYS_MEMFD_CREATE, Close: unix.SYS_CLOSE, Shmat: unix.SYS_SHMAT, sigreturn: unix.SYS_RT_SIGRETURN,
	Args: func(r *Registers) [6]*uint64 {
		return [6]*uint64{r.r(3), r.r(4), r.r(5), r.r(6), r.r(7), r.r(8)}
	},
	Entries: []entry{
		{"\x02\x00\x00\x44\x20\x00\x80\x4e", 0}, // sc; blr: Go's runtime
		{"\x02\x00\x00\x44\x20\x00\xe3\x4c", 0}, // sc; bnslr+: glibc. After an error it sets errno, and returns.
		{"\x02\x00\x00\x44", 0},
	},
	Back:        []string{"\xac\x00\x00\x38\x02\x00\x00\x44"}, // li r0, 172; sc: the vDSO has it
	interrupted: interruptedBut((*Registers).number, unix.SYS_EPOLL_WAIT, unix.SYS_IPC, unix.SYS_RECV, unix.SYS_ACCEPT, unix.SYS_SEND, unix.SYS_SOCKETCALL),

	Note: frameMask + 8, // behind the mask, which has room for more signals than there are
	top:  0,

	ActionSize: len(target.Action{}),
	Pack:       func(a target.Action) []byte { return a[:] },
	Unpack:     func(b []byte) target.Action { return target.Action(b) },
}

// frameForm is empty: a signal frame is the same for all programs.
type frameForm struct{}
