package kprobe

import (
	"errors"
	"fmt"
	"strings"

	"kprobe/arch"
	"kprobe/internal/machine"
	"kprobe/internal/patch"
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
	line := e.Place
	add := func(known bool, format string, v any) {
		if known {
			line += fmt.Sprintf("  "+format, v)
		}
	}
	add(e.Addr != 0, "%v", e.Addr)
	add(len(e.Bytes) != 0, "% x", e.Bytes)
	add(true, "%s", e.Verdict)
	add(e.Engine != "", "%s", e.Engine)
	add(e.Jump != "", "jump %s", e.Jump)
	add(e.Trap != "", "trap %s", e.Trap)
	add(e.Reason != "", "(%s)", e.Reason)
	return line
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
	if err := s.begin(); err != nil {
		return refused(err)
	}
	e := s.plan(p, kp, refused)
	if s.end(&e.Err); e.Err != nil {
		e.Reason = e.Err.Error()
	}
	return e
}

func (s *Session) plan(p Probe, kp *Kprobe, refused func(error) PlanEntry) PlanEntry {
	if err := s.usable(); err != nil {
		return refused(err)
	}
	if err := p.prepare(s); err != nil {
		return refused(err)
	}
	defer p.release(s)
	loc, err := kp.as().find(s, kp)
	var absent *symbol.NoModuleError
	switch {
	case errors.As(err, &absent):
		return PlanEntry{Place: kp.SymbolName, Verdict: "pending", Reason: "its file is not mapped yet"}
	case err != nil:
		return refused(err)
	}
	if w := kp.as().watches(); w != nil {
		return PlanEntry{Place: loc.Place(), Addr: arch.Addr(loc.Addr), Verdict: "watch", Engine: "debug register",
			Reason: fmt.Sprintf("%d bytes, %v", w.Len, w.Access)}
	}
	e := PlanEntry{Place: loc.Place(), Addr: arch.Addr(loc.Addr), Engine: "trap"}
	site, err := s.image.Analyse(loc)
	if site != nil {
		e.Bytes, e.Verdict, e.Reason = site.Original, site.Kind.String(), site.Reason
		if s.beside != nil {
			e.Verdict, e.Engine = besideVerdict(site), "stop"
		}
	}
	if err == nil {
		err = kp.checkPinned(s.pinned(site))
	}
	rp := kp.as().returns()
	if err == nil {
		var b batch
		b.init()
		err = kp.as().fits(s, &b, loc)
		if rp != nil && err == nil {
			err = s.prepareExits(&b, rp)
			e.Engine = rp.engine()
		}
	}
	if err != nil {
		e.Verdict, e.Engine, e.Reason, e.Err = "refuse", "", err.Error(), err
		return e
	}
	pt := &point{Place: text.Place{Addr: e.Addr, Site: site}, loc: loc}
	switch {
	case rp != nil && s.machine != nil:
		e.Jump = s.planReturnJumps(rp, pt)
	case rp == nil || rp.plan.Swaps():
		if e.Jump = s.planJump(pt); e.Jump != "" {
			e.Trap = s.planTrap(pt)
		}
	}
	return e
}

// planReturnJumps is planJump for a function's return in a kernel: a program would run there if all of them can be.
func (s *Session) planReturnJumps(rp *Kretprobe, entry *point) string {
	counts := &Kretprobe{Program: CountOnly}
	if err := s.chooseEngine(counts, entry.loc, false); err != nil {
		return "none: " + err.Error()
	}
	j := s.planJump(entry)
	for _, x := range counts.plan.Exits.Sites {
		loc, ok := s.image.Space.At(uint64(x.Addr))
		if !ok || strings.HasPrefix(j, "none: ") {
			break
		}
		site, err := s.image.Analyse(loc)
		if err != nil {
			return "none: " + err.Error()
		}
		if why := s.planJump(&point{Place: text.Place{Addr: x.Addr, Site: site}, loc: loc}); strings.HasPrefix(why, "none: ") {
			return fmt.Sprintf("%s, at %v, where it returns", why, x.Addr)
		}
	}
	return j
}

// planJump tells how a jump could stand at a point, or why none.
func (s *Session) planJump(pt *point) string {
	if s.sharer == nil {
		return ""
	}
	how, why := s.tactic(pt)
	if why != "" {
		return "none: " + why
	}
	return how.String()
}

func (s *Session) tactic(pt *point) (how patch.Tactic, why string) {
	if err := machine.Programs(s.arch); err != nil {
		return 0, err.Error()
	}
	j := s.jumpAt(pt)
	if j != nil && (len(j.Ways) == 0 || j.Passed()) {
		if ahead := s.image.Ahead(pt.loc, s.probed); len(ahead.Ways) > 0 {
			j = ahead
		}
	}
	switch {
	case j == nil:
		return 0, "the code around it is not known"
	case len(j.Ways) == 0:
		return 0, j.Reason
	}
	if span := j.Span(&j.Ways[0]); s.machine != nil {
		why = s.machine.Owned(span.Start, span.End)
	}
	return j.Ways[0].Tactic, why
}
