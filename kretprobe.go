package kprobe

import (
	"runtime"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/engine"
	"kprobe/internal/kind"
	"kprobe/internal/returns"
	"kprobe/internal/roles"
)

// MaxData is the most private data a return instance can have, in bytes.
const MaxData = kind.MaxData

// Kretprobe is a return probe (kprobes.txt 1.3, 4.3). The caller fills in the
// exported fields and leaves them alone while it is registered.
type Kretprobe struct {
	Kp Kprobe // where: a function's entry; its handlers are not used

	// Handler runs when the function returns; its result is ignored.
	Handler func(ri *KretprobeInstance, regs *Regs) int

	// EntryHandler runs when the function is entered. A result other than 0
	// leaves this call alone: its return is not reported, and not missed.
	EntryHandler func(ri *KretprobeInstance, regs *Regs) int

	// MaxActive is how many calls can be under way at once; 0 or less means max(10, 2*CPUs). Further calls are missed.
	MaxActive int

	// DataSize is the private data of each instance, in bytes, at most MaxData.
	DataSize int

	// Engine is how returns are noticed: EngineAuto unless there is a reason. One that is not right for the function is refused.
	Engine Engine

	// Program runs inside the target when the function returns, EntryProgram when
	// it is entered, in place of the handlers; Kp.Cookie is for both. MaxActive
	// then counts calls of each thread, or of each goroutine; in a kernel all calls, as it does
	// without programs, and DataSize is at most 256 there. An EntryProgram that
	// answers other than 0 leaves the call alone. Both reach the call's private data, DataSize
	// bytes, by the helper call_data (bpf.Helpers). See Kprobe.Program.
	Program, EntryProgram *Program

	returns roles.Return                  // the engine's
	engine  atomic.Pointer[engine.Engine] // that it was last prepared for
}

// Engine says how a return probe notices returns.
type Engine uint8

const (
	// EngineAuto takes the swap where it is provably right, else the exits.
	EngineAuto = Engine(returns.None)
	// EngineSwap exchanges the return address on the stack, as the kernel does:
	// one trap at the entry and one at the return.
	EngineSwap = Engine(returns.Swap)
	// EngineExits probes each instruction that leaves the function, and leaves
	// the stack alone. At a jump to another function a program sees that
	// jump's registers, where the result has yet to come. A program that reads
	// it is not put there unless this engine is asked for.
	EngineExits = Engine(returns.Exits)
)

// KretprobeInstance is one call that is under way.
type KretprobeInstance struct {
	Rp      *Kretprobe
	RetAddr arch.Addr // the real return address
	Entry   arch.Addr // the function
	Task    Task      // the thread that made the call
	Data    []byte    // private to this call, DataSize bytes, zero at the start

	// Tail tells that the call has ended in a jump to another function, whose
	// result will be this one's too: there is no ReturnValue yet. With
	// EngineSwap that is not seen, and the return comes after the jump.
	Tail bool
}

// NMissed counts the calls whose return was not reported because MaxActive instances were in use (kprobes.txt
// 1.3.1), their entry handler panicked, or there was no return address to swap: the function was jumped to.
func (rp *Kretprobe) NMissed() uint64 {
	_, missed := rp.returns.Lost()
	return missed
}

// Abandoned counts the calls that never returned: the sum of those in Lost.
func (rp *Kretprobe) Abandoned() uint64 {
	l := rp.Lost()
	return l.Unwound + l.Longjmp + l.Goexit + l.Exited
}

// Lost counts the calls whose return was not reported, by cause. That a call is over is noticed when its thread or
// goroutine is next seen by a return probe further out, or when its instance is needed.
type Lost struct {
	NoInstance uint64 // NMissed: mostly, MaxActive calls were under way
	Unwound    uint64 // an exception or a panic went through the function
	Longjmp    uint64 // a longjmp did, or the coroutine that was in it was dropped
	Goexit     uint64 // the goroutine ended in it
	Exited     uint64 // the thread ended in it

	// Unregistered counts the calls that were under way when the probe was unregistered, as far as
	// anybody could tell; or when all probes were switched off (SetEnabled), where exits are probed. With handlers each call that was entered is then in one
	// count: it was reported (Hits), vetoed by the entry handler, or is lost by one of these causes.
	Unregistered uint64
}

// Lost counts the calls that were entered and not reported.
func (rp *Kretprobe) Lost() Lost {
	by, missed := rp.returns.Lost()
	return Lost{missed, by[calls.Unwound], by[calls.Longjmp], by[calls.Goexit], by[calls.Exited], by[calls.Unregistered]}
}

// Hits counts the returns that were reported.
func (rp *Kretprobe) Hits() uint64 { return rp.returns.Reported() }

// Exits tells how many instructions are probed at which the function may be left, where that is
// how its returns are noticed, and at how many of them a jump leads to the probe's program.
func (rp *Kretprobe) Exits() (probed, jumps int) {
	e := rp.engine.Load()
	if e == nil {
		return 0, 0
	}
	return e.Exits(&rp.Kp.probe)
}

// RegisterKretprobe places one return probe (kprobes.txt 4.3). Errors: as RegisterKprobe; EINVAL where the place is not
// a function's entry, or a kernel bars its return, E2BIG, and ENOTSUP where no engine is right for the function (it returns twice, or on another
// stack, or is not called), or not the one that was asked for.
func (s *Session) RegisterKretprobe(rp *Kretprobe) error {
	return unbatch(s.RegisterKretprobes([]*Kretprobe{rp}))
}

// RegisterKretprobes places several in one stop of the target; if one fails, none stays. Errors: *BatchError.
func (s *Session) RegisterKretprobes(rps []*Kretprobe) error { return s.Register(probes(rps)...) }

func (rp *Kretprobe) kprobe() *Kprobe {
	if rp == nil {
		return nil
	}
	return &rp.Kp
}

func (rp *Kretprobe) prepare(s *Session) error {
	if err := rp.checkPrograms(); err != nil {
		return err
	}
	most := rp.MaxActive
	if most <= 0 {
		most = max(10, 2*runtime.NumCPU())
	}
	asked := rp.Kp.asked()
	asked.Handlers = handlers{&rp.Kp}
	err := rp.returns.Prepare(s.e.Home, &rp.Kp.probe, asked, roles.AskedReturn{MaxActive: most, DataSize: rp.DataSize,
		Engine: returns.Engine(rp.Engine), Program: rp.Program.role(), EntryProgram: rp.EntryProgram.role(), Handlers: (*returnHandlers)(rp)})
	if err == nil {
		rp.MaxActive = most
		rp.engine.Store(s.e)
		rp.Kp.PreHandler, rp.Kp.PostHandler, rp.Kp.FaultHandler = nil, nil, nil
	}
	return err
}

// checkPrograms holds a return probe with programs to what there can be.
func (rp *Kretprobe) checkPrograms() error {
	switch {
	case rp.Program == nil && rp.EntryProgram == nil && rp.Kp.Program == nil:
		return nil
	case rp.Kp.Program != nil:
		return fail(syscall.EINVAL, "a return probe's programs are Program and EntryProgram")
	case rp.Program == nil:
		return fail(syscall.EINVAL, "an entry program goes with a program for the return; CountOnly will do")
	case rp.Handler != nil || rp.EntryHandler != nil:
		return fail(syscall.EINVAL, "a probe has programs or handlers, not both")
	}
	return nil
}

// returnHandlers runs the handlers of a return probe (roles.ReturnHandlers).
type returnHandlers Kretprobe

// Entered runs the entry handler. After a panic the return is not to be reported: the private data may be
// half of what the other handler expects.
func (rp *returnHandlers) Entered(c *roles.Call, v *roles.View) (wanted bool) {
	ri, ok := c.Instance.Own.(*KretprobeInstance)
	if !ok {
		ri = &KretprobeInstance{Rp: (*Kretprobe)(rp), Data: make([]byte, rp.DataSize)}
		c.Instance.Own = ri
	}
	r := regsOf(v)
	clear(ri.Data)
	ri.RetAddr, ri.Entry, ri.Task, ri.Tail = c.RetAddr, rp.Kp.Addr, r.Task(), false
	if rp.EntryHandler == nil {
		return true
	}
	defer func() {
		if e := recover(); e != nil {
			rp.returns.Missed.Add(1)
			handlers{&rp.Kp}.fault(r, e)
		}
	}()
	return rp.EntryHandler(ri, r) == 0
}

func (rp *returnHandlers) Returned(i *roles.Instance, v *roles.View) {
	if rp.Handler == nil {
		return
	}
	r, ri := regsOf(v), i.Own.(*KretprobeInstance)
	ri.Tail = i.Tail
	defer handlers{&rp.Kp}.recovered(r)
	rp.Handler(ri, r)
}

// UnregisterKretprobe removes a return probe. Calls that are under way return correctly, unreported.
func (s *Session) UnregisterKretprobe(rp *Kretprobe) error {
	return s.UnregisterKretprobes([]*Kretprobe{rp})
}

// UnregisterKretprobes removes several in one stop; see UnregisterKprobes.
func (s *Session) UnregisterKretprobes(rps []*Kretprobe) error { return s.Unregister(probes(rps)...) }

// EnableKretprobe lets a disabled return probe fire again (kprobes.txt 4.8).
func (s *Session) EnableKretprobe(rp *Kretprobe) error {
	return s.setDisabled(probes([]*Kretprobe{rp}), false)
}

// DisableKretprobe silences a return probe (kprobes.txt 4.7). Calls that are under way are still reported.
func (s *Session) DisableKretprobe(rp *Kretprobe) error {
	return s.setDisabled(probes([]*Kretprobe{rp}), true)
}
