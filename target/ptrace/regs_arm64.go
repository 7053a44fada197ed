//go:build linux && arm64

package ptrace

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

var programs = []program{{elf.EM_AARCH64, elf.ELFCLASS64, arch.ARM64}}

// registers are a task's general ones, as its kernel has them (struct user_pt_regs): in the order of
// arch.ARM64.
type registers struct {
	x                      [31]uint64
	stack, program, pstate uint64
}

// Register sets (NT_*) of PTRACE_GETREGSET and PTRACE_SETREGSET.
const (
	setGeneral    = 1     // NT_PRSTATUS
	setVector     = 2     // NT_PRFPREG
	setSystemCall = 0x404 // NT_ARM_SYSTEM_CALL
)

func (r *registers) pc() uint64          { return r.program }
func (r *registers) sp() uint64          { return r.stack }
func (r *registers) result() uint64      { return r.x[0] }
func (r *registers) number() uint64      { return r.x[8] } // of a call that is about to be made
func (r *registers) beginCall(nr uint64) { r.x[8] = nr }

// setPC forgets, too, that an indirect branch led to where the task was (BTYPE): it is a
// fault if that comes to another place than a landing pad.
func (r *registers) setPC(v uint64) {
	const btype = 3 << 10
	if v != r.program {
		r.pstate &^= btype
	}
	r.program = v
}

// returnTo makes the return of a call lead to a frame.
func (r *registers) returnTo(_ *abi, frame, back arch.Addr, _ int) {
	r.stack, r.x[30] = uint64(frame), uint64(back)
}

// skipCall keeps a task, which is about to make a call, from making it.
func skipCall(tid int) error {
	none := int32(-1)
	return insist(func() error {
		_, err := regset(unix.PTRACE_SETREGSET, tid, setSystemCall, unsafe.Pointer(&none), 4)
		return err
	})
}

// callInsn is svc #0.
const callInsn = 0xd4000001

// archRegs and userRegs carry registers between the kernel's order and ours, which are the same.
func (a *abi) archRegs(u *registers, r *arch.Regs) {
	copy(r[:], u.x[:])
	r[a.machine.SP], r[a.machine.PC], r[a.machine.Flags] = u.stack, u.program, u.pstate
}

func (a *abi) userRegs(r *arch.Regs, u *registers) {
	copy(u.x[:], r[:])
	u.stack, u.program, u.pstate = r[a.machine.SP], r[a.machine.PC], r[a.machine.Flags]
}

// vectorState is the kernel's struct user_fpsimd_state.
type vectorState struct {
	v          [32][16]byte
	fpsr, fpcr uint32
	_          [2]uint32
}

func getVector(tid int, s *vectorState) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setVector, unsafe.Pointer(s), int(unsafe.Sizeof(*s)))
	return regsError(err)
}

// Vector reads vector register n: all of it, without what SVE adds.
func (p *Process) Vector(th target.Thread, n int, v *[16]byte) error {
	var s vectorState
	if n < 0 || n >= len(s.v) {
		return unix.EINVAL
	}
	if err := getVector(int(th), &s); err != nil {
		return err
	}
	*v = s.v[n]
	return nil
}

// SetVector writes vector register n.
func (p *Process) SetVector(th target.Thread, n int, v *[16]byte) error {
	var s vectorState
	if n < 0 || n >= len(s.v) {
		return unix.EINVAL
	}
	if err := getVector(int(th), &s); err != nil {
		return err
	}
	s.v[n] = *v
	_, err := regset(unix.PTRACE_SETREGSET, int(th), setVector, unsafe.Pointer(&s), int(unsafe.Sizeof(s)))
	return regsError(err)
}

// Trap numbers are the exception's class (ESR_ELx.EC; Arm ARM, D17.2.37).
const (
	trapUnknown = 0x00
	trapPC      = 0x22 // misaligned
	trapData    = 0x24
	trapFloat   = 0x2c
	trapStep    = 0x32
	trapWatch   = 0x34
	trapBreak   = 0x3c
)

// faultOf names the exception behind a signal (the kernel's arch/arm64/mm/fault.c and kernel/traps.c have the
// way there). The codes of senders are zero or negative; the kernel's own are positive.
func faultOf(s *siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.addr), Sync: s.code > 0}
	switch unix.Signal(s.signo) {
	case unix.SIGSEGV:
		f.Trap = trapData
	case unix.SIGBUS:
		f.Trap = trapData
		if s.code == 1 && s.addr%4 != 0 { // BUS_ADRALN
			f.Trap = trapPC
		}
	case unix.SIGFPE:
		f.Trap, f.Insn = trapFloat, true
	case unix.SIGILL:
		f.Trap, f.Insn = trapUnknown, true
	case unix.SIGTRAP:
		switch s.code {
		case trapBrkpt:
			f.Trap, f.Insn = trapBreak, true
		case trapHWBreakpoint:
			f.Trap = trapWatch
		default:
			f.Trap, f.Insn = trapStep, true
		}
	default:
		f.Sync = false
	}
	return f
}

// whileLooping makes a stopped child go into a loop of our own, that is to be written at a page:
// code, and the registers to begin with. In the end it goes on with those that it has now: by a signal
// frame on its stack, below which its own signals' are put meanwhile.
func (c *child) whileLooping(page uint64, real registers) (code []byte, r registers, err error) {
	mask, err := signalMask(unix.PTRACE_GETSIGMASK, c.pid, 0)
	if err != nil {
		return nil, r, regsError(err)
	}
	at := arch.Addr(real.stack-2*frameLen) &^ (frameAlign - 1)
	frame, err := c.parent.abi().frameFor(c.pid, at, 0, real, mask)
	if err == nil {
		err = c.WriteAt(at, frame)
	}
	if err != nil {
		return nil, r, fmt.Errorf("a frame on the child's stack: %w", err)
	}
	for _, w := range []uint32{
		0xd2a00010 | loopRounds>>16<<5, // mov x16, #loopRounds
		0xd503203f,                     // yield
		0xd1000610,                     // sub x16, x16, #1
		0xb5ffffd0,                     // cbnz x16, back to it
		0xd2801168,                     // mov x8, #139: rt_sigreturn
		callInsn,
	} {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	r = real
	r.setPC(page)
	r.stack = uint64(at)
	return code, r, nil
}

// setThreadPointer is NT_ARM_TLS.
const setThreadPointer = 0x401

// ThreadPointer is TPIDR_EL0 of a stopped thread, by which programs find what is a thread's own.
func (p *Process) ThreadPointer(th target.Thread) (pointer uint64, err error) {
	_, err = regset(unix.PTRACE_GETREGSET, int(th), setThreadPointer, unsafe.Pointer(&pointer), 8)
	return pointer, err
}

// lost is what a system call takes from a task beyond its general registers, by the kernel's conventions: nothing.
type lost struct{}

func lostInCalls(int) (l lost, err error) { return l, nil }

func (lost) putBack(int) error { return nil }
