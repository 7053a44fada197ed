//go:build linux && (arm64 || riscv64)

package tracee

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/seccomp"
)

// What machines have in common whose kernels came late: their registers are read in sets (PTRACE_GETREGSET), and each
// call is made by an instruction of four bytes.

// Registers are a task's general ones, in the order of its kernel's struct. Where each is that has
// a use, and how many there are, is the machine's: regPC, regSP, regLink, regResult, which is the
// first argument's, too, regNumber, of a call, and regWords.
type Registers [regWords]uint64

// PC is the program counter.
func (r *Registers) PC() uint64 { return r[regPC] }

// SP is the stack pointer.
func (r *Registers) SP() uint64       { return r[regSP] }
func (r *Registers) setSP(v uint64)   { r[regSP] = v }
func (r *Registers) linkReg() *uint64 { return &r[regLink] }

// Result is that of a call.
func (r *Registers) Result() uint64 { return r[regResult] }

// number is that of a call that is about to be made.
func (r *Registers) number() uint64 { return r[regNumber] }

// BeginCall has them make a call.
func (r *Registers) BeginCall(nr uint64) { r[regNumber] = nr }

// isCall tells the instruction that makes a system call.
func isCall(insn uint32) bool { return insn == callInsn }

// GetRegs reads the registers of a stopped task. Errors: ESRCH, it does not stand.
func GetRegs(tid int, r *Registers) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setGeneral, unsafe.Pointer(r), int(unsafe.Sizeof(*r)))
	return err
}

// SetRegs writes them.
func SetRegs(tid int, r *Registers) error {
	_, err := regset(unix.PTRACE_SETREGSET, tid, setGeneral, unsafe.Pointer(r), int(unsafe.Sizeof(*r)))
	return err
}

// noCall has nothing to do: the kernel has forgotten the call that a stop interrupts before
// the stop is reported, and stands ready to make it once more.
func (r *Registers) noCall() {}

// InCall tells whether a stopped task has been interrupted in a system call: it stands at the
// instruction, to make it once more, or behind it. One that came there on its own is
// taken for such a one, too.
func (r *Registers) InCall(m arch.Memory) bool {
	var b [8]byte
	if m.ReadAt(arch.Addr(r.PC())-4, b[:]) != nil {
		return false
	}
	return binary.LittleEndian.Uint32(b[:]) == callInsn || binary.LittleEndian.Uint32(b[4:]) == callInsn
}

// BlockedCall is a system call that a task sleeps in: after its interruption nobody can tell
// what its first argument was.
type BlockedCall struct{ number, arg, sp, pc uint64 }

// Look looks at a task that is about to be asked to stop.
func (b *BlockedCall) Look(pid, tid int) {
	*b = BlockedCall{}
	line, err := TaskFile(pid, tid, "syscall")
	f := strings.Fields(string(line))
	if err != nil || len(f) != 9 { // it runs; else: number, six arguments, sp, pc
		return
	}
	var v [4]uint64
	for i, n := range []int{0, 1, 7, 8} {
		if v[i], err = strconv.ParseUint(f[n], 0, 64); err != nil {
			return
		}
	}
	*b = BlockedCall{v[0], v[1], v[2], v[3]}
}

// HideInterruption hides that a stop of ours interrupted a system call that fails then, as few do: it is made
// once more. It answers whether it did so.
func (b *BlockedCall) HideInterruption(tid int, a *ABI, r *Registers) bool {
	if r.Result() != ErrnoResult(unix.EINTR) || b.pc == 0 || b.pc != r.PC() || b.sp != r.SP() || b.number != r.number() || !a.interrupted(r) {
		return false
	}
	*a.Args(r)[0] = b.arg
	r.SetPC(r.PC() - a.callLen)
	Insist(func() error { return SetRegs(tid, r) })
	return true
}

// RestartInput is the input for restart_syscall(2), by which the kernel goes on with a call with a time limit that a stop has
// interrupted. Here the kernel has decided that before anybody can see it, so there is nothing to be done about it: nil.
func (*ABI) RestartInput(Registers) *seccomp.Input { return nil }

// MakeAnew is not asked for here: see RestartInput.
func (*ABI) MakeAnew(int, *Registers) {}
