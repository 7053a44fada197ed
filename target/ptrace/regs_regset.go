//go:build linux && (arm64 || riscv64)

package ptrace

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
)

// What machines have in common whose kernels came late: their registers are read in sets (PTRACE_GETREGSET), the
// processor stands at a trap, not behind it, and each call is made by an instruction of four bytes.

// regset reads or writes a register set, and answers its length in bytes.
func regset(req, tid, set int, at unsafe.Pointer, size int) (int, error) {
	if err := faults.At("ptrace", req); err != nil {
		return 0, err
	}
	iov := unix.Iovec{Base: (*byte)(at), Len: uint64(size)}
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), uintptr(set), uintptr(unsafe.Pointer(&iov)), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(iov.Len), nil
}

func getRegs(tid int, r *registers) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setGeneral, unsafe.Pointer(r), int(unsafe.Sizeof(*r)))
	return err
}

func setRegs(tid int, r *registers) error {
	_, err := regset(unix.PTRACE_SETREGSET, tid, setGeneral, unsafe.Pointer(r), int(unsafe.Sizeof(*r)))
	return err
}

// noCall has nothing to do: the kernel has forgotten the call that a stop interrupts before
// the stop is reported, and stands ready to make it once more.
func (r *registers) noCall() {}

// inCall tells whether a stopped task has been interrupted in a system call: it stands at the
// instruction, to make it once more, or behind it. One that came there on its own is
// taken for such a one, too.
func (r *registers) inCall(m arch.Memory) bool {
	var b [8]byte
	if m.ReadAt(arch.Addr(r.pc())-4, b[:]) != nil {
		return false
	}
	return binary.LittleEndian.Uint32(b[:]) == callInsn || binary.LittleEndian.Uint32(b[4:]) == callInsn
}

// The processor stands at a trap that it reports, and the report tells where that is. So it needs no
// mark to see that a trap has been dealt with: the thread stands somewhere else by now, or
// it was set back there, to meet the trap once more.
func (r *registers) markDealt() {}
func (r *registers) unmark()    {}

func (r *registers) isDealt(tid int, back bool) bool {
	var info siginfo
	if back {
		return true
	}
	return transferSiginfo(unix.PTRACE_GETSIGINFO, tid, &info) == nil && unix.Signal(info.signo) == unix.SIGTRAP &&
		info.code == trapBrkpt && info.addr != r.pc()
}

// trapBrkpt is the code (si_code) of a breakpoint instruction's signal.
const trapBrkpt = 1

// blockedCall is a system call that a task sleeps in: after its interruption nobody can tell
// what its first argument was.
type blockedCall struct{ number, arg, sp, pc uint64 }

// beforeInterrupt looks at a task that is about to be asked to stop.
func (p *Process) beforeInterrupt(t *thread) {
	t.blocked = blockedCall{}
	b, err := taskFile(p.pid, t.tid, "syscall")
	f := strings.Fields(string(b))
	if err != nil || len(f) != 9 { // it runs; else: number, six arguments, sp, pc
		return
	}
	var v [4]uint64
	for i, n := range []int{0, 1, 7, 8} {
		if v[i], err = strconv.ParseUint(f[n], 0, 64); err != nil {
			return
		}
	}
	t.blocked = blockedCall{v[0], v[1], v[2], v[3]}
}

// hideInterruption hides that a stop of ours interrupted a system call that fails then, as few do: it is made
// once more. It answers whether it did so.
func (p *Process) hideInterruption(t *thread, r *registers) bool {
	b := t.blocked
	if r.result() != errnoResult(unix.EINTR) || b.pc == 0 || b.pc != r.pc() || b.sp != r.sp() || b.number != r.number() || !p.abi().interrupted(r) {
		return false
	}
	*p.abi().args(r)[0] = b.arg
	r.setPC(r.pc() - p.abi().callLen)
	insist(func() error { return setRegs(t.tid, r) })
	return true
}

// siKernel is the code (si_code) of what the kernel has nothing more to say of.
const siKernel = 0x80

// unstep has nothing to undo: the kernel forgets steps with their tracer, where it has any.
func unstep(int) {}

// trapFlag is none: no register has a flag for steps.
const trapFlag = 0
