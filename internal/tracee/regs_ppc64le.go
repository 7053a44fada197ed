//go:build linux && ppc64le

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
var Programs = []program{{elf.EM_PPC64, elf.ELFCLASS64, arch.PPC64LE}}

// Registers are a task's general ones, as its kernel has them (struct user_pt_regs), and what brought it into the kernel.
type Registers struct {
	gpr     [32]uint64
	nip     uint64
	msr     uint64
	first   uint64 // the first argument of a call, whose register has the result by now
	ctr     uint64
	link    uint64
	xer     uint64
	cr      uint64
	enabled uint64 // interrupts, by software
	trap    uint64 // the exception's vector; of a call, that it can be restarted
	dar     uint64
	dsisr   uint64
	back    uint64 // what the kernel calls result

	all bool // all of them are known, not only those that arch.Regs have
}

const sizeRegs = 44 * 8

func (r *Registers) r(n int) *uint64 { return &r.gpr[n] }

// Registers by their use.
const (
	regNumber, regSP, regResult = 0, 1, 3
)

// Register sets (NT_*) of PTRACE_GETREGSET and PTRACE_SETREGSET.
const (
	setGeneral = 1     // NT_PRSTATUS
	setFloat   = 2     // NT_PRFPREG
	setVectors = 0x100 // NT_PPC_VMX
	setHalves  = 0x102 // NT_PPC_VSX
)

// Vectors of exceptions (book III, 7.5), and bits of registers.
const (
	vectorCall     = 0xc00   // by sc
	vectorCallAway = 0x3000  // by scv
	noRestart      = 0xf     // what the kernel notes beside them
	crFailed       = 1 << 28 // CR0's SO: a call by sc has failed
)

// GetRegs reads the registers of a stopped task. Errors: ESRCH, it does not stand.
func GetRegs(tid int, r *Registers) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setGeneral, unsafe.Pointer(r), sizeRegs)
	r.all = err == nil
	return err
}

// SetRegs writes what is known of them. The kernel takes them from the first on, so that what is not known
// is read before.
func SetRegs(tid int, r *Registers) error {
	w := *r
	if !r.all {
		var now Registers
		if err := GetRegs(tid, &now); err != nil {
			return err
		}
		w.first, w.enabled, w.trap, w.dar, w.dsisr, w.back = now.first, now.enabled, now.trap, now.dar, now.dsisr, now.back
	}
	_, err := regset(unix.PTRACE_SETREGSET, tid, setGeneral, unsafe.Pointer(&w), sizeRegs)
	return err
}

// PC is the program counter.
func (r *Registers) PC() uint64 { return r.nip }

// SetPC writes the program counter.
func (r *Registers) SetPC(v uint64) { r.nip = v }

// SP is the stack pointer.
func (r *Registers) SP() uint64       { return r.gpr[regSP] }
func (r *Registers) setSP(v uint64)   { r.gpr[regSP] = v }
func (r *Registers) linkReg() *uint64 { return &r.link }

// number is that of a call that is about to be made, or was.
func (r *Registers) number() uint64 { return r.gpr[regNumber] }

// BeginCall has them make a call.
func (r *Registers) BeginCall(nr uint64) {
	r.gpr[regNumber] = nr
	r.noCall()
}

// noCall makes a task that goes on with these registers restart no call.
func (r *Registers) noCall() { r.trap = 0 }

// Result is a call's: of an error the negative number, however the kernel tells it.
func (r *Registers) Result() uint64 {
	if v := r.gpr[regResult]; r.trap&^noRestart == vectorCallAway || r.cr&crFailed == 0 {
		return v
	} else {
		return -v
	}
}

// fail makes a call's result an error.
func (r *Registers) fail(errno uint64) {
	r.gpr[regResult] = -errno
	if r.trap&^noRestart == vectorCall {
		r.gpr[regResult] = errno
		r.cr |= crFailed
	}
}

// callNone changes the call that a task is about to make: there is none of the number -1.
func (r *Registers) callNone() { r.gpr[regNumber] = ^uint64(0) }

// InCall tells whether a stopped task is in a system call, or has just been interrupted in one.
func (r *Registers) InCall(arch.Memory) bool {
	v := r.trap &^ noRestart
	return v == vectorCall || v == vectorCallAway
}

// ArchRegs and UserRegs carry registers between the kernel's order and ours.
func (a *ABI) ArchRegs(u *Registers, r *arch.Regs) {
	copy(r[:], u.gpr[:])
	for i, v := range [...]uint64{u.nip, u.msr, u.cr, u.link, u.ctr, u.xer} {
		r[int(a.Machine.PC)+i] = v
	}
}

// UserRegs is the other way.
func (a *ABI) UserRegs(r *arch.Regs, u *Registers) {
	copy(u.gpr[:], r[:])
	for i, v := range [...]*uint64{&u.nip, &u.msr, &u.cr, &u.link, &u.ctr, &u.xer} {
		*v = r[int(a.Machine.PC)+i]
	}
}

// floatState is the kernel's set of floating point registers.
type floatState struct {
	f     [32]uint64
	fpscr uint64
}

// Trap numbers are the exception's vector (book III, 7.5).
const (
	trapData    = 0x300
	trapAlign   = 0x600
	trapProgram = 0x700 // an illegal instruction, a trap, floating point
	TrapBreak   = trapProgram
)

// FaultOf names the exception behind a signal (the kernel's arch/powerpc/kernel/traps.c and mm/fault.c have the
// way there). The codes of senders are zero or negative; the kernel's own are positive.
func FaultOf(s *Siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.Addr), Sync: s.Code > 0}
	switch unix.Signal(s.Signo) {
	case unix.SIGSEGV:
		f.Trap = trapData
	case unix.SIGBUS:
		f.Trap = trapAlign
	case unix.SIGILL, unix.SIGFPE, unix.SIGTRAP:
		f.Trap, f.Insn = trapProgram, true
	default:
		f.Sync = false
	}
	return f
}

// loopCode passes some time, and then makes rt_sigreturn.
func loopCode() (code []byte) {
	for _, w := range []uint32{
		0x3d800000 | loopRounds>>16, // lis r12, loopRounds
		0x7d8903a6,                  // mtctr r12
		0x42000000,                  // bdnz, to itself
		0x380000ac,                  // li r0, 172: rt_sigreturn
		0x44000002,                  // sc
	} {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}
