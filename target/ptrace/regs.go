//go:build linux && amd64

package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/target"
)

// regsError turns the kernel's "no such process", which also means "not
// stopped", into what the caller needs to know.
func regsError(err error) error {
	if err == unix.ESRCH {
		return target.ErrGone
	}
	return err
}

// Regs reads the general registers of a stopped thread.
func (p *Process) Regs(th target.Thread, r *arch.Regs) error {
	var u unix.PtraceRegs
	if err := getRegs(int(th), &u); err != nil {
		return regsError(err)
	}
	p.abi().archRegs(&u, r)
	return nil
}

// SetRegs writes the general registers of a stopped thread.
func (p *Process) SetRegs(th target.Thread, r *arch.Regs) error {
	var u unix.PtraceRegs
	p.abi().userRegs(r, &u)
	return regsError(setRegs(int(th), &u))
}

// fxState is the FXSAVE image that PTRACE_GETFPREGS carries; xmm0 is at 160.
type fxState [512]byte

const fxXMM0 = 160

func (p *Process) fx(req int, th target.Thread, s *fxState) error {
	if err := faults.At("ptrace", req); err != nil {
		return regsError(err)
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(th), 0, uintptr(unsafe.Pointer(s)), 0, 0)
	if e != 0 {
		return regsError(e)
	}
	return nil
}

// Vector reads xmm register n.
func (p *Process) Vector(th target.Thread, n int, v *[16]byte) error {
	if n < 0 || n > 15 {
		return unix.EINVAL
	}
	var s fxState
	if err := p.fx(unix.PTRACE_GETFPREGS, th, &s); err != nil {
		return err
	}
	copy(v[:], s[fxXMM0+16*n:])
	return nil
}

// SetVector writes xmm register n; the upper parts of ymm and zmm stay.
func (p *Process) SetVector(th target.Thread, n int, v *[16]byte) error {
	if n < 0 || n > 15 {
		return unix.EINVAL
	}
	var s fxState
	if err := p.fx(unix.PTRACE_GETFPREGS, th, &s); err != nil {
		return err
	}
	copy(s[fxXMM0+16*n:], v[:])
	return p.fx(unix.PTRACE_SETFPREGS, th, &s)
}

// siKernel is the code (si_code) of what the kernel has nothing more to say of.
const siKernel = 0x80

// firstRealTime is the first signal of those that wait in a queue each.
const firstRealTime = 32

// siginfo is the kernel's, by what faults need of it. All of it has a name, so that two can be
// compared.
type siginfo struct {
	signo, errno, code int32
	pad                int32
	addr               uint64
	rest               [104]byte
}

func transferSiginfo(req, tid int, s *siginfo) error {
	if err := faults.At("ptrace", req); err != nil {
		return regsError(err)
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), 0, uintptr(unsafe.Pointer(s)), 0, 0)
	if e != 0 {
		return regsError(e)
	}
	return nil
}

// Fault tells what raised the signal that th is reported for.
func (p *Process) Fault(th target.Thread) (target.Fault, error) {
	if t := p.threads[int(th)]; t != nil && t.fault != nil {
		return *t.fault, nil
	}
	var s siginfo
	if err := transferSiginfo(unix.PTRACE_GETSIGINFO, int(th), &s); err != nil {
		return target.Fault{}, err
	}
	return faultOf(&s), nil
}

// faultOf names the x86 exception behind a signal (the kernel's
// arch/x86/kernel/traps.c has the way there). The codes of senders are zero or
// negative; the kernel's own are positive.
func faultOf(s *siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.addr), Sync: s.code > 0}
	switch unix.Signal(s.signo) {
	case unix.SIGSEGV:
		f.Trap = 14 // page fault
		if s.code == siKernel {
			f.Trap = 13 // general protection
		}
	case unix.SIGBUS:
		f.Trap = 14
		if s.code == 1 { // BUS_ADRALN
			f.Trap = 17 // alignment check
		} else if s.code == siKernel {
			f.Trap = 12 // stack segment
		}
	case unix.SIGFPE:
		f.Insn = true
		switch s.code {
		case 1: // FPE_INTDIV
			f.Trap = 0
		case 2: // FPE_INTOVF
			f.Trap = 4
		default:
			f.Trap = 16
		}
	case unix.SIGILL:
		f.Trap, f.Insn = 6, true
	case unix.SIGTRAP:
		f.Trap = 3
		if s.code != siKernel {
			f.Trap, f.Insn = 1, true
		}
	default:
		f.Sync = false
	}
	return f
}

// SetFaultAddr changes the address in the siginfo that the program's signal
// handler will be given.
func (p *Process) SetFaultAddr(th target.Thread, addr arch.Addr) error {
	var s siginfo
	if err := transferSiginfo(unix.PTRACE_GETSIGINFO, int(th), &s); err != nil {
		return err
	}
	s.addr = uint64(addr)
	return transferSiginfo(unix.PTRACE_SETSIGINFO, int(th), &s)
}
