package kprobe

import (
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/mistakes"
	"kprobe/internal/roles"
)

func (p *Kprobe) kprobe() *Kprobe { return p }

func (p *Kprobe) prepare(s *Session) error {
	asked := p.asked()
	asked.Handlers, asked.Posts = handlers{p}, p.PostHandler != nil
	if p.Program != nil {
		if p.PreHandler != nil || p.PostHandler != nil || p.FaultHandler != nil {
			return fail(syscall.EINVAL, "a probe has a program or handlers, not both")
		}
		if err := asked.Program.Fits(s.e.Home, bpf.Kprobe, 0); err != nil {
			return err
		}
	}
	p.probe.Prepare(s.e.Home, asked)
	return nil
}

// handlers runs those of a probe (roles.Handlers). A handler that panics has faulted: the fault-handler
// is told, and the probed program goes on.
type handlers struct{ *Kprobe }

func (h handlers) Before(v *roles.View) (moved bool) {
	if h.PreHandler == nil {
		return false
	}
	r := regsOf(v)
	defer func() {
		if e := recover(); e != nil {
			moved = false
			h.fault(r, e)
		}
	}()
	return h.PreHandler(h.Kprobe, r) != 0
}

func (h handlers) After(v *roles.View) {
	r := regsOf(v)
	defer h.recovered(r)
	h.PostHandler(h.Kprobe, r, 0)
}

func (h handlers) Faulted(v *roles.View, trap int) (dealt bool) {
	if h.FaultHandler == nil {
		return false
	}
	r := regsOf(v)
	defer func() {
		if e := recover(); e != nil {
			dealt = false
			h.probe.Missed.Add(1)
			r.s.panicked(h.Kprobe, "fault-handler", e)
		}
	}()
	return h.FaultHandler(h.Kprobe, r, trap) != 0
}

// recovered is deferred by what runs a handler.
func (h handlers) recovered(r *Regs) {
	if e := recover(); e != nil {
		h.fault(r, e)
	}
}

// fault gives a panic the trap number that the same mistake has in a
// kernel's handler.
func (h handlers) fault(r *Regs, cause any) {
	h.probe.Missed.Add(1) // as the kernel counts it
	trapnr := mistakes.Trap(cause)
	if h.FaultHandler != nil {
		func() {
			defer func() { _ = recover() }()
			if h.FaultHandler(h.Kprobe, r, trapnr) != 0 {
				trapnr = -1
			}
		}()
	}
	if trapnr >= 0 {
		r.s.panicked(h.Kprobe, "handler", cause)
	}
}
