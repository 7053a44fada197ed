//go:build linux && s390x

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
var Programs = []program{{elf.EM_S390, elf.ELFCLASS64, arch.S390X}}

// Registers are a task's general ones, as its kernel has them (s390_regs), and the system call that it is in.
type Registers struct {
	mask, program uint64 // the program status word
	gpr           [16]uint64
	access        [16]uint32
	first         uint64 // the first argument of a call, whose register has the result by now
	call          uint32 // the code of the call that a stop interrupts; 0: none, or it shall not be restarted

	all bool // all of them are known, not only those that arch.Regs have
}

const (
	sizeAll  = 16 + 128 + 64 + 8
	sizeRegs = 16 + 128
)

func (r *Registers) r(n int) *uint64 { return &r.gpr[n] }

// Registers by their use.
const (
	regNumber, regResult, regLink, regSP = 1, 2, 14, 15
)

// Register sets (NT_*) of PTRACE_GETREGSET and PTRACE_SETREGSET.
const (
	setGeneral = 1     // NT_PRSTATUS
	setFloat   = 2     // NT_PRFPREG
	setCall    = 0x307 // NT_S390_SYSTEM_CALL
)

// GetRegs reads the registers of a stopped task. Errors: ESRCH, it does not stand.
func GetRegs(tid int, r *Registers) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setGeneral, unsafe.Pointer(r), sizeAll)
	if err == nil {
		_, err = regset(unix.PTRACE_GETREGSET, tid, setCall, unsafe.Pointer(&r.call), 4)
	}
	r.all = err == nil
	return err
}

// SetRegs writes what is known of them.
func SetRegs(tid int, r *Registers) error {
	size := sizeRegs
	if r.all {
		size = sizeAll
	}
	_, err := regset(unix.PTRACE_SETREGSET, tid, setGeneral, unsafe.Pointer(r), size)
	if err == nil && r.all {
		_, err = regset(unix.PTRACE_SETREGSET, tid, setCall, unsafe.Pointer(&r.call), 4)
	}
	return err
}

// PC is the program counter.
func (r *Registers) PC() uint64 { return r.program }

// SetPC writes the program counter.
func (r *Registers) SetPC(v uint64) { r.program = v }

// SP is the stack pointer.
func (r *Registers) SP() uint64       { return r.gpr[regSP] }
func (r *Registers) setSP(v uint64)   { r.gpr[regSP] = v }
func (r *Registers) linkReg() *uint64 { return &r.gpr[regLink] }

// Result is that of a call.
func (r *Registers) Result() uint64 { return r.gpr[regResult] }

// number is that of a call that is about to be made.
func (r *Registers) number() uint64 { return r.gpr[regNumber] }

// BeginCall has them make a call.
func (r *Registers) BeginCall(nr uint64) {
	r.gpr[regNumber], r.call = nr, 0
}

// noCall makes a task that goes on with these registers restart no call.
func (r *Registers) noCall() { r.call = 0 }

// callNone changes the call that a task is about to make: the kernel takes its number out of the register of the result then,
// and there is none of the number -1.
func (r *Registers) callNone() { r.gpr[regResult] = ^uint64(0) }

// InCall tells whether a stopped task is in a system call, or has just been interrupted in one.
func (r *Registers) InCall(arch.Memory) bool { return r.call != 0 }

// ArchRegs and UserRegs carry registers between the kernel's order and ours.
func (a *ABI) ArchRegs(u *Registers, r *arch.Regs) {
	r[a.Machine.Flags], r[a.Machine.PC] = u.mask, u.program
	copy(r[a.Machine.SP-regSP:], u.gpr[:])
}

// UserRegs is the other way.
func (a *ABI) UserRegs(r *arch.Regs, u *Registers) {
	u.mask, u.program = r[a.Machine.Flags], r[a.Machine.PC]
	copy(u.gpr[:], r[a.Machine.SP-regSP:])
}

// behind tells the signals of faults after which a task stands behind the instruction.
func behind(sig unix.Signal) bool { return sig == unix.SIGILL || sig == unix.SIGFPE }

// fail makes a call's result an error.
func (r *Registers) fail(errno uint64) { r.gpr[regResult] = -errno }

// floatState is the kernel's s390_fp_regs.
type floatState struct {
	fpc, _ uint32
	f      [16]uint64
}

// ThreadPointer is what programs find a thread's own by: the first two access registers.
func ThreadPointer(tid int) (pointer uint64, err error) {
	var r Registers
	err = RegsError(GetRegs(tid, &r))
	return uint64(r.access[0])<<32 | uint64(r.access[1]), err
}

// Trap numbers are the code of the program interruption (Principles of Operation, chapter 6).
const (
	trapOperation  = 1 // a breakpoint is one, too
	TrapBreak      = trapOperation
	trapProtection = 4
	trapData       = 7
	trapDivide     = 9
	trapPage       = 0x11
)

// FaultOf names the interruption behind a signal (the kernel's arch/s390/mm/fault.c and kernel/traps.c have the
// way there). The codes of senders are zero or negative; the kernel's own are positive. Of the address of data only the page is told.
func FaultOf(s *Siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.Addr), Sync: s.Code > 0}
	switch unix.Signal(s.Signo) {
	case unix.SIGSEGV:
		f.Trap = trapPage
		if s.Code == 2 { // SEGV_ACCERR
			f.Trap = trapProtection
		}
	case unix.SIGBUS:
		f.Trap = trapPage
	case unix.SIGFPE:
		f.Trap, f.Insn = trapData, true
		if s.Code == 1 { // FPE_INTDIV
			f.Trap = trapDivide
		}
	case unix.SIGILL:
		f.Trap, f.Insn = trapOperation, true
	case unix.SIGTRAP:
		f.Trap, f.Insn = TrapBreak, true
	default:
		f.Sync = false
	}
	return f
}

// loopCode passes some time, and then makes rt_sigreturn.
func loopCode() []byte {
	code := binary.BigEndian.AppendUint32([]byte{0xc0, 0x11}, loopRounds) // lgfi %r1, loopRounds
	return append(code,
		0xa7, 0x17, 0, 0, // brctg %r1, to itself
		0x0a, 0xad, // svc 173: rt_sigreturn
	)
}
