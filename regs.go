package kprobe

import (
	"math"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/goabi"
	"kprobe/internal/mem"
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
	r  arch.Regs
	s  *Session
	th target.Thread

	gAsked, gFound bool // whether the goroutine was looked for, and found
	g              goabi.Goroutine

	task Task // of handlers that run aside; else it is found when asked for
}

// Get reads a register by number.
func (r *Regs) Get(n arch.Reg) uint64 { return r.r[n] }

// Set changes a register by number.
func (r *Regs) Set(n arch.Reg, v uint64) { r.r[n] = v }

// Reg reads a register by its name in definitions ("di", "%di"), in GDB ("rdi") or, for its
// lower half, in assembly ("edi"). Errors: EINVAL.
func (r *Regs) Reg(name string) (uint64, error) {
	n, mask, ok := r.s.on.Arch.Named(name)
	if !ok {
		return 0, fail(syscall.EINVAL, "%s has no register %q", r.s.on.Arch.Name, name)
	}
	return r.r[n] & mask, nil
}

// SetReg changes a register by its name, as Reg has it. What is written to a lower half
// clears the upper, as an instruction's result does. Errors: EINVAL.
func (r *Regs) SetReg(name string, v uint64) error {
	_, err := r.Reg(name)
	if n, mask, ok := r.s.on.Arch.Named(name); ok {
		r.r[n] = v & mask
	}
	return err
}

// Raw is the registers themselves.
func (r *Regs) Raw() *arch.Regs { return &r.r }

// PC is the program counter: kprobes.txt's instruction pointer.
func (r *Regs) PC() arch.Addr { return arch.Addr(r.r[r.s.on.Arch.PC]) }

// SetPC moves the thread. In a pre-handler it counts only with a non-zero
// result (kprobes.txt 4.1).
func (r *Regs) SetPC(a arch.Addr) { r.r[r.s.on.Arch.PC] = uint64(a) }

// SP is the stack pointer.
func (r *Regs) SP() arch.Addr { return arch.Addr(r.r[r.s.on.Arch.SP]) }

// Flags is the flags register.
func (r *Regs) Flags() uint64 { return r.r[r.s.on.Arch.Flags] }

// Arg reads integer or pointer argument n of the C ABI, counted from 0. It is
// right at a function's entry only.
func (r *Regs) Arg(n int) (uint64, error) {
	a := r.s.on.Arch
	if n < len(a.Args) {
		return r.r[a.Args[n]], nil
	}
	return r.Word(r.SP() + arch.Addr(a.StackArg(n-len(a.Args))))
}

// SetArg changes integer or pointer argument n of the C ABI, as Arg counts them, at a
// function's entry. Errors: EFAULT.
func (r *Regs) SetArg(n int, v uint64) error {
	a := r.s.on.Arch
	if n < len(a.Args) {
		r.r[a.Args[n]] = v
		return nil
	}
	return r.s.putWord(r.SP()+arch.Addr(a.StackArg(n-len(a.Args))), v)
}

// ReturnValue is kprobes.txt's regs_return_value: the integer result, in a
// return handler. Of a 64-bit one of i386 it is the lower half; the upper is in dx.
func (r *Regs) ReturnValue() uint64 { return r.r[r.s.on.Arch.Ret] }

// SetReturnValue changes the integer result.
func (r *Regs) SetReturnValue(v uint64) { r.r[r.s.on.Arch.Ret] = v }

// FloatArg reads floating-point argument n (counted apart from the integer
// ones, from 0) as a float64; FloatArg(0) in a return handler is the result.
// Errors: ENOTSUP where vector registers hold neither, as on i386.
func (r *Regs) FloatArg(n int) (float64, error) {
	if len(r.s.on.Arch.Args) == 0 {
		return 0, fail(syscall.ENOTSUP, "%s has no arguments in vector registers", r.s.on.Arch.Name)
	}
	v, err := r.Vector(n)
	return math.Float64frombits(r.s.on.Arch.Order.Uint64(v[:])), err
}

// Vector reads the low 16 bytes of vector register n.
// Errors: ENOTSUP where the target does not show them.
func (r *Regs) Vector(n int) (v [16]byte, err error) {
	if r.s.vectors == nil {
		return v, fail(syscall.ENOTSUP, "the target does not show its vector registers")
	}
	r.s.on.Owner.On(func() { err = r.s.vectors.Vector(r.th, n, &v) })
	return v, err
}

// SetVector writes the low 16 bytes of vector register n.
func (r *Regs) SetVector(n int, v [16]byte) (err error) {
	if r.s.vectors == nil {
		return fail(syscall.ENOTSUP, "the target does not show its vector registers")
	}
	r.s.on.Owner.On(func() { err = r.s.vectors.SetVector(r.th, n, &v) })
	return err
}

// ReadMem fills p from the target's memory, whole or with an error (EFAULT).
// It sees the program's own bytes: probes are not visible.
func (r *Regs) ReadMem(addr arch.Addr, p []byte) error { return r.s.ReadMem(addr, p) }

// WriteMem writes the target's memory, whole or with an error (EFAULT). It is
// not for code: bytes that lie under a probe come back when it goes.
func (r *Regs) WriteMem(addr arch.Addr, p []byte) error { return r.s.on.T.WriteAt(addr, p) }

// Word reads one pointer-sized word of memory.
func (r *Regs) Word(addr arch.Addr) (uint64, error) { return r.s.word(addr) }

// String reads the zero-terminated text at addr, at most max bytes of it.
func (r *Regs) String(addr arch.Addr, max int) (string, error) {
	return mem.Text(r.s.on.Own(), addr, max)
}

// Task is the thread that hit the probe.
func (r *Regs) Task() Task {
	t := r.task
	if t.TID == 0 {
		t = r.s.task(r.th)
	}
	if g, ok := r.goroutine(); ok {
		t.Goroutine = g.ID
	}
	return t
}

// Time is the time on the clock of the kernel that is probed; false where that is not
// known, or it is a process that is. A stop is a little longer by it.
func (r *Regs) Time() (time.Duration, bool) {
	t, ok := r.s.on.T.(interface {
		Time(target.Thread) (time.Duration, error)
	})
	if !ok {
		return 0, false
	}
	at, err := t.Time(r.th)
	return at, err == nil
}

// Comm is the name of the thread that hit the probe, "" where it has none.
func (r *Regs) Comm() string { return r.s.Comm(int(r.th)) }

// Comm is the name of a thread of the target, or was when it was last seen; ""
// where threads have none.
func (s *Session) Comm(tid int) string {
	if s.tasks == nil {
		return ""
	}
	return s.names.Last(tid, s.tasks.Comm(target.Thread(tid)))
}

// CPU is where that thread ran last, -1 where that is not known.
func (r *Regs) CPU() int {
	if r.s.tasks == nil {
		return -1
	}
	return r.s.tasks.CPU(r.th)
}

// goroutine finds the goroutine that the thread was running when it hit the probe.
func (r *Regs) goroutine() (goabi.Goroutine, bool) {
	if rt := r.s.on.Image.Goroutines(); !r.gAsked && rt != nil {
		r.g, r.gFound = rt.Current(&r.r, r.s.on.T)
		r.gAsked = true
	}
	return r.g, r.gFound
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

func (s *Session) word(addr arch.Addr) (uint64, error) { return mem.Word(s.on.T, s.on.Arch, addr) }

func (s *Session) putWord(addr arch.Addr, v uint64) error {
	return mem.PutWord(s.on.T, s.on.Arch, addr, v)
}
