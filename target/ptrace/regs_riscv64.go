//go:build linux && riscv64

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

var programs = []program{{elf.EM_RISCV, elf.ELFCLASS64, arch.RISCV64}}

// registers are a task's general ones, as its kernel has them (struct user_regs_struct): the program
// counter, where x0 would be, and x1 to x31.
type registers [32]uint64

func (r *registers) x(n int) *uint64 { return &r[n] }

// Registers by their use.
const (
	regRA, regSP, regResult, regNumber = 1, 2, 10, 17
)

// Register sets (NT_*) of PTRACE_GETREGSET and PTRACE_SETREGSET.
const (
	setGeneral = 1     // NT_PRSTATUS
	setFloat   = 2     // NT_PRFPREG
	setVector  = 0x901 // NT_RISCV_VECTOR
)

func (r *registers) pc() uint64          { return r[0] }
func (r *registers) setPC(v uint64)      { r[0] = v }
func (r *registers) sp() uint64          { return r[regSP] }
func (r *registers) result() uint64      { return r[regResult] }
func (r *registers) number() uint64      { return r[regNumber] } // of a call that is about to be made
func (r *registers) beginCall(nr uint64) { r[regNumber] = nr }

// returnTo makes the return of a call lead to a frame.
func (r *registers) returnTo(_ *abi, frame, back arch.Addr, _ int) {
	r[regSP], r[regRA] = uint64(frame), uint64(back)
}

// skipCall keeps a task, which is about to make a call, from making it: there is none of the number -1.
func skipCall(tid int) error {
	return insist(func() error {
		var r registers
		if err := getRegs(tid, &r); err != nil {
			return err
		}
		r.beginCall(^uint64(0))
		return setRegs(tid, &r)
	})
}

// callInsn is ecall.
const callInsn = 0x73

// archRegs and userRegs carry registers between the kernel's order and ours.
func (a *abi) archRegs(u *registers, r *arch.Regs) {
	copy(r[:], u[:])
	r[0], r[a.machine.PC] = 0, u[0]
}

func (a *abi) userRegs(r *arch.Regs, u *registers) {
	copy(u[:], r[:])
	u[0] = r[a.machine.PC]
}

// floatState is the kernel's struct __riscv_d_ext_state.
type floatState struct {
	f    [32]uint64
	fcsr uint32
	_    uint32
}

func getFloat(tid int, s *floatState) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setFloat, unsafe.Pointer(s), int(unsafe.Sizeof(*s)))
	return regsError(err)
}

// Vector reads floating point register n, which is all that functions take arguments in.
func (p *Process) Vector(th target.Thread, n int, v *[16]byte) error {
	var s floatState
	if n < 0 || n >= len(s.f) {
		return unix.EINVAL
	}
	if err := getFloat(int(th), &s); err != nil {
		return err
	}
	*v = [16]byte{}
	binary.LittleEndian.PutUint64(v[:], s.f[n])
	return nil
}

// SetVector writes floating point register n.
func (p *Process) SetVector(th target.Thread, n int, v *[16]byte) error {
	var s floatState
	if n < 0 || n >= len(s.f) {
		return unix.EINVAL
	}
	if err := getFloat(int(th), &s); err != nil {
		return err
	}
	s.f[n] = binary.LittleEndian.Uint64(v[:])
	_, err := regset(unix.PTRACE_SETREGSET, int(th), setFloat, unsafe.Pointer(&s), int(unsafe.Sizeof(s)))
	return regsError(err)
}

// Trap numbers are the exception's code (scause; volume II, table 14).
const (
	trapIllegal = 2
	trapBreak   = 3
	trapAlign   = 4
	trapData    = 13
)

// faultOf names the exception behind a signal (the kernel's arch/riscv/mm/fault.c and kernel/traps.c have the
// way there). The codes of senders are zero or negative; the kernel's own are positive.
func faultOf(s *siginfo) target.Fault {
	f := target.Fault{Addr: arch.Addr(s.addr), Sync: s.code > 0}
	switch unix.Signal(s.signo) {
	case unix.SIGSEGV:
		f.Trap = trapData
	case unix.SIGBUS:
		f.Trap = trapAlign
	case unix.SIGILL:
		f.Trap, f.Insn = trapIllegal, true
	case unix.SIGTRAP:
		f.Trap, f.Insn = trapBreak, true
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
	at := arch.Addr(real.sp()-2*frameLen) &^ (frameAlign - 1)
	frame, err := c.parent.abi().frameFor(c.pid, at, 0, real, mask)
	if err == nil {
		err = c.WriteAt(at, frame)
	}
	if err != nil {
		return nil, r, fmt.Errorf("a frame on the child's stack: %w", err)
	}
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
	r = real
	r.setPC(page)
	r[regSP] = uint64(at)
	return code, r, nil
}

// lost is what a system call takes from a task beyond its general registers, by the kernel's conventions: the vector
// registers (the kernel's Documentation/arch/riscv/vector.rst), which a thread that is interrupted anywhere may have in use.
type lost []byte

// lostInCalls reads them: nothing where the processor has none, or the task has not used them.
func lostInCalls(tid int) (lost, error) {
	for size := 9 << 10; ; size *= 8 { // registers of 256 bytes, which most have fewer than; then larger ones
		b := make([]byte, size)
		n, err := regset(unix.PTRACE_GETREGSET, tid, setVector, unsafe.Pointer(&b[0]), len(b))
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

func (l lost) putBack(tid int) error {
	if len(l) == 0 {
		return nil
	}
	_, err := regset(unix.PTRACE_SETREGSET, tid, setVector, unsafe.Pointer(&l[0]), len(l))
	return err
}
