package roles

import (
	"reflect"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/args"
	"kprobe/internal/calls"
	"kprobe/internal/errno"
	"kprobe/internal/goabi"
	"kprobe/internal/inside"
	"kprobe/internal/mem"
	"kprobe/target"
)

// View shows handlers a stopped thread.
type View struct {
	R      arch.Regs
	Thread target.Thread
	Of     any // the session's own, in which this is

	home *Home
	task Task // of handlers that run aside; else it is found when asked for

	gAsked, gFound bool // whether the goroutine was looked for, and found
	g              goabi.Goroutine
}

// Begin has the view be of a thread; its registers are read by the caller.
func (v *View) Begin(h *Home, th target.Thread) {
	v.home, v.Thread, v.gAsked, v.gFound = h, th, false, false
}

// Aside has the view be asked elsewhere than on the owner thread: the target may be asked there only.
func (v *View) Aside() { v.task = v.home.TaskOf(v.Thread) }

// Raw is the registers themselves.
func (v *View) Raw() *arch.Regs { return &v.R }

// Get is one of them.
func (v *View) Get(n arch.Reg) uint64 { return v.R[n] }

// PC is the program counter.
func (v *View) PC() arch.Addr { return v.R.Addr(v.home.On.Arch.PC) }

// SP is the stack pointer.
func (v *View) SP() arch.Addr { return v.R.Addr(v.home.On.Arch.SP) }

// ReadMem reads memory as the program wrote it. Errors: EFAULT.
func (v *View) ReadMem(addr arch.Addr, p []byte) error { return v.home.On.Read(addr, p) }

// Arg reads integer or pointer argument n of the C ABI, counted from 0, at a function's entry.
func (v *View) Arg(n int) (uint64, error) {
	a := v.home.On.Arch
	if n < len(a.Args) {
		return v.R[a.Args[n]], nil
	}
	return mem.Word(v.home.On.T, a, v.SP()+arch.Addr(a.StackArg(n-len(a.Args))))
}

// GoArgs reads the arguments of a Go function at its entry; none of them is read on demand.
func (v *View) GoArgs(ptrs ...any) error {
	return args.Go.Read(v.home.On.Machine, v, ptrs, false, args.Pointers{Is: func(reflect.Type) bool { return false }})
}

// Vector reads the low 16 bytes of vector register n. Errors: ENOTSUP where the target does not show them.
func (v *View) Vector(n int) (b [16]byte, err error) {
	err = v.vectors(func(t target.Vectors) error { return t.Vector(v.Thread, n, &b) })
	return b, err
}

// SetVector writes them.
func (v *View) SetVector(n int, b [16]byte) error {
	return v.vectors(func(t target.Vectors) error { return t.SetVector(v.Thread, n, &b) })
}

func (v *View) vectors(f func(target.Vectors) error) (err error) {
	t, ok := v.home.On.T.(target.Vectors)
	if !ok {
		return errno.New(syscall.ENOTSUP, "the target does not show its vector registers")
	}
	v.home.On.Owner.On(func() { err = f(t) })
	return err
}

// Goroutine finds the goroutine that the thread was running.
func (v *View) Goroutine() (goabi.Goroutine, bool) {
	if rt := v.home.On.Image.Goroutines(); !v.gAsked && rt != nil {
		v.g, v.gFound = rt.Current(&v.R, v.home.On.T)
		v.gAsked = true
	}
	return v.g, v.gFound
}

// Spot is where the thread stands.
func (v *View) Spot() calls.Spot {
	at := calls.Spot{Thread: v.Thread, SP: v.SP(), TP: inside.PointerOf(v.home.On.T, v.Thread, &v.R)}
	if g, ok := v.Goroutine(); ok {
		at.G, at.Hi, at.Goroutine = g.G, g.Hi, g.ID
	}
	return at
}

// Task identifies a thread of the target.
type Task struct {
	PID, TID  int
	Addr      arch.Addr // in a kernel the task's struct task_struct
	Goroutine uint64
}

// Task is the thread that is viewed.
func (v *View) Task() Task {
	t := v.task
	if t.TID == 0 {
		t = v.home.TaskOf(v.Thread)
	}
	if g, ok := v.Goroutine(); ok {
		t.Goroutine = g.ID
	}
	return t
}

// Views shows each thread of the target, which stands still, in a view of its own, as long as show answers true.
func (h *Home) Views(show func(*View) bool, make func() *View) {
	for _, th := range h.On.T.Threads() {
		v := make()
		v.Begin(h, th)
		if h.On.T.Regs(th, &v.R) == nil && !show(v) { // else it has ended
			return
		}
	}
}

// TaskOf is a thread; its goroutine is not looked for.
func (h *Home) TaskOf(th target.Thread) Task {
	t := Task{PID: h.On.T.PID(), TID: int(th)}
	if h.tasks != nil {
		t.PID = h.tasks.ThreadPID(th)
	}
	if cpus, ok := h.On.T.(target.Switcher); ok {
		t.TID, t.Addr = cpus.TaskID(th), cpus.TaskAt(th)
	}
	return t
}
