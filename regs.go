package kprobe

import (
	"math"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/mem"
	"kprobe/internal/roles"
	"kprobe/target"
)

// Regs are the registers of the thread that hit a probe: kprobes.txt's struct
// pt_regs. What a handler changes is what the thread goes on with. A Regs is
// valid until its handler returns.
//
// In a pre-handler and in an entry-handler the PC is the probe's address; in a
// post-handler it is where the program goes on; in a return handler it is the
// real return address.
type Regs struct {
	v roles.View
	s *Session
}

// view makes a Regs, and answers what the engine has of it.
func (s *Session) view() *roles.View {
	r := &Regs{s: s}
	r.v.Of = r
	return &r.v
}

// regsOf is the Regs that a view is of.
func regsOf(v *roles.View) *Regs { return v.Of.(*Regs) }

// Get reads a register by number.
func (r *Regs) Get(n arch.Reg) uint64 { return r.v.R[n] }

// Set changes a register by number.
func (r *Regs) Set(n arch.Reg, v uint64) { r.v.R[n] = v }

// Reg reads a register by its name in definitions ("di", "%di"), in GDB ("rdi") or, for its
// lower half, in assembly ("edi"). Errors: EINVAL.
func (r *Regs) Reg(name string) (uint64, error) {
	n, mask, ok := r.s.e.On.Arch.Named(name)
	if !ok {
		return 0, fail(syscall.EINVAL, "%s has no register %q", r.s.e.On.Arch.Name, name)
	}
	return r.v.R[n] & mask, nil
}

// SetReg changes a register by its name, as Reg has it. What is written to a lower half
// clears the upper, as an instruction's result does. Errors: EINVAL.
func (r *Regs) SetReg(name string, v uint64) error {
	_, err := r.Reg(name)
	if n, mask, ok := r.s.e.On.Arch.Named(name); ok {
		r.v.R[n] = v & mask
	}
	return err
}

// Raw is the registers themselves.
func (r *Regs) Raw() *arch.Regs { return &r.v.R }

// PC is the program counter: kprobes.txt's instruction pointer.
func (r *Regs) PC() arch.Addr { return r.v.PC() }

// SetPC moves the thread. In a pre-handler it counts only with a non-zero
// result (kprobes.txt 4.1).
func (r *Regs) SetPC(a arch.Addr) { r.v.R[r.s.e.On.Arch.PC] = uint64(a) }

// SP is the stack pointer.
func (r *Regs) SP() arch.Addr { return r.v.SP() }

// Flags is the flags register.
func (r *Regs) Flags() uint64 { return r.v.R[r.s.e.On.Arch.Flags] }

// Arg reads integer or pointer argument n of the C ABI, counted from 0. It is
// right at a function's entry only.
func (r *Regs) Arg(n int) (uint64, error) { return r.v.Arg(n) }

// SetArg changes integer or pointer argument n of the C ABI, as Arg counts them, at a
// function's entry. Errors: EFAULT.
func (r *Regs) SetArg(n int, v uint64) error {
	a := r.s.e.On.Arch
	if n < len(a.Args) {
		r.v.R[a.Args[n]] = v
		return nil
	}
	return r.s.putWord(r.SP()+arch.Addr(a.StackArg(n-len(a.Args))), v)
}

// ReturnValue is kprobes.txt's regs_return_value: the integer result, in a
// return handler; at KretprobeInstance.Tail it is anything. Of a 64-bit one of i386 it
// is the lower half; the upper is in dx.
func (r *Regs) ReturnValue() uint64 { return r.v.R[r.s.e.On.Arch.Ret] }

// SetReturnValue changes the integer result.
func (r *Regs) SetReturnValue(v uint64) { r.v.R[r.s.e.On.Arch.Ret] = v }

// FloatArg reads floating-point argument n (counted apart from the integer
// ones, from 0) as a float64; FloatArg(0) in a return handler is the result.
// Errors: ENOTSUP where vector registers hold neither, as on i386.
func (r *Regs) FloatArg(n int) (float64, error) {
	if len(r.s.e.On.Arch.Args) == 0 {
		return 0, fail(syscall.ENOTSUP, "%s has no arguments in vector registers", r.s.e.On.Arch.Name)
	}
	v, err := r.Vector(n)
	return math.Float64frombits(r.s.e.On.Arch.Order.Uint64(v[:])), err
}

// Vector reads the low 16 bytes of vector register n.
// Errors: ENOTSUP where the target does not show them.
func (r *Regs) Vector(n int) (v [16]byte, err error) { return r.v.Vector(n) }

// SetVector writes the low 16 bytes of vector register n.
func (r *Regs) SetVector(n int, v [16]byte) (err error) { return r.v.SetVector(n, v) }

// ReadMem fills p from the target's memory, whole or with an error (EFAULT).
// It sees the program's own bytes: probes are not visible.
func (r *Regs) ReadMem(addr arch.Addr, p []byte) error { return r.s.ReadMem(addr, p) }

// WriteMem writes the target's memory, whole or with an error (EFAULT). It is
// not for code: bytes that lie under a probe come back when it goes.
func (r *Regs) WriteMem(addr arch.Addr, p []byte) error { return r.s.e.On.T.WriteAt(addr, p) }

// Word reads one pointer-sized word of memory.
func (r *Regs) Word(addr arch.Addr) (uint64, error) { return r.s.word(addr) }

// String reads the zero-terminated text at addr, at most max bytes of it.
func (r *Regs) String(addr arch.Addr, max int) (string, error) {
	return mem.Text(r.s.e.On.Own(), addr, max)
}

// Task is the thread that hit the probe.
func (r *Regs) Task() Task { return Task(r.v.Task()) }

// Time is the time on the clock of the kernel that is probed; false where that is not
// known, or it is a process that is. A stop is a little longer by it.
func (r *Regs) Time() (time.Duration, bool) {
	t, ok := r.s.e.On.T.(interface {
		Time(target.Thread) (time.Duration, error)
	})
	if !ok {
		return 0, false
	}
	at, err := t.Time(r.v.Thread)
	return at, err == nil
}

// Comm is the name of the thread that hit the probe, "" where it has none.
func (r *Regs) Comm() string { return r.s.Comm(int(r.v.Thread)) }

// CPU is where that thread ran last, -1 where that is not known.
func (r *Regs) CPU() int {
	tasks, ok := r.s.e.On.T.(target.Tasks)
	if !ok {
		return -1
	}
	return tasks.CPU(r.v.Thread)
}

// Task identifies a thread of the target: kprobes.txt's "task".
type Task struct {
	PID int // the process; a vfork child's own until it execs
	TID int // the thread

	Addr arch.Addr // in a kernel the task's struct task_struct; 0 where it is not known

	// Goroutine is what runs on it in a Go program, by the number that
	// tracebacks show; 0 on system stacks, and where it cannot be known.
	Goroutine uint64
}
