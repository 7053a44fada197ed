package within

import (
	"errors"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/symbol"
)

// Asked is what a return probe asks of how returns are noticed.
type Asked struct {
	Engine    returns.Engine // None: whichever is right
	Program   bool           // one runs inside at returns
	Result    bool           // and looks at what the function returns
	Overrides bool           // the one at the entry may replace the function
	Beside    bool           // the return address is swapped already, for a program of another probe

	// Site has a place analysed, unless it was.
	Site func(symbol.Loc) (*patch.Site, error)
}

// PlanReturns decides how the returns of a function are noticed, and finds its
// exits where that is how. Errors: ENOTSUP; EINVAL where the target itself bars it, as its own probes have it.
func (w *Within) PlanReturns(loc symbol.Loc, a Asked) (*returns.Plan, error) {
	a.Result = a.Result && a.Engine != returns.Exits // asked for: it knows what it sees at a tail jump
	if a.Beside && a.Engine == returns.None {
		a.Engine = returns.Exits
	}
	plan, err := w.on.Image.Returns(a.Program).Plan(loc, a.Engine)
	if err == nil && a.Beside && plan.Swaps() {
		err = errors.New("another probe's program swaps the return address, with another MaxActive")
	}
	if err != nil {
		e := syscall.ENOTSUP
		if errors.As(err, new(returns.Barred)) {
			e = syscall.EINVAL
		}
		return plan, &errno.Error{Errno: e, Reason: "no return probe on " + loc.String(), Err: err}
	}
	if !a.Program || plan.Swaps() {
		return plan, nil
	}
	if err = w.atExits(plan, a, loc); err != nil {
		return plan, &errno.Error{Errno: syscall.ENOTSUP, Reason: "no program for the return of " + loc.String(), Err: err}
	}
	return plan, nil
}

// atExits tells why programs cannot run at a function's exits, nil where they can.
func (w *Within) atExits(plan *returns.Plan, a Asked, loc symbol.Loc) error {
	on, m := w.on, loc.Module
	switch {
	case a.Result && plan.Exits.Ends(patch.TailJump):
		return errors.New("it may end with a jump to another function, and what that will return is not known there")
	case a.Overrides:
		return errors.New("one that overrides the function is for a kprobe, where exits are probed")
	case m != nil && m.File != nil && m.File.IsGo() && w.Some() && !w.Goroutines():
		return errors.New("the program has become one with Go code only lately")
	}
	if on.Kind.Shared() {
		site, err := a.Site(loc)
		if err != nil {
			return err
		}
		if why := on.Kind.Owned(site.Addr, site.Addr+arch.Addr(len(site.Original))); why != "" {
			return errors.New(why)
		}
	}
	return plan.Exits.Check(func(code []byte) bool { _, ok := w.on.Machine.Detours.Leaves(code); return ok })
}
