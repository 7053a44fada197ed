package kprobe

import (
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/calls"
	"kprobe/internal/inside"
	"kprobe/internal/kind"
	"kprobe/internal/probed"
	"kprobe/internal/returns"
	"kprobe/symbol"
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

	nmissed, returned atomic.Uint64
	watch             calls.Probe[*KretprobeInstance]

	owner *inside.Owner // of the account of its calls, while it is registered
	plan  *returns.Plan // since its function has been found
	exits []*Kprobe     // on them
}

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
	return rp.nmissed.Load() + rp.Kp.counted().Missed
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
	t := rp.Kp.counted()
	var inside [calls.Losses]uint64
	for i, n := range t.Lost {
		inside[rp.insideLoss(i)] += n
	}
	n := func(why calls.Loss) uint64 { return rp.watch.Lost(why) + inside[why] }
	return Lost{rp.nmissed.Load() + t.Missed, n(calls.Unwound), n(calls.Longjmp), n(calls.Goexit), n(calls.Exited), n(calls.Unregistered)}
}

// Hits counts the returns that were reported.
func (rp *Kretprobe) Hits() uint64 {
	return rp.returned.Load() + rp.Kp.counted().Hits
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
	if err := rp.checkPrograms(s); err != nil {
		return err
	}
	most := MaxData
	if rp.Program != nil {
		most = s.on.Kind.CallData()
	}
	if rp.DataSize < 0 || rp.DataSize > most {
		return fail(syscall.E2BIG, "private data of %d bytes, at most %d are possible", rp.DataSize, most)
	}
	if rp.MaxActive <= 0 {
		rp.MaxActive = max(10, 2*s.cpus)
	}
	rp.owner = &inside.Owner{Settled: rp.tally}
	rp.nmissed.Store(0)
	rp.returned.Store(0)
	rp.watch.Reset(rp.MaxActive, rp.Kp.probe.Leaving.Load)
	rp.Kp.probe.Role = asReturn{plain{&rp.Kp}, rp}
	rp.Kp.PostHandler, rp.Kp.FaultHandler = nil, nil
	if rp.Program != nil {
		return nil
	}
	rp.Kp.PreHandler = func(p *Kprobe, regs *Regs) int {
		if rp.plan.Swaps() {
			rp.entered(p, regs)
		} else {
			rp.enteredForExits(p, regs)
		}
		return 0
	}
	return nil
}

// checkPrograms holds a return probe with programs to what there can be.
func (rp *Kretprobe) checkPrograms(s *Session) error {
	switch {
	case rp.Program == nil && rp.EntryProgram == nil && rp.Kp.Program == nil:
		return nil
	case rp.Kp.Program != nil:
		return fail(syscall.EINVAL, "a return probe's programs are Program and EntryProgram")
	case rp.Program == nil:
		return fail(syscall.EINVAL, "an entry program goes with a program for the return; CountOnly will do")
	case rp.Handler != nil || rp.EntryHandler != nil:
		return fail(syscall.EINVAL, "a probe has programs or handlers, not both")
	case s.on.Machine.WatchesCalls() != nil:
		return &Error{Errno: syscall.ENOTSUP, Err: s.on.Machine.WatchesCalls()}
	}
	if err := rp.Program.fits(s, bpf.Kretprobe, rp.DataSize); err != nil || rp.EntryProgram == nil {
		return err
	}
	return rp.EntryProgram.fits(s, bpf.Kprobe, rp.DataSize)
}

func (rp *Kretprobe) release(s *Session) {
	rp.Kp.probe.Role, rp.Kp.PreHandler = plain{&rp.Kp}, nil
	s.within.Settle(rp.owner)
	s.calls.Orphan(&rp.watch)
}

// asReturn is the role of a Kprobe at the entry of a function with a return probe.
type asReturn struct {
	plain
	rp *Kretprobe
}

func (asReturn) letter() byte          { return 'r' }
func (r asReturn) returns() *Kretprobe { return r.rp }
func (r asReturn) release(s *Session)  { r.rp.release(s) }

func (r asReturn) Swaps() bool            { return r.rp.plan.Swaps() }
func (asReturn) Misses() bool             { return true }
func (r asReturn) Account() *inside.Owner { return r.rp.owner }

func (r asReturn) Unwound() {
	if r.Swaps() {
		r.rp.watch.Lose(calls.Unwound, 1)
	}
}

func (r asReturn) anew(s *Session) error { return r.rp.prepare(s) }

func (r asReturn) work() (program, entry *Program) { return r.rp.Program, r.rp.EntryProgram }

func (r asReturn) fits(s *Session, b *batch, loc symbol.Loc) error {
	if !s.on.Image.IsEntry(loc) {
		return fail(syscall.EINVAL, "a return probe must be at a function's entry, and %s is not", loc)
	}
	return s.chooseEngine(b, r.rp, loc, r.rp.besideAnother(s, b, loc))
}

// besideAnother tells whether a return probe with a program is to be on a function where another one has its
// program at swapped return addresses, and they cannot share the calls: each has as many at a time as
// it asks for, and its entry program has a say in its own only, unless the swap is asked for. Exits serve any
// number of probes.
func (rp *Kretprobe) besideAnother(s *Session, b *batch, loc symbol.Loc) bool {
	if rp.Program == nil {
		return false
	}
	return slices.ContainsFunc(b.Others(arch.Addr(loc.Addr)), func(p *probed.Probe) bool {
		o := containerOf(p).as().returns()
		return p.Swaps() && o.Program != nil && (o.MaxActive != rp.MaxActive ||
			rp.Engine == EngineAuto && (o.EntryProgram != nil || rp.EntryProgram != nil))
	})
}

func (r asReturn) join(s *Session, b *batch, loc symbol.Loc) error {
	if err := r.plain.join(s, b, loc); err != nil {
		return err
	}
	return s.prepareExits(b, r.rp)
}

func (r asReturn) Want(w *inside.Want, entry arch.Addr) error {
	rp, cookie := r.rp, r.p.Cookie
	ret := inside.Return{Owner: rp.owner, MaxActive: rp.MaxActive, Data: rp.insideData(), Entry: use(rp.EntryProgram, entry, cookie)}
	ret.Veto = len(ret.Entry) > 0
	if !rp.plan.Swaps() {
		w.Enters = append(w.Enters, ret)
		return nil
	}
	ret.Programs = use(rp.Program, entry, cookie)
	if o := w.Return; o != nil { // one call for all, and each probe has its part of the data; see besideAnother
		for _, us := range [][]inside.Use{ret.Entry, ret.Programs} {
			for i := range us {
				us[i].Data = o.Data
			}
		}
		ret.Entry, ret.Programs = slices.Concat(o.Entry, ret.Entry), slices.Concat(o.Programs, ret.Programs)
		ret.Veto, ret.Data = ret.Veto || o.Veto, ret.Data+o.Data
		if ret.Data > MaxData {
			return fmt.Errorf("the return probes there have %d bytes of private data together, at most %d are possible", ret.Data, MaxData)
		}
	}
	w.Return = &ret
	return nil
}

func (asReturn) Tally(d *inside.Detour) inside.Tally { return d.Tally() }

// Fold: the account of calls whose exits are probed outlives detours.
func (r asReturn) Fold(d *inside.Detour) {
	if r.rp.plan.Swaps() {
		r.rp.tally(d.Tally())
	}
}

// UnregisterKretprobe removes a return probe. Calls that are under way return correctly, unreported.
func (s *Session) UnregisterKretprobe(rp *Kretprobe) error {
	return s.UnregisterKretprobes([]*Kretprobe{rp})
}

// UnregisterKretprobes removes several in one stop; see UnregisterKprobes.
func (s *Session) UnregisterKretprobes(rps []*Kretprobe) error { return s.Unregister(probes(rps)...) }

// EnableKretprobe lets a disabled return probe fire again (kprobes.txt 4.8).
func (s *Session) EnableKretprobe(rp *Kretprobe) error {
	return s.setDisabled([]*Kprobe{rp.kprobe()}, false)
}

// DisableKretprobe silences a return probe (kprobes.txt 4.7). Calls that are under way are still reported.
func (s *Session) DisableKretprobe(rp *Kretprobe) error {
	return s.setDisabled([]*Kprobe{rp.kprobe()}, true)
}

// insideData is how much private data a call has for programs; none, where they ask for none.
func (rp *Kretprobe) insideData() int {
	if rp.Program.callData()+rp.EntryProgram.callData() == 0 {
		return 0
	}
	return (rp.DataSize + 7) &^ 7
}
