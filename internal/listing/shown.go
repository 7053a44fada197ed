package listing

import (
	"slices"
	"sync"

	"kprobe/internal/probed"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// Shown is what a session has, as it was after a change: for those who must not wait
// for the next one to be over. It is never changed, but replaced.
type Shown[P comparable] struct {
	Program *symbol.Module
	Probes  []Probe[P]
	Pending []string // the names of those that wait
}

// Probe is one of them. Whether it is switched off, gone or optimized is asked
// when the list is.
type Probe[P any] struct {
	Row
	Of    P
	Point *probed.Point[P]
	Exits []*probed.Point[P] // of its function
}

// Entries lists the probes. state tells whether one is gone, and whether it is switched off; view guards what stands in the
// text. A probe is optimized when a jump leads to what it has inside the target; with exits, when one does at each
// of its function's exits, too.
func (l *Shown[P]) Entries(view *sync.RWMutex, exits bool, state func(P) (gone, disabled bool)) []Entry {
	rows := make([]Row, len(l.Probes))
	view.RLock()
	for i, p := range l.Probes {
		rows[i] = p.Row
		rows[i].Gone, rows[i].Disabled = state(p.Of)
		rows[i].Optimized = jumps(p.Point) && (!exits || count(p.Exits) == len(p.Exits))
	}
	view.RUnlock()
	return Entries(rows, l.Program)
}

// Exits tells how many exits a probe's function has, and at how many of them a jump stands.
func (l *Shown[P]) Exits(view *sync.RWMutex, of P) (probed, jumps int) {
	i := slices.IndexFunc(l.Probes, func(p Probe[P]) bool { return p.Of == of })
	if i < 0 {
		return 0, 0
	}
	view.RLock()
	defer view.RUnlock()
	return len(l.Probes[i].Exits), count(l.Probes[i].Exits)
}

func jumps[P any](pt *probed.Point[P]) bool { return pt != nil && pt.Text == text.Jump }

// count tells how many of some points have a jump.
func count[P any](pts []*probed.Point[P]) (n int) {
	for _, pt := range pts {
		if jumps(pt) {
			n++
		}
	}
	return n
}
