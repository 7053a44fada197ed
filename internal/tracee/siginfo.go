//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
)

// FirstRealTime is the first signal of those that wait in a queue each.
const FirstRealTime = 32

// Siginfo is the kernel's, by what faults need of it. All of it has a name, so that two can be
// compared.
type Siginfo struct {
	Signo, errno, Code int32
	pad                int32
	Addr               uint64
	rest               [104]byte
}

// Codes of signals (sigaction(2), si_code): what a trap's is for, and SiKernel, of what the kernel has nothing
// more to say of. That is what x86's int3 has; a step into a handler has the signal's number.
const (
	TrapBrkpt  = 1 // a breakpoint instruction, on other machines
	trapTrace  = 2 // a single step
	TrapHWBkpt = 4 // a debug register
	SiKernel   = 0x80
)

// ByteBefore is the byte before a thread's PC: of the instruction that made a trap, perhaps. Where there is none, it is 0.
func ByteBefore(m arch.Memory, r *Registers) byte {
	var b [1]byte
	m.ReadAt(arch.Addr(r.PC())-1, b[:])
	return b[0]
}

// TransferSiginfo reads or writes what there is to know of the signal that a stopped task is reported for.
func TransferSiginfo(req, tid int, s *Siginfo) error {
	return RegsError(requestAt(req, tid, 0, unsafe.Pointer(s)))
}

// ReportedFor tells whether a stopped thread is about to be given a signal, and reads
// what there is to know of that.
func ReportedFor(tid int, info *Siginfo) (bool, error) {
	err := Insist(func() error {
		err := TransferSiginfo(unix.PTRACE_GETSIGINFO, tid, info)
		if errors.Is(err, unix.EINVAL) { // in a group stop
			*info = Siginfo{Code: unix.PTRACE_EVENT_STOP << 8}
			err = nil
		}
		return err
	})
	return err == nil && !info.notice(), err
}

// notice tells what looks like a signal's report, and is none: the kernel's own word for a tracer, that of an
// event, of a system call or of a step into a handler. No signal is lost with it, and none can be given.
func (s *Siginfo) notice() bool {
	return s.Code>>8 != 0 && s.Code > 0 || unix.Signal(s.Signo) == unix.SIGTRAP && s.Code&0x7f == int32(unix.SIGTRAP)
}

// Raised tells whether the thread itself raised the signal, rather than somebody sent it: the codes of
// senders are zero or negative.
func (s *Siginfo) Raised() bool {
	switch unix.Signal(s.Signo) {
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGTRAP, unix.SIGSYS:
		return s.Code > 0
	}
	return false
}

// HappensAgain tells whether a signal is for a fault of the instruction that a thread with
// registers r stands at: one that has not been executed, and would fault again. Not so
// sure is what has the kernel's code (SiKernel): a stack that had no room for a signal's frame is told by
// that, too. What comes out of a system call was sent, whatever its code says.
func (s *Siginfo) HappensAgain(r *Registers, m arch.Memory) bool {
	const busMachineCheck = 5 // BUS_MCEERR_AO: of memory that nobody has asked for
	switch unix.Signal(s.Signo) {
	case unix.SIGBUS:
		if s.Code == busMachineCheck {
			return false
		}
	case unix.SIGSEGV, unix.SIGILL, unix.SIGFPE:
		if behind(unix.Signal(s.Signo)) {
			return false
		}
	default:
		return false
	}
	return s.Code > 0 && s.Code < SiKernel && !r.InCall(m)
}

// TrapIsOver tells whether a signal is a trap's that has been dealt with, or needs nothing but the
// report.
func (s *Siginfo) TrapIsOver(tid int, m arch.Memory, dealt bool) bool {
	return unix.Signal(s.Signo) == unix.SIGTRAP && (dealt || s.ForAccess(tid, m))
}

// ForStep tells whether a signal is for a single step of the thread that made it, by the byte before
// the PC. The code alone does not: under a hypervisor in another one, processors of Intel's report now and
// then a step that their debug status (DR6) does not own up to, which the kernel takes for a breakpoint. So it is a
// step unless it comes of an instruction that traps by itself.
func (s *Siginfo) ForStep(before byte) bool {
	const intoHandler, int1 = int32(unix.SIGTRAP), 0xf1
	if unix.Signal(s.Signo) != unix.SIGTRAP {
		return false
	}
	switch s.Code {
	case trapTrace, intoHandler:
		return true
	case TrapBrkpt:
		return before != int1
	}
	return false
}
