//go:build linux && arm64

package tracee

import (
	"debug/elf"
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

// Programs are what programs for this machine say of themselves.
var Programs = []program{{elf.EM_AARCH64, elf.ELFCLASS64, arch.ARM64}}

// The kernel's struct user_pt_regs: x0 to x30, and then what has no number, in the order of arch.ARM64.
const (
	regResult, regNumber, regLink, regSP, regPC, regState, regWords = 0, 8, 30, 31, 32, 33, 34
)

// Register sets (NT_*) of PTRACE_GETREGSET and PTRACE_SETREGSET.
const (
	setGeneral    = 1     // NT_PRSTATUS
	setVectors    = 2     // NT_PRFPREG
	setSystemCall = 0x404 // NT_ARM_SYSTEM_CALL
)

// SetPC forgets, too, that an indirect branch led to where the task was (BTYPE): it is a
// fault if that comes to another place than a landing pad.
func (r *Registers) SetPC(v uint64) {
	const btype = 3 << 10
	if v != r[regPC] {
		r[regState] &^= btype
	}
	r[regPC] = v
}

// SkipCall keeps a task, which is about to make a call, from making it.
func SkipCall(tid int) error {
	none := int32(-1)
	return Insist(func() error {
		_, err := regset(unix.PTRACE_SETREGSET, tid, setSystemCall, unsafe.Pointer(&none), 4)
		return err
	})
}

// callInsn is svc #0.
const callInsn = 0xd4000001

// ArchRegs and UserRegs carry registers between the kernel's order and ours, which are the same.
func (a *ABI) ArchRegs(u *Registers, r *arch.Regs) { copy(r[:], u[:]) }

// UserRegs is the other way.
func (a *ABI) UserRegs(r *arch.Regs, u *Registers) { copy(u[:], r[:]) }

// vectorState is the kernel's struct user_fpsimd_state.
type vectorState struct {
	v          [32][16]byte
	fpsr, fpcr uint32
	_          [2]uint32
}

func getVector(tid int, s *vectorState) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setVectors, unsafe.Pointer(s), int(unsafe.Sizeof(*s)))
	return RegsError(err)
}

// Vector reads vector register n: all of it, without what SVE adds.
func Vector(tid, n int, v *[16]byte) error {
	var s vectorState
	if n < 0 || n >= len(s.v) {
		return unix.EINVAL
	}
	if err := getVector(tid, &s); err != nil {
		return err
	}
	*v = s.v[n]
	return nil
}

// SetVector writes vector register n.
func SetVector(tid, n int, v *[16]byte) error {
	var s vectorState
	if n < 0 || n >= len(s.v) {
		return unix.EINVAL
	}
	if err := getVector(tid, &s); err != nil {
		return err
	}
	s.v[n] = *v
	_, err := regset(unix.PTRACE_SETREGSET, tid, setVectors, unsafe.Pointer(&s), int(unsafe.Sizeof(s)))
	return RegsError(err)
}

// Trap numbers are the exception's class (ESR_ELx.EC; Arm ARM, D17.2.37).
const (
	trapUnknown = 0x00
	trapPC      = 0x22 // misaligned
	trapData    = 0x24
	trapFloat   = 0x2c
	trapStep    = 0x32
	trapWatch   = 0x34
	TrapBreak   = 0x3c
)

// FaultOf names the exception behind a signal (the kernel's arch/arm64/mm/fault.c and kernel/traps.c have the
// way there). The codes of senders are zero or negative; the kernel's own are positive.
func FaultOf(s *Siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.Addr), Sync: s.Code > 0}
	switch unix.Signal(s.Signo) {
	case unix.SIGSEGV:
		f.Trap = trapData
	case unix.SIGBUS:
		f.Trap = trapData
		if s.Code == 1 && s.Addr%4 != 0 { // BUS_ADRALN
			f.Trap = trapPC
		}
	case unix.SIGFPE:
		f.Trap, f.Insn = trapFloat, true
	case unix.SIGILL:
		f.Trap, f.Insn = trapUnknown, true
	case unix.SIGTRAP:
		switch s.Code {
		case TrapBrkpt:
			f.Trap, f.Insn = TrapBreak, true
		case TrapHWBkpt:
			f.Trap = trapWatch
		default:
			f.Trap, f.Insn = trapStep, true
		}
	default:
		f.Sync = false
	}
	return f
}

// loopCode passes some time, and then makes rt_sigreturn.
func loopCode() (code []byte) {
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
	return code
}

// setThreadPointer is NT_ARM_TLS.
const setThreadPointer = 0x401

// ThreadPointer is TPIDR_EL0 of a stopped thread, by which programs find what is a thread's own.
func ThreadPointer(tid int) (pointer uint64, err error) {
	_, err = regset(unix.PTRACE_GETREGSET, tid, setThreadPointer, unsafe.Pointer(&pointer), 8)
	return pointer, err
}

// loadsNumber tells the number of a system call that an instruction loads: mov x8, or w8.
func loadsNumber(insn uint32) (nr uint64, ok bool) {
	return uint64(insn >> 5 & 0xffff), insn&^(0xffff<<5|1<<31) == 0x52800008
}
