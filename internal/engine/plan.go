package engine

import (
	"errors"
	"fmt"

	"kprobe/internal/planned"
	"kprobe/internal/probed"
	"kprobe/internal/roles"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// Plan tells what registering a probe would do, which is prepared now, and released again. Nothing is changed.
// p is for the words of a refusal. Not from a handler.
func (e *Engine) Plan(p *roles.Probe, as roles.Asked, prepare func() error) planned.Entry {
	refused := func(err error) planned.Entry {
		return planned.Entry{Place: as.Name, Addr: *as.Addr, Verdict: planned.Refuse, Reason: err.Error(), Err: err}
	}
	if err := e.Turns.Begin(); err != nil {
		return refused(err)
	}
	plan := e.plan(p, as, prepare, refused)
	if e.Turns.End(&plan.Err); plan.Err != nil {
		plan.Reason = plan.Err.Error()
	}
	return plan
}

func (e *Engine) plan(p *roles.Probe, as roles.Asked, prepare func() error, refused func(error) planned.Entry) planned.Entry {
	if err := e.Turns.Usable(); err != nil {
		return refused(err)
	}
	if err := p.Claim(as); err != nil {
		return refused(err)
	}
	defer p.Claimed.Store(false)
	if err := prepare(); err != nil {
		return refused(err)
	}
	defer func() { p.As().Release() }()
	loc, err := p.As().Find()
	var absent *symbol.NoModuleError
	switch {
	case errors.As(err, &absent):
		return planned.Entry{Place: p.Where(), Verdict: planned.Pending, Reason: "its file is not mapped yet"}
	case err != nil:
		return refused(err)
	}
	if d := p.As().Data(); d != nil {
		return planned.Entry{Place: loc.Place(), Addr: loc.Addr, Verdict: planned.Watch, Engine: "debug register",
			Reason: fmt.Sprintf("%d bytes, %s", d.Len, d.Access())}
	}
	return e.planAt(p, loc)
}

func (e *Engine) planAt(p *roles.Probe, loc symbol.Loc) planned.Entry {
	plan := planned.Entry{Place: loc.Place(), Addr: loc.Addr, Engine: "trap"}
	b := e.Batch()
	site, err := b.Site(loc)
	if site != nil {
		plan.Bytes, plan.Reason = site.Original, site.Reason
		plan.Verdict, plan.Engine = e.On.Kind.Verdict(site)
	}
	if err == nil {
		err = p.CheckPlace(loc, e.Links.Pinned(site))
	}
	rt := p.As().Return()
	if err == nil {
		err = p.As().Fits(b, loc)
		if rt != nil && err == nil {
			err = rt.JoinExits(b)
			plan.Engine = rt.Told()
		}
	}
	if err != nil {
		plan.Verdict, plan.Engine, plan.Reason, plan.Err = planned.Refuse, "", err.Error(), err
		return plan
	}
	pt := &probed.Point{Place: text.Place{Addr: plan.Addr, Site: site}, Loc: loc}
	switch {
	case rt != nil && e.On.Kind.OnCPUs():
		plan.Jump = e.optimizer.JumpAtReturns(pt, b.Site)
	case rt == nil || rt.Swaps():
		if plan.Jump = e.optimizer.JumpAt(pt); plan.Jump.Known() {
			plan.Trap = e.optimizer.TrapAt(pt)
		}
	}
	return plan
}
