package within

import "time"

// Reclaimer looks for instances of return probes that are lost. A task of a kernel's may end inside of a
// function: nothing tells us, and its call keeps an instance of the return probe. When a probe misses calls,
// these are looked for. That takes a stop of the machine.
type Reclaimer struct {
	w      *Within
	change func(f func())
	coming bool // a look
}

// reclaimDelay is how long a kernel's return probe may lack instances until they are looked for. It doubles
// while there are none to be found.
const reclaimDelay = time.Second

// NewReclaimer looks by change, which calls what it is given while nobody else changes the target, or not at all
// where nobody may any more.
func NewReclaimer(w *Within, change func(f func())) *Reclaimer {
	return &Reclaimer{w: w, change: change}
}

// Soon has a look come, if one may be of use. It is called while nobody else changes the target.
func (r *Reclaimer) Soon() { r.after(reclaimDelay) }

func (r *Reclaimer) after(delay time.Duration) {
	if r.coming || !r.w.on.Kind.OnCPUs() || !r.w.Some() || len(r.w.Accounts()) == 0 {
		return
	}
	r.coming = true
	time.AfterFunc(delay, func() { r.change(func() { r.look(delay) }) })
}

func (r *Reclaimer) look(delay time.Duration) {
	r.coming = false
	if !r.w.Some() {
		return
	}
	if r.w.Exhausted() {
		freed, err := r.w.ReclaimEnded()
		r.w.on.Report(err)
		const longest = time.Minute
		if delay = min(2*delay, longest); freed > 0 {
			delay = reclaimDelay
		}
	}
	r.after(delay)
}
