//go:build linux && amd64

package ptrace

import (
	"debug/elf"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

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

// registers are a task's general ones, as its kernel has them.
type registers struct{ unix.PtraceRegs }

func getRegs(tid int, r *registers) error {
	if err := faults.At("ptrace", unix.PTRACE_GETREGS); err != nil {
		return err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGS, uintptr(tid), 0, uintptr(unsafe.Pointer(&r.PtraceRegs)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

func setRegs(tid int, r *registers) error {
	if err := faults.At("ptrace", unix.PTRACE_SETREGS); err != nil {
		return err
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGS, uintptr(tid), 0, uintptr(unsafe.Pointer(&r.PtraceRegs)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

func (r *registers) pc() uint64          { return r.Rip }
func (r *registers) setPC(v uint64)      { r.Rip = v }
func (r *registers) sp() uint64          { return r.Rsp }
func (r *registers) result() uint64      { return r.Rax }
func (r *registers) number() uint64      { return r.Rax } // of a call that is about to be made
func (r *registers) beginCall(nr uint64) { r.Rax, r.Orig_rax = nr, ^uint64(0) }

// noCall makes a task that goes on with these registers restart no call.
func (r *registers) noCall() { r.Orig_rax = ^uint64(0) }

// returnTo makes the return of a call lead to a frame: its first word is the address
// to return to, and pops words are taken off the stack before.
func (r *registers) returnTo(a *abi, frame, _ arch.Addr, pops int) {
	r.Rsp = uint64(frame) + uint64(a.top-a.machine.PtrSize*pops)
}

// skipCall keeps a task, which is about to make a call, from making it.
func skipCall(tid int) error {
	var r registers
	err := insist(func() error { return getRegs(tid, &r) })
	if err == nil {
		r.Orig_rax = ^uint64(0)
		err = insist(func() error { return setRegs(tid, &r) })
	}
	return err
}

// inCall tells whether a stopped task is in a system call, or has just been
// interrupted in one.
func (r *registers) inCall(arch.Memory) bool { return int64(r.Orig_rax) >= 0 }

// markDealt puts the mark on registers that the trap which their task is reported for has been
// dealt with; isDealt tells whether it is there, and unmark takes it off.
func (r *registers) markDealt()             { r.Eflags |= lifeline.Dealt }
func (r *registers) unmark()                { r.Eflags &^= lifeline.Dealt }
func (r *registers) isDealt(int, bool) bool { return r.Eflags&lifeline.Dealt != 0 }

// hideInterruption hides that a stop of ours interrupted a system call. Its
// result is changed to the kernel's own code for "restart, unless a handler
// runs first": the kernel then does what it does for every other call. It answers
// whether the thread is in a call.
func (p *Process) hideInterruption(t *thread, r *registers) bool {
	if int64(r.Orig_rax) < 0 {
		return false
	}
	const erestartnohand = 514
	if r.Rax == errnoResult(unix.EINTR) && p.abi().interrupted(r) {
		r.Rax = errnoResult(erestartnohand)
		insist(func() error { return setRegs(t.tid, r) })
	}
	return true
}

// blockedCall is what has to be known of a call before it is interrupted: here the kernel tells all
// afterwards.
type blockedCall struct{}

// beforeInterrupt is called before a task is asked to stop.
func (p *Process) beforeInterrupt(t *thread) { t.blocked = blockedCall{} }

// whileLooping makes a stopped child go into a loop of our own, that is to be written at a page:
// code, and the registers to begin with. In the end it goes on with those that it has now.
func (c *child) whileLooping(page uint64, real registers) (code []byte, r registers, err error) {
	r = real
	r.setPC(page)
	r.noCall()
	return c.parent.abi().loop(page, real.pc()), r, nil
}

// trapBreak is the trap number of a breakpoint instruction.
const trapBreak = 3

// What can be probed here.
const (
	thisMachine = "x86-64"
	programsOf  = "x86-64 and i386"
)

var programs = []program{
	{elf.EM_X86_64, elf.ELFCLASS64, arch.AMD64},
	{elf.EM_386, elf.ELFCLASS32, arch.I386},
}

// trapFlag is TF, which makes a processor trap after each instruction.
const trapFlag = 1 << 8

// unstep has a thread make no more single steps.
func unstep(tid int) {
	insist(func() error {
		var r registers
		if err := getRegs(tid, &r); err != nil || r.Eflags&trapFlag == 0 {
			return err
		}
		r.Eflags &^= trapFlag
		return setRegs(tid, &r)
	})
}

// Counter is the time-stamp counter now, for code that may not read it (PR_SET_TSC).
func (p *Process) Counter() uint64 { return timeStamp() }

// lost is what a system call takes from a task beyond its general registers, by the kernel's conventions: nothing.
type lost struct{}

func lostInCalls(int) (l lost, err error) { return l, nil }

func (lost) putBack(int) error { return nil }
