package kprobe

import (
	"kprobe/internal/calls"
	"kprobe/internal/mistakes"
	"kprobe/internal/probed"
	"kprobe/internal/stops"
	"kprobe/target"
)

// handlers are a session's, as the server of stops has them run.
type handlers struct{ s *Session }

// server serves a session's stops.
type server = stops.Server[*Regs, *KretprobeInstance]

func newServer(s *Session) *server {
	return stops.New(stops.Parts[*Regs, *KretprobeInstance]{
		On: s.on, Within: s.within, Threads: s.threads, Calls: s.calls, Watched: s.watches,
		Handlers: handlers{s}, Concurrent: s.opts.Concurrent,
	})
}

func (hs handlers) View(th target.Thread) *Regs {
	s, r := hs.s, &hs.s.scratch
	if s.opts.Concurrent {
		r = &Regs{task: s.task(th)} // the target may be asked on its own thread only
	}
	r.s, r.th, r.gAsked, r.gFound = s, th, false, false
	return r
}

func (hs handlers) Before(ps []*probed.Probe, r *Regs) bool {
	for _, q := range ps {
		if !q.Active() {
			continue
		}
		p := containerOf(q)
		if !q.Inside() {
			p.hits.Add(1) // the others count where they run
		}
		if p.PreHandler != nil && hs.s.call(p, r, false) != 0 {
			return false
		}
	}
	return true
}

func (hs handlers) After(ps []*probed.Probe, r *Regs) {
	for _, p := range ps {
		if p.Active() && p.Post() {
			hs.s.call(containerOf(p), r, true)
		}
	}
}

// Passed: what only counts is counted here, and other programs have missed the hit; a return that is not armed is missed as well.
func (handlers) Passed(ps []*probed.Probe) {
	for _, q := range ps {
		p := containerOf(q)
		switch {
		case !q.Active() || !q.Inside():
		case p.as().returns() != nil:
			p.as().returns().note(calls.Missed)
		case p.Program == CountOnly:
			p.hits.Add(1)
		default:
			p.missed.Add(1)
		}
	}
}

func (hs handlers) Faulted(ps []*probed.Probe, r *Regs, trap int) bool {
	for _, q := range ps {
		if p := containerOf(q); p.FaultHandler != nil && q.Active() && hs.s.callFault(p, r, trap) != 0 {
			return true
		}
	}
	return false
}

// Returned is of every probe on the call, newest first.
func (hs handlers) Returned(over []*calls.Call[*KretprobeInstance], r *Regs) {
	s := hs.s
	for i := len(over) - 1; i >= 0; i-- {
		rp := over[i].Instance.Rp
		if rp.Kp.probe.Leaving.Load() {
			s.calls.Lose(over[i], calls.Unregistered)
			continue
		}
		rp.returned.Add(1)
		if rp.Handler != nil {
			s.callReturn(rp, over[i].Instance, r)
		}
		s.calls.Done(over[i])
	}
}

// Among counts an access as missed by each that it may have been of.
func (hs handlers) Among(set uint) {
	for _, w := range hs.s.watches.In(set) {
		w.Kp.missed.Add(1)
	}
}

func (hs handlers) Accessed(set uint) func(*Regs) {
	ws := hs.s.watches.In(set)
	if len(ws) == 0 {
		return nil
	}
	return func(r *Regs) {
		for _, w := range ws {
			w.fired(r)
		}
	}
}

func (hs handlers) Outlived(signal int) { hs.s.outlived(signal) }

func (hs handlers) Notified(pt *point, r *Regs) bool { return hs.s.notified(pt, r) }

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

func (s *Session) callFault(p *Kprobe, r *Regs, trapnr int) (result int) {
	defer func() {
		if e := recover(); e != nil {
			result = 0
			p.missed.Add(1)
			s.panicked(p, "fault-handler", e)
		}
	}()
	return p.FaultHandler(p, r, trapnr)
}
