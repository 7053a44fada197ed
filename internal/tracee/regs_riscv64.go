//go:build linux && riscv64

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
var Programs = []program{{elf.EM_RISCV, elf.ELFCLASS64, arch.RISCV64}}

// The kernel's struct user_regs_struct: the program counter, where x0 would be, and x1 to x31.
const (
	regPC, regLink, regSP, regResult, regNumber, regWords = 0, 1, 2, 10, 17, 32
)

// Register sets (NT_*) of PTRACE_GETREGSET and PTRACE_SETREGSET.
const (
	setGeneral = 1     // NT_PRSTATUS
	setFloat   = 2     // NT_PRFPREG
	setVectors = 0x901 // NT_RISCV_VECTOR
)

// SetPC writes the program counter.
func (r *Registers) SetPC(v uint64) { r[regPC] = v }

// callNone changes the call that a task is about to make: there is none of the number -1.
func (r *Registers) callNone() { r.BeginCall(^uint64(0)) }

// callInsn is ecall.
const callInsn = 0x73

// ArchRegs and UserRegs carry registers between the kernel's order and ours.
func (a *ABI) ArchRegs(u *Registers, r *arch.Regs) {
	copy(r[:], u[:])
	r[regPC], r[a.Machine.PC] = 0, u[regPC]
}

// UserRegs is the other way.
func (a *ABI) UserRegs(r *arch.Regs, u *Registers) {
	copy(u[:], r[:])
	u[regPC] = r[a.Machine.PC]
}

// floatState is the kernel's struct __riscv_d_ext_state.
type floatState struct {
	f    [32]uint64
	fcsr uint32
	_    uint32
}

// Trap numbers are the exception's code (scause; volume II, table 14).
const (
	trapIllegal = 2
	TrapBreak   = 3
	trapAlign   = 4
	trapData    = 13
)

// FaultOf names the exception behind a signal (the kernel's arch/riscv/mm/fault.c and kernel/traps.c have the
// way there). The codes of senders are zero or negative; the kernel's own are positive.
func FaultOf(s *Siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.Addr), Sync: s.Code > 0}
	switch unix.Signal(s.Signo) {
	case unix.SIGSEGV:
		f.Trap = trapData
	case unix.SIGBUS:
		f.Trap = trapAlign
	case unix.SIGILL:
		f.Trap, f.Insn = trapIllegal, true
	case unix.SIGTRAP:
		f.Trap, f.Insn = TrapBreak, true
	default:
		f.Sync = false
	}
	return f
}

// loopCode passes some time, and then makes rt_sigreturn.
func loopCode() (code []byte) {
	for _, w := range []uint32{
		loopRounds&^0xfff | 0x2b7, // lui t0, loopRounds
		0x0100000f,                // pause
		0xfff28293,                // addi t0, t0, -1
		0xfe029ce3,                // bnez t0, back to it
		0x08b00893,                // li a7, 139: rt_sigreturn
		callInsn,
	} {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

// Lost is what a system call takes from a task beyond its general registers, by the kernel's conventions: the vector
// registers (the kernel's Documentation/arch/riscv/vector.rst), which a thread that is interrupted anywhere may have in use.
type Lost []byte

// LostInCalls reads them: nothing where the processor has none, or the task has not used them.
func LostInCalls(tid int) (Lost, error) {
	for size := 9 << 10; ; size *= 8 { // registers of 256 bytes, which most have fewer than; then larger ones
		b := make([]byte, size)
		n, err := regset(unix.PTRACE_GETREGSET, tid, setVectors, unsafe.Pointer(&b[0]), len(b))
		switch {
		case err == unix.EINVAL, err == unix.ENODATA, err == unix.ENODEV:
			return nil, nil
		case err != nil:
			return nil, err
		case n < len(b):
			return b[:n], nil
		}
	}
}

// PutBack gives it back.
func (l Lost) PutBack(tid int) error {
	if len(l) == 0 {
		return nil
	}
	_, err := regset(unix.PTRACE_SETREGSET, tid, setVectors, unsafe.Pointer(&l[0]), len(l))
	return err
}

// loadsNumber tells the number of a system call that an instruction loads: li a7.
func loadsNumber(insn uint32) (nr uint64, ok bool) {
	return uint64(insn >> 20), insn&0xfffff == 0x00893
}
