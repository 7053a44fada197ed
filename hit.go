package kprobe

import (
	"maps"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/lifeline"
	"kprobe/internal/mistakes"
	"kprobe/internal/room"
	"kprobe/internal/text"
	"kprobe/target"
)

// hit is one thread's way through a probe point: trap, handlers, instruction.
type hit struct {
	regs  Regs
	point *point
	// probes are those of the point at the moment of the trap.
	probes []*Kprobe
	// after tells that the instruction has run and post-handlers are due.
	after bool
	// again tells that this execution has been served before.
	again bool
	// signal is what the thread was about to get when it came here.
	signal int
	// accessed are the watchpoints that an emulated instruction concerns.
	accessed uint
}

// trapped finds out whose trap it is. Every exit is named.
func (s *Session) trapped(st target.Stop) {
	h := s.newHit(st.Thread)
	if s.t.Regs(st.Thread, &h.regs.r) != nil {
		return // killed meanwhile; its end will be reported
	}
	pc := h.regs.PC()
	switch {
	case st.Back && s.text.Lifeline.Catches():
		h.regs.r[s.arch.Flags] &^= lifeline.Dealt
	case !st.Back:
		pc -= arch.Addr(s.arch.BreakPC)
	}
	pt := s.points.at(pc)
	genuine := pt == nil || s.genuine(st.Thread, pt)
	to, strayed := s.strayed(pc)
	ref, slot := s.room.At(pc)
	slot = slot && ref.AtBreak(pc)
	if genuine && (pt != nil || strayed || slot || s.frames.isTrampoline(pc)) {
		s.text.Lifeline.Keep(st.Thread) // what the trap's report says is gone then
	}
	switch {
	case !genuine:
		s.resume(h, st.Signal) // a SIGTRAP that somebody sent
	case pt != nil && pt.Text != text.Own:
		h.point, h.probes = pt, pt.probes
		h.regs.SetPC(pc)
		s.dispatch(h)
	case pt != nil:
		h.regs.SetPC(pc) // disarmed after the trap: the instruction is back
		s.resume(h, 0)
	case s.frames.isTrampoline(pc):
		s.returned(h)
	case strayed:
		h.regs.SetPC(to)
		s.resume(h, 0)
	case slot:
		s.stepped(h, ref)
	default:
		s.stray(h, pc, st)
	}
}

// stepped is the other half of a hit: the instruction has run in its slot.
func (s *Session) stepped(h *hit, ref room.Ref[*point]) {
	h.point, h.probes, h.after = ref.Of, ref.Of.probes, true
	h.regs.SetPC(ref.Slot.Next)
	s.dispatch(h)
}

// newHit is where the hit path would allocate: it reuses one hit, unless hits
// overlap.
func (s *Session) newHit(th target.Thread) *hit {
	h := &s.scratch
	if s.opts.Concurrent {
		h = &hit{regs: Regs{task: s.task(th)}} // the target may be asked on its own thread only
	}
	h.regs.s, h.regs.th = s, th
	h.point, h.probes, h.after, h.again, h.signal, h.accessed = nil, nil, false, false, 0, 0
	h.regs.gAsked, h.regs.gFound = false, false
	return h
}

// genuine tells a breakpoint that was executed from a SIGTRAP that was sent.
// They can be taken for each other only where an instruction starts just where
// the PC stands after the trap, that is, after one as short as the trap.
func (s *Session) genuine(th target.Thread, pt *point) bool {
	if pt.Site.Insn.Len > len(pt.Site.Break) || s.faulter == nil {
		return true
	}
	f, err := s.faulter.Fault(th)
	return err != nil || f.Sync && f.Trap == 3
}

// stray deals with a trap at no point of ours.
func (s *Session) stray(h *hit, pc arch.Addr, st target.Stop) {
	if s.faulter != nil {
		f, err := s.faulter.Fault(st.Thread)
		b := make([]byte, len(s.arch.Break))
		if err == nil && f.Sync && f.Trap == 3 && s.t.ReadAt(pc, b) == nil && string(b) != string(s.arch.Break) {
			// The breakpoint was removed after the thread had executed it: it runs
			// the instruction that is back in its place.
			s.text.Lifeline.Keep(st.Thread)
			h.regs.SetPC(pc)
			s.resume(h, 0)
			return
		}
	}
	if st.Back && s.beside != nil {
		s.resume(h, 0) // the breakpoint has been taken out since
		return
	}
	if st.Back { // the program's own: it happens again
		h.regs.SetPC(pc)
		s.t.SetRegs(h.regs.th, &h.regs.r)
		s.t.Resume(h.regs.th, 0)
		return
	}
	s.resume(h, st.Signal) // the program's own, or sent by somebody
}

// dispatch runs the handlers, here or on a goroutine of their own.
func (s *Session) dispatch(h *hit) {
	if s.skipped(h) {
		s.goOn(h)
		return
	}
	if !s.opts.Concurrent || h.point.notify {
		if s.handlers(h) {
			s.goOn(h)
		} else {
			s.resume(h, h.signal)
		}
		return
	}
	// The stop will be read before it is served: the trap must be able to
	// happen once more. Until it is read, its signal is still there.
	r := h.regs.r
	if s.text.Lifeline.Catches() {
		r[s.arch.Flags] |= lifeline.Dealt
		s.t.SetRegs(h.regs.th, &r)
	}
	s.aside(func() (then func()) {
		if s.handlers(h) {
			return func() { s.goOn(h) }
		}
		return func() { s.resume(h, h.signal) }
	})
}

// skipped tells that the handlers of this very execution ran before a signal
// took the thread away; h.again, that what runs inside did too. The signal may have made a scheduler in the program
// (Go's preempts so) go on with the call on another thread.
func (s *Session) skipped(h *hit) bool {
	if len(s.taken) == 0 || h.after {
		return false
	}
	sp := h.regs.SP()
	this := execution{h.point, sp}
	it, same := s.taken[this]
	h.again = same && it.inside
	delete(s.taken, this)
	if !s.image.Schedules() {
		// Whose stack frames are gone were left by longjmp; a signal handler's
		// own stack tells nothing about them.
		maps.DeleteFunc(s.taken, func(e execution, a away) bool { return a.th == h.regs.th && sp > e.sp && s.sameStack(sp, e.sp) })
	}
	return same
}

// handlers runs the pre-handlers, or the post-handlers. It answers false if a
// pre-handler has moved the PC.
func (s *Session) handlers(h *hit) bool {
	for _, p := range h.probes {
		if !p.active() {
			continue
		}
		if h.after {
			if p.PostHandler != nil {
				s.call(p, &h.regs, true)
			}
			continue
		}
		if !p.runsInside() {
			p.hits.Add(1) // the others count where they run
		}
		if p.PreHandler != nil && s.call(p, &h.regs, false) != 0 {
			return false
		}
	}
	return true
}

// call runs one handler. A handler that panics has faulted: the fault-handler
// is told, and the probed program goes on.
func (s *Session) call(p *Kprobe, r *Regs, post bool) (result int) {
	defer func() {
		if e := recover(); e != nil {
			result = 0
			s.handlerFault(p, r, e)
		}
	}()
	if post {
		p.PostHandler(p, r, 0)
		return 0
	}
	return p.PreHandler(p, r)
}

// handlerFault gives a panic the trap number that the same mistake has in a
// kernel's handler.
func (s *Session) handlerFault(p *Kprobe, r *Regs, cause any) {
	p.missed.Add(1) // as the kernel counts it
	trapnr := mistakes.Trap(cause)
	if p.FaultHandler != nil {
		func() {
			defer func() { _ = recover() }()
			if p.FaultHandler(p, r, trapnr) != 0 {
				trapnr = -1
			}
		}()
	}
	if trapnr >= 0 {
		s.panicked(p, "handler", cause)
	}
}

// goOn lets the probed instruction have its effect: emulated, or in a slot.
// With post-handlers the thread comes back, or they run here and now.
func (s *Session) goOn(h *hit) {
	pt := h.point
	site := pt.Site
	switch {
	case h.after || !pt.live: // done, or the instruction is back in its place
	case pt.Detour != nil && pt.post && !h.again && s.machine == nil:
		s.servedInside(h)
		return
	case pt.Detour != nil && pt.pinned != "":
		s.passDetour(h)
		return
	case pt.Detour != nil && pt.Text == text.Beside && !s.unchanged(pt): // else it is ours that is there
		s.passDetour(h)
		return
	case pt.Detour != nil && !h.again:
		h.regs.SetPC(pt.Detour.ServeAt())
	case pt.post && site.Step != nil:
		h.regs.SetPC(site.Step.Addr)
	case s.beside != nil && (site.Kind != isa.Emulate || s.text.Check(&pt.Place) != nil):
		s.stepOver(h)
		return
	case (site.Kind == isa.Emulate || pt.post) && site.Emulate(&h.regs.r, (*performed)(h)) == nil:
		if h.accessed == 0 {
			s.emulated(h)
		} else {
			s.fire(h, h.accessed, func() { s.emulated(h) })
		}
		return
	case s.beside != nil: // emulation has failed, for want of memory that the instruction uses: the CPU shall fault on it
		s.stepOver(h)
		return
	default:
		// Here too if emulation fails.
		if site.Boost == nil {
			s.t.SetRegs(h.regs.th, &h.regs.r)
			s.deliver(h.regs.th, faultSignal)
			return
		}
		h.regs.SetPC(site.Boost.Addr)
	}
	s.resume(h, h.signal)
}

// emulated goes on behind an instruction that was emulated.
func (s *Session) emulated(h *hit) {
	if h.point.post {
		h.probes, h.after = h.point.probes, true // one may have been removed meanwhile
		s.dispatch(h)
		return
	}
	s.resume(h, h.signal)
}

// faultSignal is SIGSEGV: what the few instructions get that no slot can run,
// when the memory that they need is not there.
const faultSignal = 11

// resume writes the registers back and lets the thread go on.
func (s *Session) resume(h *hit, signal int) {
	th := h.regs.th
	if signal == 0 && s.text.Lifeline.Catches() {
		h.regs.r[s.arch.Flags] |= lifeline.Dealt
	}
	if s.t.SetRegs(th, &h.regs.r) != nil {
		return // killed meanwhile
	}
	if h.point != nil && h.point.notify && !h.after {
		s.loaderCalled(th)
		return
	}
	s.deliver(th, signal)
}

// performed is memory for the instruction of a hit. The processor does not see
// accesses that we make, so watchpoints are looked for here.
type performed hit

func (h *performed) ReadAt(a arch.Addr, p []byte) error {
	h.accessed |= h.regs.s.touched(a, len(p), false)
	return h.regs.s.t.ReadAt(a, p)
}

func (h *performed) WriteAt(a arch.Addr, p []byte) error {
	h.accessed |= h.regs.s.touched(a, len(p), true)
	return h.regs.s.t.WriteAt(a, p)
}
