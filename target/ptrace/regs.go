//go:build linux && (amd64 || arm64 || riscv64)

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
	var u registers
	if err := getRegs(int(th), &u); err != nil {
		return regsError(err)
	}
	p.abi().archRegs(&u, r)
	return nil
}

// SetRegs writes the general registers of a stopped thread.
func (p *Process) SetRegs(th target.Thread, r *arch.Regs) error {
	var u registers
	p.abi().userRegs(r, &u)
	return regsError(setRegs(int(th), &u))
}

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
