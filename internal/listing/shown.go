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
type Shown struct {
	Program *symbol.Module
	Probes  []Probe
	Pending []string // the names of those that wait
}

// Probe is one of them. Whether it is switched off, gone or optimized is asked
// when the list is.
type Probe struct {
	Row
	Of    *probed.Probe
	Point *probed.Point
	Exits []*probed.Point // of its function
}

// Entries lists the probes. view guards what stands in the text. A probe is optimized when a jump leads to what it has inside the target; with exits, when one does at each
// of its function's exits, too.
func (l *Shown) Entries(view *sync.RWMutex, exits bool) []Entry {
	rows := make([]Row, len(l.Probes))
	view.RLock()
	for i, p := range l.Probes {
		rows[i] = p.Row
		rows[i].Gone, rows[i].Disabled = p.Of.Gone.Load(), p.Of.Disabled()
		rows[i].Optimized = jumps(p.Point) && (!exits || count(p.Exits) == len(p.Exits))
	}
	view.RUnlock()
	return Entries(rows, l.Program)
}

// Exits tells how many exits a probe's function has, and at how many of them a jump stands.
func (l *Shown) Exits(view *sync.RWMutex, of *probed.Probe) (probed, jumps int) {
	i := slices.IndexFunc(l.Probes, func(p Probe) bool { return p.Of == of })
	if i < 0 {
		return 0, 0
	}
	view.RLock()
	defer view.RUnlock()
	return len(l.Probes[i].Exits), count(l.Probes[i].Exits)
}

func jumps(pt *probed.Point) bool { return pt != nil && pt.Text == text.Jump }

// count tells how many of some points have a jump.
func count(pts []*probed.Point) (n int) {
	for _, pt := range pts {
		if jumps(pt) {
			n++
		}
	}
	return n
}
