// Package stops serves the stops of a target's threads at what is ours: it finds out whose a stop is, has the handlers
// run, lets the probed instruction have its effect, and lets the thread go on.
//
//	stops.go    whose trap it is
//	serve.go    a hit: handlers, the instruction, and on
//	inplace.go  an instruction that runs where it stands
//	passage.go  one that is another than the detour knows
//	signal.go   signals that reach threads in code of ours
//	inside.go   threads in what runs inside the target
//	access.go   accesses of data that is watched
//
// All of it belongs to the owner thread, but for handlers that run aside. It is the hot path of a stop: it allocates
// nothing unless handlers run aside.
package stops

import (
	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/ground"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/internal/room"
	"kprobe/internal/standing"
	"kprobe/internal/text"
	"kprobe/internal/within"
	"kprobe/target"
)

// Handlers are the session's: V is what they see of a thread, and I are its calls' own.
type Handlers[V, I any] interface {
	// View is what the handlers see of a stopped thread. It is used until the next one is asked for; where
	// handlers run aside, each is its own.
	View(target.Thread) V
	// Before runs the handlers of probes before the instruction: it answers false if one has moved the PC. After
	// runs those after it.
	Before([]*probed.Probe, V) bool
	After([]*probed.Probe, V)
	// Faulted runs the fault-handlers for a fault of the instruction. It answers whether one has dealt with it.
	Faulted(ps []*probed.Probe, v V, trap int) bool
	// Passed is told of probes whose detour was passed over.
	Passed([]*probed.Probe)
	// Returned runs the handlers of calls that are over, the last one's first.
	Returned([]*calls.Call[I], V)
	// Accessed is what is to run for data that was accessed, by register; nil where that is nothing.
	Accessed(set uint) func(V)
	// Among is told of registers of which one has data that was accessed, and nobody knows which.
	Among(set uint)
	// Notified is told of a thread that has come to a point of the session's own: from now on it is the
	// session's to let go on. It answers false where that is not so.
	Notified(*probed.Point, V) bool
	// Cramped has the places of detours be left alone. It is called where planning may be.
	Cramped([]*inside.Detour)
	// Outlived is told of a fault that would end the program if nobody traced it, and comes again for ever.
	Outlived(signal int)
}

// Registers is what handlers see.
type Registers interface{ Raw() *arch.Regs }

// Calls are the calls under way.
type Calls[I any] interface {
	IsTrampoline(pc arch.Addr) bool
	Returned(sp arch.Addr) (calls.Return[I], bool)
	// Stray is what is to be told of a thread that has come to the trampoline by no call that is known.
	Stray(th target.Thread, sp arch.Addr) error
}

// Watched is the data that the target watches.
type Watched interface {
	// Touched are the watchpoints that an access concerns which the processor does not see.
	Touched(a arch.Addr, n int, write bool) (set uint)
}

// Server serves the stops of one session's target.
type Server[V Registers, I any] struct {
	Parts[V, I]
	faulter target.Faulter // nil: what a signal comes from cannot be told
	scratch hit[V, I]      // of the hit that is being served, unless handlers run aside

	passages map[arch.Addr]*passage // by the end of the detour
}

// Parts are what a Server works on. Concurrent has handlers run aside.
type Parts[V Registers, I any] struct {
	On         *ground.Ground
	Within     *within.Within
	Threads    *standing.Threads
	Calls      Calls[I]
	Watched    Watched
	Handlers   Handlers[V, I]
	Concurrent bool
}

// New has served nothing yet.
func New[V Registers, I any](parts Parts[V, I]) *Server[V, I] {
	s := &Server[V, I]{Parts: parts}
	s.faulter, _ = parts.On.T.(target.Faulter)
	return s
}

// hit is one thread's way through a probe point: trap, handlers, instruction.
type hit[V Registers, I any] struct {
	by    *Server[V, I]
	th    target.Thread
	view  V
	regs  *arch.Regs // the view's
	point *probed.Point
	// probes are those of the point at the moment of the trap.
	probes []*probed.Probe
	// after tells that the instruction has run and post-handlers are due.
	after bool
	// again tells that this execution has been served before.
	again bool
	// signal is what the thread was about to get when it came here.
	signal int
	// accessed are the watchpoints that an emulated instruction concerns.
	accessed uint
}

func (h *hit[V, I]) pc() arch.Addr     { return h.regs.Addr(h.by.On.Arch.PC) }
func (h *hit[V, I]) setPC(a arch.Addr) { h.regs[h.by.On.Arch.PC] = uint64(a) }
func (h *hit[V, I]) sp() arch.Addr     { return h.regs.Addr(h.by.On.Arch.SP) }

// hit is where the hit path would allocate: it reuses one hit, unless hits overlap. ok is false for a
// thread that was killed meanwhile: its end will be reported.
func (s *Server[V, I]) hit(th target.Thread) (h *hit[V, I], ok bool) {
	h = &s.scratch
	if s.Concurrent {
		h = new(hit[V, I])
	}
	*h = hit[V, I]{by: s, th: th, view: s.Handlers.View(th)}
	h.regs = h.view.Raw()
	return h, s.On.T.Regs(th, h.regs) == nil
}

// Trapped finds out whose trap it is. Every exit is named.
func (s *Server[V, I]) Trapped(st target.Stop) {
	h, ok := s.hit(st.Thread)
	if !ok {
		return
	}
	pc := h.pc()
	switch {
	case st.Back && s.On.Text.Lifeline.Catches():
		h.regs[s.On.Arch.Flags] &^= s.On.Machine.Lifeline.Mark()
	case !st.Back:
		pc -= arch.Addr(s.On.Arch.BreakPC)
	}
	pt := s.On.Points.At(pc)
	to, strayed := s.On.Strayed(pc)
	ref, slot := s.On.Room.At(pc)
	slot = slot && ref.AtBreak(pc)
	way := s.passages[pc]
	ours := pt != nil || strayed || slot || way != nil || s.Calls.IsTrampoline(pc)
	cause, breaks := s.cause(st)
	if cause == somebody {
		run, known := false, ours
		if pt != nil {
			run, known = pt.Site.HasRun(s.On.Arch, h.regs, s.On.T)
		}
		if !ours || run || !s.On.Text.Lifeline.Forced(st.Thread) {
			s.sent(h, st, pc, known && !run)
			return
		}
	}
	// Another trap of the thread's own can be taken for a breakpoint's only where an instruction starts just where the PC stands
	// after that: at the trap itself, or after one as short as it.
	genuine := cause != itself || breaks || pt == nil || s.On.Arch.BreakPC > 0 && pt.Site.Insn.Len > len(pt.Site.Break)
	if genuine && ours {
		s.On.Text.Lifeline.Keep(st.Thread) // what the trap's report says is gone then
	}
	switch {
	case !genuine:
		s.resume(h, st.Signal) // another trap than a breakpoint's
	case pt != nil && pt.Text != text.Own:
		h.point, h.probes = pt, pt.Probes
		h.setPC(pc)
		s.dispatch(h)
	case pt != nil:
		h.setPC(pc) // disarmed after the trap: the instruction is back
		s.resume(h, 0)
	case way != nil:
		s.passed(h, way)
	case s.Calls.IsTrampoline(pc):
		s.returned(h)
	case strayed:
		h.setPC(to)
		s.resume(h, 0)
	case slot:
		s.stepped(h, ref)
	default:
		s.stray(h, pc, st)
	}
}

// stepped is the other half of a hit: the instruction has run in its slot.
func (s *Server[V, I]) stepped(h *hit[V, I], ref room.Ref[*probed.Point]) {
	h.point, h.probes, h.after = ref.Of, ref.Of.Probes, true
	h.setPC(ref.Slot.Next)
	s.dispatch(h)
}

// sent deals with a trap signal that somebody has sent. It came to the thread wherever that was, like any other signal; or the thread
// ran into a trap of ours while the signal waited for it, and the kernel has made one signal of both: then the
// thread is set back, and meets the trap when the signal's handler has run.
//
// Where that is not known, it is taken for the first.
func (s *Server[V, I]) sent(h *hit[V, I], st target.Stop, pc arch.Addr, met bool) {
	if met {
		h.setPC(pc)
		if s.On.T.SetRegs(st.Thread, h.regs) != nil {
			return // killed meanwhile
		}
	}
	s.Signalled(st)
}

// cause is whose doing a trap signal is.
type cause uint8

const (
	unknown  cause = iota
	itself         // the thread's own, by an instruction
	somebody       // it was sent
)

// cause answers also whether it was a breakpoint.
func (s *Server[V, I]) cause(st target.Stop) (c cause, breaks bool) {
	if s.faulter == nil || st.Back {
		return unknown, false
	}
	f, err := s.faulter.Fault(st.Thread)
	switch {
	case err != nil:
		return unknown, false
	case f.Sync:
		return itself, f.Trap == s.On.Arch.BreakTrap
	}
	return somebody, false
}

// stray deals with a trap at no point of ours.
func (s *Server[V, I]) stray(h *hit[V, I], pc arch.Addr, st target.Stop) {
	if s.faulter != nil {
		f, err := s.faulter.Fault(st.Thread)
		b := make([]byte, len(s.On.Arch.Break))
		if err == nil && f.Sync && f.Trap == s.On.Arch.BreakTrap && s.On.T.ReadAt(pc, b) == nil && string(b) != string(s.On.Arch.Break) {
			// The breakpoint was removed after the thread had executed it: it runs
			// the instruction that is back in its place.
			s.On.Text.Lifeline.Keep(st.Thread)
			h.setPC(pc)
			s.resume(h, 0)
			return
		}
	}
	if st.Back && s.On.Kind.InPlace() {
		s.resume(h, 0) // the breakpoint has been taken out since
		return
	}
	if st.Back { // the program's own: it happens again
		h.setPC(pc)
		s.On.T.SetRegs(h.th, h.regs)
		s.On.T.Resume(h.th, 0)
		return
	}
	s.resume(h, st.Signal) // the program's own, or sent by somebody
}

// returned deals with a thread that has come to the trampoline.
func (s *Server[V, I]) returned(h *hit[V, I]) {
	ret, ok := s.Calls.Returned(h.sp())
	if !ok {
		// Nothing is known of this call. To send the thread anywhere would be a
		// guess; it gets the signal that the trap stands for.
		s.On.Report(s.Calls.Stray(h.th, h.sp()))
		s.On.T.Resume(h.th, trapSignal)
		return
	}
	h.setPC(ret.Back)
	goOn := func() {
		if h.pc() == ret.Back { // else a handler wants it elsewhere
			h.setPC(ret.Next)
		}
		s.resume(h, h.signal)
	}
	if !s.Concurrent {
		s.Handlers.Returned(ret.Calls, h.view)
		goOn()
		return
	}
	s.On.Owner.Aside(func() (then func()) {
		s.Handlers.Returned(ret.Calls, h.view)
		return goOn
	})
}
