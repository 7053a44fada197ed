package kprobe

import (
	"errors"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// Access is what a program does to data.
type Access uint8

const (
	ReadWrite Access = iota // reads and writes
	Write                   // writes only
	Read                    // reads only: no processor served so far can tell, but an emulator can
)

// String gives the access as definitions have it.
func (a Access) String() string { return [...]string{"rw", "w", "r"}[a] }

// Watchpoint is a probe on data (kprobes.txt's TODO: "watchpoint probes, which
// fire on data references"; the kernel's wprobe events): it fires when a thread
// has read or written it. The caller fills in the exported fields and leaves them
// alone while it is registered.
//
// The processor watches, by debug registers, of which there are few, and tells
// the thread, not the instruction: when it stops, that has been executed. What
// was there before is not known.
//
// Not seen are accesses that the program's own instructions do not make: by the
// kernel (read(2) into the variable), by handlers, by other processes, by the
// target's children. A repeated string instruction fires for each element, or
// for a few together.
type Watchpoint struct {
	// Kp says where: SymbolName is that of a variable, with Offset added, or Addr
	// the address. Its handlers are not used.
	Kp Kprobe

	Len    int // bytes that are watched: 1, 2, 4 or 8; the address is a multiple
	Access Access

	// Handler runs after the access. The PC of regs is that of the instruction
	// behind the one that made it, or where that jumped to; what the handler
	// changes in regs is what the thread goes on with.
	Handler func(w *Watchpoint, regs *Regs)

	loc   symbol.Loc // since it has been found; in no file, perhaps
	index int        // in Session.watches, while it is there
}

// Hits counts the accesses that the handler was called for.
func (w *Watchpoint) Hits() uint64 { return w.Kp.Hits() }

// NMissed counts the accesses that the handler panicked at.
func (w *Watchpoint) NMissed() uint64 { return w.Kp.NMissed() }

// RegisterWatchpoint places one watchpoint; see Register. Errors: EINVAL for a
// length or an address that the processor cannot watch, or where nothing is mapped;
// ENOENT, EADDRNOTAVAIL for its symbol; ENOSPC where all of the processor's are in
// use; ENOTSUP where there are none, or none for reads only.
func (s *Session) RegisterWatchpoint(w *Watchpoint) error { return unbatch(s.Register(w)) }

// UnregisterWatchpoint removes a watchpoint; see Unregister.
func (s *Session) UnregisterWatchpoint(w *Watchpoint) error { return s.Unregister(w) }

// EnableWatchpoint lets a disabled watchpoint fire again.
func (s *Session) EnableWatchpoint(w *Watchpoint) error {
	return s.setDisabled([]*Kprobe{w.kprobe()}, false)
}

// DisableWatchpoint silences a watchpoint. Its debug register stays taken.
func (s *Session) DisableWatchpoint(w *Watchpoint) error {
	return s.setDisabled([]*Kprobe{w.kprobe()}, true)
}

func (w *Watchpoint) kprobe() *Kprobe {
	if w == nil {
		return nil
	}
	return &w.Kp
}

func (w *Watchpoint) prepare(s *Session) error {
	switch {
	case w.Len != 1 && w.Len != 2 && w.Len != 4 && w.Len != 8:
		return fail(syscall.EINVAL, "%d bytes cannot be watched, only 1, 2, 4 or 8", w.Len)
	case s.watcher == nil:
		return fail(syscall.ENOTSUP, "the target cannot watch data")
	case w.Kp.Program != nil:
		return fail(syscall.EINVAL, "an access stops its thread, so no program can serve it")
	case w.Access == Read && !s.watcher.WatchesReads():
		return fail(syscall.ENOTSUP, "%s cannot watch for reads only; watch for both", s.arch.Name)
	case w.Access > Read:
		return fail(syscall.EINVAL, "no such access")
	}
	w.Kp.role = asWatch{w: w}
	w.Kp.PreHandler, w.Kp.PostHandler, w.Kp.FaultHandler = nil, nil, nil
	return nil
}

func (w *Watchpoint) release(*Session) { w.Kp.role = nil }

// asWatch is the role of a Kprobe that a watchpoint is made of.
type asWatch struct {
	plain
	w *Watchpoint
}

func (asWatch) letter() byte           { return 'w' }
func (r asWatch) watches() *Watchpoint { return r.w }
func (r asWatch) release(s *Session)   { r.w.release(s) }

func (r asWatch) find(s *Session, p *Kprobe) (symbol.Loc, error) {
	return s.image.Data(p.SymbolName, p.Addr, p.Offset, r.w.Len)
}

func (r asWatch) place(p *Kprobe) (symbol.Loc, bool) { return r.w.loc, p.placed }

func (r asWatch) join(s *Session, b *batch, _ *Kprobe, loc symbol.Loc) error {
	return s.prepareWatch(b, r.w, loc)
}

// prepareWatch plans which of the processor's a watchpoint is going to be.
func (s *Session) prepareWatch(b *batch, w *Watchpoint, loc symbol.Loc) error {
	w.loc = loc
	s.view.RLock()
	defer s.view.RUnlock()
	for w.index = range s.watches {
		taken := func(o *Watchpoint) bool { return o.index == w.index }
		if s.watches[w.index] == nil && !slices.ContainsFunc(b.watches, taken) {
			b.watches = append(b.watches, w)
			return nil
		}
	}
	return fail(syscall.ENOSPC, "all %d debug registers are in use", len(s.watches))
}

// watch puts watchpoints to work in the frozen target, all or none.
func (s *Session) watch(ws []*Watchpoint) error {
	if len(ws) == 0 {
		return nil
	}
	s.view.Lock()
	for _, w := range ws {
		p := &w.Kp
		p.given, p.placed, p.Addr = p.Addr, true, arch.Addr(w.loc.Addr)
		s.watches[w.index] = w
	}
	s.view.Unlock()
	err := s.rewatch()
	if err != nil {
		s.takeBack(ws)
	}
	return err
}

// takeBack undoes watch.
func (s *Session) takeBack(ws []*Watchpoint) {
	s.report(s.unwatch(ws))
	for _, w := range ws {
		w.Kp.unplace()
	}
}

// unwatch takes watchpoints out of work in the frozen target. Accesses that were
// reported and not served yet are nobody's now.
func (s *Session) unwatch(ws []*Watchpoint) error {
	s.view.Lock()
	for _, w := range ws {
		if s.watches[w.index] != w {
			continue
		}
		s.watches[w.index] = nil
		for i := range s.stops {
			s.stops[i].Accessed &^= 1 << w.index
		}
	}
	s.view.Unlock()
	return s.rewatch()
}

// rewatch has the frozen target watch what it should.
func (s *Session) rewatch() error {
	set := make([]target.Watch, len(s.watches))
	for i, w := range s.watches {
		if w != nil && !s.disarmed && w.Kp.active() {
			set[i] = target.Watch{Addr: arch.Addr(w.loc.Addr), Len: w.Len, Write: w.Access == Write, Read: w.Access == Read}
		}
	}
	if slices.Equal(set, s.watching) {
		return nil
	}
	if err := s.watcher.Watch(set); err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = &Error{Errno: errno, Err: err}
		}
		return err
	}
	s.watching = set
	return nil
}

// watchpointsOf are those among probes that are a watchpoint's.
func watchpointsOf(ps []*Kprobe) []*Watchpoint {
	var ws []*Watchpoint
	for _, p := range ps {
		if w := p.as().watches(); w != nil {
			ws = append(ws, w)
		}
	}
	return ws
}

// accessed deals with a thread that has accessed watched data. If it stands in
// memory of ours, the handlers see it where the program thinks it is; but it goes
// on there: it need not be at the end of its slot (repeated string instructions).
func (s *Session) accessed(st target.Stop) {
	h := s.newHit(st.Thread)
	if s.t.Regs(st.Thread, &h.regs.r) != nil {
		return // killed meanwhile; its end will be reported
	}
	s.text.Lifeline.Keep(st.Thread)
	real := h.regs.r
	ours, theirs := s.leaveOurs(&h.regs)
	if !theirs {
		s.t.Resume(st.Thread, 0)
		return
	}
	shown := h.regs.r
	s.fire(h, st.Accessed, func() {
		if h.regs.PC() == arch.Addr(shown[s.arch.PC]) && ours() {
			for i, v := range h.regs.r {
				if v == shown[i] {
					h.regs.r[i] = real[i]
				}
			}
		}
		s.resume(h, 0)
	})
}

// leaveOurs changes registers from a place in memory of ours to the same state in
// the program. ours tells whether a thread can still go on from there, theirs
// whether the instruction before it is one of the program's.
func (s *Session) leaveOurs(r *Regs) (ours func() bool, theirs bool) {
	pc, sp := r.PC(), r.SP()
	if ref, ok := s.room.At(pc); ok {
		ref.Leave(s.arch, &r.r)
		return func() bool { return ref.Of.live }, !ref.Again(pc)
	}
	if in := s.inside; in != nil {
		d, displaced := in.Displaced(&r.r, s.t)
		if displaced || d != nil || in.Busy(pc) {
			return func() bool { return in.Find(pc) == d && !slices.Contains(in.Retired(), d) }, displaced
		}
	}
	call := func() *frame {
		s.frames.mu.Lock()
		defer s.frames.mu.Unlock()
		if !s.frames.isTrampoline(pc) {
			return nil
		}
		_, fr := returns.Popped(s.frames.at, sp, s.arch)
		return fr
	}
	if fr := call(); fr != nil {
		r.SetPC(fr.real)
	}
	return func() bool { return call() != nil }, true
}

// fire runs the handlers of the watchpoints in a set, and then what comes then on
// the owner thread.
func (s *Session) fire(h *hit, set uint, then func()) {
	var ws []*Watchpoint
	for i, w := range s.watches {
		if set>>i&1 != 0 && w != nil && w.Kp.active() {
			ws = append(ws, w)
		}
	}
	handlers := func() func() {
		for _, w := range ws {
			w.fired(&h.regs)
		}
		return then
	}
	if len(ws) == 0 || !s.opts.Concurrent {
		handlers()()
		return
	}
	// Should we die meanwhile, nothing is left to do for this trap: the thread's
	// registers are as the instruction left them.
	s.aside(handlers)
}

func (w *Watchpoint) fired(r *Regs) {
	defer func() {
		if e := recover(); e != nil {
			w.Kp.missed.Add(1)
			r.s.panicked(&w.Kp, "handler", e)
		}
	}()
	w.Kp.hits.Add(1)
	if w.Handler != nil {
		w.Handler(w, r)
	}
}

// touched are the watchpoints that an access concerns.
func (s *Session) touched(a arch.Addr, n int, write bool) (set uint) {
	for i, w := range s.watching {
		if w.Len > 0 && a < w.Addr+arch.Addr(w.Len) && w.Addr < a+arch.Addr(n) && (write || !w.Write) && !(write && w.Read) {
			set |= 1 << i
		}
	}
	return set
}
