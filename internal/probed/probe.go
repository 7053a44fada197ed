package probed

import (
	"sync/atomic"

	"kprobe/arch"
	"kprobe/internal/inside"
)

// Probe is a probe as the engine has it.
type Probe struct {
	Role                // answers for its kind
	Point   *Point      // nil while it is on none; changed with Ground.View held
	Gone    atomic.Bool // for good: the place is no more, or was found unfit
	Leaving atomic.Bool // it is being unregistered: no handler begins any more
}

// Role answers the engine's questions about one probe by the kind of the probe.
type Role interface {
	// Disabled tells whether the caller has switched the probe off.
	Disabled() bool
	// Inside tells whether the probe's work is done in the target.
	Inside() bool
	// Post tells whether it has a post-handler.
	Post() bool
	// Trails tells whether it comes after the others at its point.
	Trails() bool
	// Entry is, for a probe at an exit, the probe at the entry of the function; else the probe itself.
	Entry() *Probe
	// Swaps tells whether it swaps return addresses.
	Swaps() bool
	// Misses tells whether a detour counts apart the hits that the probe misses.
	Misses() bool

	// Want adds the probe's part to the detour of its point. entry is that of the function.
	Want(w *inside.Want, entry arch.Addr) error
	// Account is the account of a return probe's calls; nil for other probes.
	Account() *inside.Owner
	// Tally is what a detour has counted of the probe. Fold adds it to the probe's own counts, when the
	// detour is no more.
	Tally(*inside.Detour) inside.Tally
	Fold(*inside.Detour)
	// Unwound is told that a call of a return probe was unwound.
	Unwound()

	// Linked is told that the probe has got its point, and Unlinked that it has not got it after all.
	// Ground.View is held.
	Linked()
	Unlinked()

	// Line is the probe in a change's lines. Named puts the probe's own words before an error.
	Line() string
	Named(error) error
}

// Active tells whether the probe's handlers, or its program, are to run.
func (p *Probe) Active() bool { return p.ActiveWith(nil) }

// ActiveWith is Active when some probes have been switched off, or on.
func (p *Probe) ActiveWith(off map[*Probe]bool) bool {
	is, switched := off[p]
	if !switched {
		is = p.Disabled()
	}
	return !is && !p.Gone.Load() && !p.Leaving.Load()
}
