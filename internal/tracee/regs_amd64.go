//go:build linux && amd64

package tracee

import (
	"debug/elf"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/seccomp"
	"kprobe/target"
)

// fxState is the FXSAVE image that PTRACE_GETFPREGS carries; xmm0 is at 160.
type fxState [512]byte

const fxXMM0 = 160

func fx(req, tid int, s *fxState) error {
	return RegsError(requestAt(req, tid, 0, unsafe.Pointer(s)))
}

// Vector reads xmm register n.
func Vector(tid, n int, v *[16]byte) error {
	if n < 0 || n > 15 {
		return unix.EINVAL
	}
	var s fxState
	if err := fx(unix.PTRACE_GETFPREGS, tid, &s); err != nil {
		return err
	}
	copy(v[:], s[fxXMM0+16*n:])
	return nil
}

// SetVector writes xmm register n; the upper parts of ymm and zmm stay.
func SetVector(tid, n int, v *[16]byte) error {
	if n < 0 || n > 15 {
		return unix.EINVAL
	}
	var s fxState
	if err := fx(unix.PTRACE_GETFPREGS, tid, &s); err != nil {
		return err
	}
	copy(s[fxXMM0+16*n:], v[:])
	return fx(unix.PTRACE_SETFPREGS, tid, &s)
}

// FaultOf names the x86 exception behind a signal (the kernel's
// arch/x86/kernel/traps.c has the way there). The codes of senders are zero or
// negative; the kernel's own are positive.
func FaultOf(s *Siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.Addr), Sync: s.Code > 0}
	switch unix.Signal(s.Signo) {
	case unix.SIGSEGV:
		f.Trap = 14 // page fault
		if s.Code == SiKernel {
			f.Trap = 13 // general protection
		}
	case unix.SIGBUS:
		f.Trap = 14
		if s.Code == 1 { // BUS_ADRALN
			f.Trap = 17 // alignment check
		} else if s.Code == SiKernel {
			f.Trap = 12 // stack segment
		}
	case unix.SIGFPE:
		f.Insn = true
		switch s.Code {
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
		if s.Code != SiKernel {
			f.Trap, f.Insn = 1, true
		}
	default:
		f.Sync = false
	}
	return f
}

// Registers are a task's general ones, as its kernel has them.
type Registers struct{ unix.PtraceRegs }

// GetRegs reads the registers of a stopped task. Errors: ESRCH, it does not stand.
func GetRegs(tid int, r *Registers) error {
	return requestAt(unix.PTRACE_GETREGS, tid, 0, unsafe.Pointer(&r.PtraceRegs))
}

// SetRegs writes them.
func SetRegs(tid int, r *Registers) error {
	return requestAt(unix.PTRACE_SETREGS, tid, 0, unsafe.Pointer(&r.PtraceRegs))
}

// PC is the program counter.
func (r *Registers) PC() uint64 { return r.Rip }

// SetPC writes the program counter.
func (r *Registers) SetPC(v uint64) { r.Rip = v }

// SP is the stack pointer.
func (r *Registers) SP() uint64 { return r.Rsp }

// Result is that of a call.
func (r *Registers) Result() uint64 { return r.Rax }

// number is that of a call that is about to be made.
func (r *Registers) number() uint64 { return r.Rax }

// BeginCall has them make a call.
func (r *Registers) BeginCall(nr uint64) { r.Rax, r.Orig_rax = nr, ^uint64(0) }

// noCall makes a task that goes on with these registers restart no call.
func (r *Registers) noCall() { r.Orig_rax = ^uint64(0) }

// ReturnTo makes the return of a call lead to a frame: its first word is the address
// to return to, and pops words are taken off the stack before.
func (r *Registers) ReturnTo(a *ABI, frame, _ arch.Addr, pops int) {
	r.Rsp = uint64(frame) + uint64(a.top-a.Machine.PtrSize*pops)
}

// Returns does what the return of a call does. It answers the frame that ReturnTo was told, and where that leads; to is 0
// where no stack is.
func (r *Registers) Returns(a *ABI, m arch.Memory, pops int) (frame, to arch.Addr) {
	word := make([]byte, a.Machine.PtrSize)
	at := arch.Addr(r.Rsp) + arch.Addr(len(word)*pops)
	frame = at - arch.Addr(a.top)
	if m.ReadAt(at, word) != nil {
		return frame, 0
	}
	r.Rsp = uint64(at) + uint64(len(word))
	return frame, arch.Addr(a.Machine.Word(word))
}

// SkipCall keeps a task, which is about to make a call, from making it.
func SkipCall(tid int) error {
	var r Registers
	err := Insist(func() error { return GetRegs(tid, &r) })
	if err == nil {
		r.Orig_rax = ^uint64(0)
		err = Insist(func() error { return SetRegs(tid, &r) })
	}
	return err
}

// InCall tells whether a stopped task is in a system call, or has just been
// interrupted in one.
func (r *Registers) InCall(arch.Memory) bool { return int64(r.Orig_rax) >= 0 }

// MarkDealt puts the mark on registers that the trap which their task is reported for has been
// dealt with; IsDealt tells whether it is there, and unmark takes it off.
func (r *Registers) MarkDealt() { r.Eflags |= lifeline.Dealt }

// Unmark takes that mark off.
func (r *Registers) Unmark() { r.Eflags &^= lifeline.Dealt }

// IsDealt tells whether the trap that its task is reported for has been dealt with; back, that it was set back to it.
func (r *Registers) IsDealt(int, bool) bool { return r.Eflags&lifeline.Dealt != 0 }

// HideInterruption hides that a stop of ours interrupted a system call. Its
// result is changed to the kernel's own code for "restart, unless a handler
// runs first": the kernel then does what it does for every other call. It answers
// whether the thread is in a call.
func (*BlockedCall) HideInterruption(tid int, a *ABI, r *Registers) bool {
	if int64(r.Orig_rax) < 0 {
		return false
	}
	if r.Rax == ErrnoResult(unix.EINTR) && a.interrupted(r) {
		r.Rax = ErrnoResult(erestartnohand)
		Insist(func() error { return SetRegs(tid, r) })
	}
	return true
}

// RestartInput is the input for restart_syscall(2), by which the kernel goes on with a call with a time limit that a stop has
// interrupted; nil where it does not. MakeAnew has it made anew instead, unless a handler runs first, with its time limit anew.
func (a *ABI) RestartInput(r Registers) *seccomp.Input {
	if int64(r.Orig_rax) < 0 || r.Rax != ErrnoResult(erestartblock) {
		return nil
	}
	r.Rax, r.Rip = a.restart, r.Rip-a.callLen
	return a.CallInput(&r)
}

// MakeAnew: see RestartInput.
func (*ABI) MakeAnew(tid int, r *Registers) {
	r.Rax = ErrnoResult(erestartnohand)
	Insist(func() error { return SetRegs(tid, r) })
}

// The kernel's own results of calls that a stop has interrupted: those that are made anew unless a handler runs first, and
// those that go on by restart_syscall.
const (
	erestartnohand = 514
	erestartblock  = 516
)

// BlockedCall is what has to be known of a call before it is interrupted: here the kernel tells all
// afterwards.
type BlockedCall struct{}

// Look is called before a task is asked to stop.
func (*BlockedCall) Look(pid, tid int) {}

// LoopSize is what a loop takes.
func LoopSize() int { return os.Getpagesize() }

// Enter makes the code of a loop, and a task's registers to begin it with. It ends with those of the task's own:
// not by a signal frame, which a shadow stack would have to know of.
func (l *Loop) Enter(_ int, a *ABI) (code []byte, r Registers, err error) {
	r = l.Real
	r.SetPC(l.Page)
	r.noCall()
	return a.loop(l), r, nil
}

// sigSetMask is SIG_SETMASK.
const sigSetMask = 2

// TrapBreak is the trap number of a breakpoint instruction.
const TrapBreak = 3

// What can be probed here.
const (
	ThisMachine = "x86-64"
	ProgramsOf  = "x86-64 and i386"
)

// Programs are what programs for this machine say of themselves.
var Programs = []program{
	{elf.EM_X86_64, elf.ELFCLASS64, arch.AMD64},
	{elf.EM_386, elf.ELFCLASS32, arch.I386},
}

// TrapFlag is TF, which makes a processor trap after each instruction.
const TrapFlag = 1 << 8

// Unstep has a thread make no more single steps.
func Unstep(tid int) {
	Insist(func() error {
		var r Registers
		if err := GetRegs(tid, &r); err != nil || r.Eflags&TrapFlag == 0 {
			return err
		}
		r.Eflags &^= TrapFlag
		return SetRegs(tid, &r)
	})
}

// Lost is what a system call takes from a task beyond its general registers, by the kernel's conventions: nothing.
type Lost struct{}

// LostInCalls reads what a stopped task would lose.
func LostInCalls(int) (l Lost, err error) { return l, nil }

// PutBack gives it back.
func (Lost) PutBack(int) error { return nil }
