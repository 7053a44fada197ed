package within

import (
	"slices"
	"sync"

	"kprobe/internal/inside"
	"kprobe/internal/probed"
)

// owners are the probes whose programs detours run, in their order, from when a detour is planned until its counts are folded or
// its change is undone. A detour outlives its point's wish for it, and a probe what has its counts.
type owners struct {
	mu sync.Mutex
	of map[*inside.Detour][]*probed.Probe
}

// Runs says which probes' programs a detour runs.
func (o *owners) Runs(d *inside.Detour, ps []*probed.Probe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = make(map[*inside.Detour][]*probed.Probe)
	}
	o.of[d] = ps
}

// Gone forgets a detour.
func (o *owners) Gone(d *inside.Detour) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, d)
}

// probes are those of a detour.
func (o *owners) probes(d *inside.Detour) []*probed.Probe {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[d]
}

// without takes a probe off a detour.
func (o *owners) without(d *inside.Detour, p *probed.Probe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[d] = slices.DeleteFunc(slices.Clone(o.of[d]), func(q *probed.Probe) bool { return q == p })
}
