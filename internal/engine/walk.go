package engine

import (
	"slices"

	"kprobe/internal/calls"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/internal/returns"
	"kprobe/internal/roles"
)

// A program that walks its own stack (backtrace(3), an exception that passes
// through C code) must find its own return addresses there. So with the first
// return probe that swaps one come hidden probes on the functions that begin such
// a walk. What this thread has swapped is put back while one of them runs, and is
// swapped again when it returns.

// watchWalks adds the hidden probes to a batch that swaps return addresses, where
// they are not there yet. What cannot be probed is left out: the walk is then
// shorter than it was, as with any tool that swaps.
func (e *Engine) watchWalks(b *roles.Batch) (added []*roles.Probe) {
	if e.walks || !slices.ContainsFunc(b.Probes, (*probed.Probe).Swaps) {
		return nil
	}
	add := func(p *roles.Probe) {
		before := b.Mark()
		if b.Prepare(p) != nil {
			b.Back(before)
			return
		}
		added = append(added, p)
	}
	for _, name := range returns.Everywhere(e.On.Image.Space, returns.Walkers) {
		if p := roles.HiddenReturn(e.Home, name, walker{e}); p != nil {
			add(p)
		}
	}
	for _, name := range returns.Everywhere(e.On.Image.Space, returns.Unwinders) {
		add(roles.Hidden(e.Home, name, unwinder{e}))
	}
	return added
}

// unswapped is a return address that is in its place while its stack is walked.
type unswapped = calls.Unswapped[inside.Unswapped]

// unswap puts the return addresses of a thread's calls back, and tells which.
func (e *Engine) unswap(v *roles.View) []unswapped {
	return calls.Unswap(e.Calls, v.Spot(), e.Within.Walked(v.Thread, &v.R))
}

// walker handles the calls of a function that walks the stack, and comes back.
type walker struct{ e *Engine }

func (w walker) Entered(c *roles.Call, v *roles.View) (wanted bool) {
	c.Instance.Own = w.e.unswap(v)
	return true
}

func (w walker) Returned(i *roles.Instance, _ *roles.View) {
	calls.SwapAgain(w.e.Calls, i.Own.([]unswapped), w.e.Within.Walked(0, nil))
}

// unwinder handles the calls of a function that unwinds the stack: what is on it may be over then.
type unwinder struct{ e *Engine }

func (u unwinder) Before(v *roles.View) (moved bool) {
	calls.End(u.e.Calls, u.e.unswap(v), u.e.Within.Walked(v.Thread, &v.R))
	return false
}

func (unwinder) After(*roles.View)             {}
func (unwinder) Faulted(*roles.View, int) bool { return false }
