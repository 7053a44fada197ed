package kprobe

import (
	"errors"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/listing"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// PlanEntry is what registering a probe would do.
type PlanEntry struct {
	Place   string    // MODULE:SYMBOL+OFFSET
	Addr    arch.Addr // 0 while its file is not mapped
	Bytes   []byte    // of the instruction
	Verdict string    // "copy", "emulate", "watch", "pending" or "refuse"
	Engine  string    // "trap" or "stop", and for returns by which means and why
	Reason  string    // why so

	// Jump is how a jump can take the trap's place, if the probe's work is done in
	// the target: "whole", "guarded", "pun", or in a kernel "moved" (docs/RATIONALE.md); or "none: " and why
	// not. "" where that was not looked at.
	Jump string

	// Trap is how the trap is served that there is while there is no jump, in a kernel and if the probe's work is done
	// there: "inside"; or "none: " and why not, and then each hit is a stop. "" elsewhere.
	Trap string

	// Err is what registering it would answer, where the verdict is "refuse".
	Err error
}

// String prints the entry on one line.
func (e PlanEntry) String() string {
	return listing.Planned(e.Place, e.Addr, e.Bytes, e.Verdict, e.Engine, e.Jump, e.Trap, e.Reason)
}

// Plan tells what registering a probe would do. Nothing is changed, the probe
// neither; a probe that would be refused has the reason in its entry. From a handler
// that is EDEADLK.
func (s *Session) Plan(p Probe) PlanEntry {
	kp := kprobeOf(p)
	refused := func(err error) PlanEntry {
		e := PlanEntry{Verdict: "refuse", Reason: err.Error(), Err: err}
		if kp != nil {
			e.Place, e.Addr = kp.SymbolName, kp.Addr
		}
		return e
	}
	if kp == nil {
		return refused(errNoProbe)
	}
	if err := s.turns.Begin(); err != nil {
		return refused(err)
	}
	e := s.plan(p, kp, refused)
	if s.turns.End(&e.Err); e.Err != nil {
		e.Reason = e.Err.Error()
	}
	return e
}

func (s *Session) plan(p Probe, kp *Kprobe, refused func(error) PlanEntry) PlanEntry {
	if err := s.turns.Usable(); err != nil {
		return refused(err)
	}
	if err := claim(kp); err != nil {
		return refused(err)
	}
	defer kp.claimed.Store(false)
	if err := p.prepare(s); err != nil {
		return refused(err)
	}
	defer p.release(s)
	loc, err := kp.as().find(s)
	var absent *symbol.NoModuleError
	switch {
	case errors.As(err, &absent):
		return PlanEntry{Place: kp.where(), Verdict: "pending", Reason: "its file is not mapped yet"}
	case err != nil:
		return refused(err)
	}
	if w := kp.as().watches(); w != nil {
		return PlanEntry{Place: loc.Place(), Addr: arch.Addr(loc.Addr), Verdict: "watch", Engine: "debug register",
			Reason: fmt.Sprintf("%d bytes, %v", w.Len, w.Access)}
	}
	e := PlanEntry{Place: loc.Place(), Addr: arch.Addr(loc.Addr), Engine: "trap"}
	b := s.newBatch()
	site, err := b.Site(loc)
	if site != nil {
		e.Bytes, e.Reason = site.Original, site.Reason
		e.Verdict, e.Engine = s.on.Kind.Verdict(site)
	}
	if err == nil {
		err = kp.checkPlace(s, loc, s.links.Pinned(site))
	}
	rp := kp.as().returns()
	if err == nil {
		err = kp.as().fits(s, b, loc)
		if rp != nil && err == nil {
			err = s.prepareExits(b, rp)
			e.Engine = rp.engine()
		}
	}
	if err != nil {
		e.Verdict, e.Engine, e.Reason, e.Err = "refuse", "", err.Error(), err
		return e
	}
	pt := &point{Place: text.Place{Addr: e.Addr, Site: site}, Loc: loc}
	switch {
	case rp != nil && s.on.Kind.OnCPUs():
		e.Jump = s.optimizer.JumpAtReturns(pt, b.Site)
	case rp == nil || rp.plan.Swaps():
		if e.Jump = s.optimizer.JumpAt(pt); e.Jump != "" {
			e.Trap = s.optimizer.TrapAt(pt)
		}
	}
	return e
}
