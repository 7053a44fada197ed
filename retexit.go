package kprobe

import (
	"errors"
	"fmt"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// Engine says how a return probe notices returns.
type Engine uint8

const (
	// EngineAuto takes the swap where it is provably right, else the exits.
	EngineAuto = Engine(returns.None)
	// EngineSwap exchanges the return address on the stack, as the kernel does:
	// one trap at the entry and one at the return.
	EngineSwap = Engine(returns.Swap)
	// EngineExits probes each instruction that leaves the function, and leaves
	// the stack alone.
	EngineExits = Engine(returns.Exits)
)

// exit is one probed exit of a function with a return probe: the owner of an
// internal probe, which no list shows and no count counts.
type exit struct {
	rp   *Kretprobe
	kind patch.ExitKind
	pt   *point
}

// asExit is the role of a probe on an exit.
type asExit struct {
	plain
	*exit
}

func (asExit) internal() bool { return true }

// trails: the entry may be the exit, too.
func (asExit) trails() bool { return true }

func (r asExit) work(*Kprobe) (program, entry *Program) { return r.rp.Program, nil }

func (r asExit) want(w *inside.Want, _ *Kprobe, _ arch.Addr) error {
	w.Exits = append(w.Exits, inside.Exit{Owner: r.rp, Again: r.kind == patch.Restart, Programs: use(r.rp.Program, r.rp.Kp.Addr, r.rp.Kp.Cookie)})
	w.Cond, _ = inject.Leaves(w.Code)
	return nil
}

func (asExit) tally(d *inside.Detour) inside.Tally { return d.Tally() }
func (asExit) fold(*Kprobe, *inside.Detour)        {}

// chooseEngine decides how the returns of a function are noticed, and finds its
// exits where that is how. beside tells that its return address is swapped already, for a program of
// another probe. Errors: ENOTSUP.
func (s *Session) chooseEngine(rp *Kretprobe, loc symbol.Loc, beside bool) error {
	var err error
	engine := returns.Engine(rp.Engine)
	if beside && engine == returns.None {
		engine = returns.Exits
	}
	rp.plan, err = s.image.Returns(rp.Program != nil).Plan(loc, engine)
	if err == nil && beside && rp.plan.Swaps() {
		err = errors.New("another probe's program swaps the return address, with another MaxActive")
	}
	if err != nil {
		return &Error{Errno: syscall.ENOTSUP, Reason: "no return probe on " + loc.String(), Err: err}
	}
	if rp.Program == nil || rp.plan.Swaps() {
		return nil
	}
	if err = s.exitsInside(rp, loc); err != nil {
		return &Error{Errno: syscall.ENOTSUP, Reason: "no program for the return of " + loc.String(), Err: err}
	}
	return nil
}

// exitsInside tells why programs cannot run at a function's exits, nil where they can.
func (s *Session) exitsInside(rp *Kretprobe, loc symbol.Loc) error {
	m := loc.Module
	switch {
	case rp.EntryProgram.overrides():
		return errors.New("one that overrides the function is for a kprobe, where exits are probed")
	case m != nil && m.File != nil && m.File.IsGo() && s.inside != nil && !s.inside.Goroutines():
		return errors.New("the program has become one with Go code only lately")
	}
	if s.machine != nil {
		site, err := s.image.Analyse(loc)
		if err != nil {
			return err
		}
		if why := s.machine.Owned(site.Addr, site.Addr+arch.Addr(len(site.Original))); why != "" {
			return errors.New(why)
		}
	}
	return rp.plan.Exits.Check(func(code []byte) bool { _, ok := inject.Leaves(code); return ok })
}

// engine tells how returns are noticed, and why so.
func (rp *Kretprobe) engine() string {
	if rp.plan == nil {
		return "" // refused
	}
	if rp.plan.Swaps() {
		return "trap, return address swapped (" + rp.plan.Why + ")"
	}
	return fmt.Sprintf("trap, %d exits probed (%s)", len(rp.exits), rp.plan.Why)
}

// Exits tells how many instructions are probed at which the function may be left, where that is
// how its returns are noticed, and at how many of them a jump leads to the probe's program.
func (rp *Kretprobe) Exits() (probed, jumps int) {
	s := rp.Kp.in.Load()
	if s == nil {
		return 0, 0
	}
	return s.shown.Load().exitsOf(s, rp)
}

// prepareExits adds the probes on a function's exits to the batch that its
// entry is in.
func (s *Session) prepareExits(b *batch, rp *Kretprobe) error {
	rp.exits = nil
	if rp.plan.Swaps() {
		return nil
	}
	for _, x := range rp.plan.Exits.Sites {
		loc, ok := s.image.Space.At(uint64(x.Addr))
		if !ok {
			return fail(syscall.EINVAL, "the exit at %v is in no code", x.Addr)
		}
		pt, err := s.pointFor(b, loc)
		if err == nil && pt.Site.Emulate == nil {
			err = fail(syscall.ENOTSUP, "where the exit at %v leads cannot be told", x.Addr)
		}
		if err != nil {
			return err
		}
		e := &exit{rp, x.Kind, pt}
		p := &Kprobe{Addr: x.Addr, Flags: rp.Kp.Flags, role: asExit{exit: e}}
		if rp.Program == nil {
			p.PreHandler = e.hit
		}
		rp.exits = append(rp.exits, p)
		b.probes = append(b.probes, p)
		b.at[p] = pt
	}
	return nil
}

// withExits adds to some probes those on the exits of the return probes among them.
func withExits(ps []*Kprobe) []*Kprobe {
	all := ps
	for _, p := range ps {
		if rp := p.as().returns(); rp != nil {
			all = append(all[:len(all):len(all)], rp.exits...)
		}
	}
	return all
}

// idleExits are the exits of the return probes among some that have no calls under way.
func (s *Session) idleExits(ps []*Kprobe) (exits []*Kprobe) {
	s.frames.mu.Lock()
	defer s.frames.mu.Unlock()
	for _, p := range ps {
		rp := p.as().returns()
		if rp != nil && rp.active == 0 && (s.inside == nil || s.inside.Active(rp) == 0) {
			exits = append(exits, rp.exits...)
		}
	}
	return exits
}

// enteredForExits is the pre-handler at the entry, where exits are probed.
func (rp *Kretprobe) enteredForExits(p *Kprobe, regs *Regs) int {
	s, f := regs.s, &regs.s.frames
	ret, err := regs.returnAddress()
	if err != nil {
		rp.miss()
		return 0
	}
	task := regs.Task()
	f.mu.Lock()
	at := s.place(regs)
	s.settle(at, task)
	if rp.again[at] {
		delete(rp.again, at) // the stack has grown, or a loop begins anew: no new call
		f.mu.Unlock()
		return 0
	}
	if ri, ok := f.calls.Take(at, rp); ok {
		ri.over() // another call has its place
	}
	if rp.active >= rp.MaxActive {
		s.sweep(rp)
	}
	if rp.active >= rp.MaxActive {
		f.mu.Unlock()
		rp.miss()
		return 0
	}
	ri := rp.take()
	ri.RetAddr = s.slotLeadsTo(regs.SP(), arch.Addr(ret))
	f.mu.Unlock()
	ri.Entry, ri.Task, ri.Tail = p.Addr, task, false
	wanted := s.wanted(rp, ri, regs)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !wanted {
		rp.give(ri)
		return 0
	}
	f.calls.Put(at, rp, ri)
	return 0
}

// hit is the pre-handler at an exit.
func (e *exit) hit(p *Kprobe, regs *Regs) int {
	rp, s := e.rp, regs.s
	f := &s.frames
	f.mu.Lock()
	at := s.place(regs)
	s.settle(at, regs.Task())
	after := regs.r
	if e.pt.Site.Emulate(&after, s.t) != nil {
		f.mu.Unlock()
		return 0 // it will fault
	}
	next := arch.Addr(after[s.arch.PC])
	inside := next == p.Addr+arch.Addr(e.pt.Site.Insn.Len) || rp.plan.Exits.Contains(next)
	if e.kind == patch.Ret {
		next = s.slotLeadsTo(regs.SP(), next)
	}
	if e.kind == patch.Restart && rp.plan.Exits.Restarts(next) {
		rp.again[at] = true
	}
	if e.kind != patch.Ret && inside {
		f.mu.Unlock()
		return 0
	}
	ri, ok := f.calls.Take(at, rp)
	if ok && rp.Kp.leaving.Load() {
		ri.lose(unregistered)
		ok = false
	}
	if ok && e.kind == patch.Ret && next != ri.RetAddr {
		ri.over() // another call, which was not seen to begin, has its place
		ok = false
	}
	f.mu.Unlock()
	if !ok {
		return 0 // it began before the probe, was missed or not wanted, or this is no exit at this height
	}

	// The handler sees what it would see at the caller's: registers after the
	// return. At a tail jump that is still to come.
	pc, sp := regs.r[s.arch.PC], regs.r[s.arch.SP]
	ri.Tail = next != ri.RetAddr
	if ri.Tail {
		if s.arch.RetAddrOnStack {
			after[s.arch.SP] = sp + uint64(s.arch.PtrSize)
		}
		next = ri.RetAddr
	}
	regs.SetPC(next)
	regs.r[s.arch.SP] = after[s.arch.SP]
	rp.returned.Add(1)
	if rp.Handler != nil {
		s.callReturn(rp, ri, regs)
	}
	regs.r[s.arch.PC], regs.r[s.arch.SP] = pc, sp
	f.mu.Lock()
	rp.give(ri)
	f.mu.Unlock()
	return 0
}

// slotLeadsTo is where a call comes back to whose return address has been read as ret, on the
// stack in a slot: this or another function with that slot may have return probes that swap it.
func (s *Session) slotLeadsTo(slot, ret arch.Addr) arch.Addr {
	if !s.arch.RetAddrOnStack {
		return ret
	}
	return s.frames.comesBackTo(s, slot, ret)
}

// loseUnseen gives up the calls whose exits nothing will stand at. The target is frozen.
func (s *Session) loseUnseen() {
	f := &s.frames
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ri := range f.calls.Drop(func(returns.Place, *Kretprobe, *KretprobeInstance) bool { return true }) {
		ri.lose(unregistered)
	}
}

// settle gives up the calls that are over when a thread is at a place: those
// deeper on its stack, and in Go those of an earlier goroutine with the same
// descriptor. The lock of the frames is held, here and below.
func (s *Session) settle(at returns.Place, task Task) {
	c := &s.frames.calls
	if ri, ok := c.Outermost(at.Stack); ok && at.Stack != 0 && ri.Task.Goroutine != task.Goroutine {
		for _, ri := range c.DropStack(at.Stack) {
			ri.lose(goexit)
		}
	}
	for _, ri := range c.Below(at) {
		ri.over()
	}
}

// over gives up a call that has not returned, and on whose place the stack shows
// that it will not.
func (ri *KretprobeInstance) over() {
	if ri.Rp.plan.Unwinds {
		ri.lose(unwound)
	} else {
		ri.lose(longjmp)
	}
}

// sweep gives up those calls of a probe whose goroutine has ended, or whose
// return address is not there any more.
func (s *Session) sweep(rp *Kretprobe) {
	rt := s.image.Goroutines()
	s.frames.calls.Drop(func(at returns.Place, p *Kretprobe, ri *KretprobeInstance) bool {
		if p != rp {
			return false
		}
		if at.At >= 0 {
			if !s.arch.RetAddrOnStack {
				return false // nothing tells
			}
			slot := arch.Addr(at.At)
			word, err := s.word(slot)
			ret := s.slotLeadsTo(slot, arch.Addr(word))
			gone := err != nil || ret != ri.RetAddr && !s.returnsInside(ret)
			if gone {
				ri.over()
			}
			return gone
		}
		gone := rt.Ended(arch.Addr(at.Stack), ri.Task.Goroutine, s.t)
		if gone {
			ri.lose(goexit)
		}
		return gone
	})
}

// threadGone gives up the calls on the stack of a thread that has ended. Those on
// other stacks, coroutines' and goroutines', may go on on other threads.
func (s *Session) threadGone(th target.Thread) {
	f := &s.frames
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ri := range f.calls.DropStack(f.native.Forget(int(th))) {
		ri.lose(exited)
	}
}

// place tells where a thread stands: on its goroutine's stack, which may move,
// on the stack that it was given as a thread, or somewhere else.
func (s *Session) place(regs *Regs) returns.Place {
	sp := regs.SP()
	if g, ok := regs.goroutine(); ok {
		return returns.Place{Stack: uint64(g.G), At: int64(sp - g.Hi)}
	}
	return returns.Place{Stack: s.frames.native.Of(int(regs.th), s.t.PID(), sp, s.arch.ThreadPointer(&regs.r), s.t.Maps), At: int64(sp)}
}
