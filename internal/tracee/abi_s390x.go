//go:build linux && s390x

package tracee

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// ABIs are the records of the programs that this machine runs.
var ABIs = []*ABI{abiS390X}

// What can be probed here.
const (
	ThisMachine = "s390x"
	ProgramsOf  = "64-bit s390x"
)

// abiS390X is that of z/Architecture: the call's number in the instruction or, where that is 0, in r1, arguments from r2 on,
// the result in r2. mmap takes its six in memory.
var abiS390X = &ABI{
	Machine: arch.S390X, Lifeline: lifeline.S390X, Name: "64-bit s390x", callLen: 2,
	Audit: 0x80000016, // AUDIT_ARCH_S390X

	Mmap: unix.SYS_MMAP, Munmap: unix.SYS_MUNMAP, Madvise: unix.SYS_MADVISE, Sigaction: unix.SYS_RT_SIGACTION,
	MemfdCreate: unix.SYS_MEMFD_CREATE, Close: unix.SYS_CLOSE, Shmat: unix.SYS_SHMAT, sigreturn: unix.SYS_RT_SIGRETURN,
	Args: func(r *Registers) [6]*uint64 {
		return [6]*uint64{r.r(2), r.r(3), r.r(4), r.r(5), r.r(6), r.r(7)}
	},
	InMemory: func(nr uint64) bool { return nr == unix.SYS_MMAP },
	Entries: []entry{
		{"\x0a\x00\x07\xfe", 0}, // svc 0; br %r14: Go's runtime
		// svc 0; lghi %r1, -4096; clgr %r2, %r1; jh over the next two; lgfr %r2, %r2; br %r14: glibc. After an
		// error it sets errno, and returns.
		{"\x0a\x00\xa7\x19\xf0\x00\xb9\x21\x00\x21\xa7\x24\x00\x05\xb9\x14\x00\x22\x07\xfe", 0},
		{"\x0a\x00", 0},
	},
	Back: []string{"\x0a\xad"}, // svc 173: the vDSO has it
	interrupted: func(r *Registers) bool {
		if r.call&0xffff == unix.SYS_SOCKETCALL {
			return socketCallInterrupted(r.first)
		}
		return interruptedByNumber(r)
	},

	Note: 0, // in the room for the registers of whoever is called
	top:  0,

	ActionSize: len(target.Action{}),
	Pack:       func(a target.Action) []byte { return a[:] },
	Unpack:     func(b []byte) target.Action { return target.Action(b) },
}

var interruptedByNumber = interruptedBut(func(r *Registers) uint64 { return uint64(r.call & 0xffff) }, unix.SYS_EPOLL_WAIT, unix.SYS_IPC)

// frameForm is empty: a signal frame is the same for all programs.
type frameForm struct{}
