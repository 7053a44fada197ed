package within

import (
	"slices"
	"sync"

	"kprobe/internal/inside"
)

// owners are the probes whose programs detours run, in their order, from when a detour is planned until its counts are folded or
// its change is undone. A detour outlives its point's wish for it, and a probe what has its counts.
type owners[P comparable] struct {
	mu sync.Mutex
	of map[*inside.Detour][]P
}

// Runs says which probes' programs a detour runs.
func (o *owners[P]) Runs(d *inside.Detour, ps []P) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[*inside.Detour][]P)
	}
	o.of[d] = ps
}

// Gone forgets a detour.
func (o *owners[P]) Gone(d *inside.Detour) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, d)
}

// probes are those of a detour.
func (o *owners[P]) probes(d *inside.Detour) []P {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[d]
}

// without takes a probe off a detour.
func (o *owners[P]) without(d *inside.Detour, p P) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[d] = slices.DeleteFunc(slices.Clone(o.of[d]), func(q P) bool { return q == p })
}
