//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/tracee"
	"kprobe/target"
)

func (p *Process) abi() *tracee.ABI { return tracee.ABIOf(p.arch) }

// Regs reads the general registers of a stopped thread.
func (p *Process) Regs(th target.Thread, r *arch.Regs) error {
	var u tracee.Registers
	if err := tracee.GetRegs(int(th), &u); err != nil {
		return tracee.RegsError(err)
	}
	p.abi().ArchRegs(&u, r)
	if t := p.threads[int(th)]; t != nil {
		t.sp = u.SP()
	}
	return nil
}

// SetRegs writes the general registers of a stopped thread.
func (p *Process) SetRegs(th target.Thread, r *arch.Regs) error {
	var u tracee.Registers
	p.abi().UserRegs(r, &u)
	if t := p.threads[int(th)]; t != nil {
		t.sp = 0
	}
	return tracee.RegsError(tracee.SetRegs(int(th), &u))
}

// Fault tells what raised the signal that th is reported for.
func (p *Process) Fault(th target.Thread) (target.Fault, error) {
	if t := p.threads[int(th)]; t != nil && t.fault != nil {
		return *t.fault, nil
	}
	var s tracee.Siginfo
	if err := tracee.TransferSiginfo(unix.PTRACE_GETSIGINFO, int(th), &s); err != nil {
		return target.Fault{}, err
	}
	return tracee.FaultOf(&s), nil
}

// SetFaultAddr changes the address in the siginfo that the program's signal
// handler will be given.
func (p *Process) SetFaultAddr(th target.Thread, addr arch.Addr) error {
	var s tracee.Siginfo
	if err := tracee.TransferSiginfo(unix.PTRACE_GETSIGINFO, int(th), &s); err != nil {
		return err
	}
	s.Addr = uint64(addr)
	return tracee.TransferSiginfo(unix.PTRACE_SETSIGINFO, int(th), &s)
}

// Vector reads vector register n, as far as functions take arguments in it. Errors: EINVAL, there
// is none of that number.
func (p *Process) Vector(th target.Thread, n int, v *[16]byte) error {
	return tracee.Vector(int(th), n, v)
}

// SetVector writes vector register n; the part beyond 16 bytes stays.
func (p *Process) SetVector(th target.Thread, n int, v *[16]byte) error {
	return tracee.SetVector(int(th), n, v)
}
