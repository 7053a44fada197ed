package within

import (
	"fmt"
	"sync"

	"kprobe/target"
)

// Threads that begin later need memory, too: a state of the segment each, and what they write to in maps and rings. The segment's file
// grows as states are given out, so no more of its addresses lead to memory than may be of use: a program that locks all of its memory does not
// make all the gigabytes that are reserved. A control group that has no memory left for one more thread gives it none: its hits
// are missed then, which each command tells, and why is told once.

// growth is what there is to know of it. Shares come and go while threads are born.
type growth struct {
	mu      sync.Mutex
	shares  []*Share
	size    int // of the segment, as far as it is there
	refused bool
}

// atOnce are so many states whose memory is there from the beginning: a thread that enters itself cannot ask.
const atOnce = 1023

// grows has the segment grow with the threads. No state was given out yet.
func (w *Within[P]) grows() error {
	g, ok := w.on.T.(target.Grower)
	if !ok {
		return nil
	}
	w.growth.size = w.Seg.SizeFor(min(atOnce, w.Seg.Threads))
	if err := g.Resize(w.ours, w.growth.size); err != nil {
		return err
	}
	w.Seg.Allow(atOnce, func(states int) bool {
		err := w.grow(g, states)
		if err != nil && !w.growth.refused {
			w.growth.refused = true
			w.on.Report(fmt.Errorf("hits of threads that begin now are missed where programs run, or are counted inside: %w", err))
		}
		return err == nil
	})
	return nil
}

// grow makes room for so many states, if the target can have the memory that their threads write to. Errors: ENOMEM, in numbers; the target's.
func (w *Within[P]) grow(g target.Grower, states int) error {
	w.growth.mu.Lock()
	defer w.growth.mu.Unlock()
	need := headWritten + states*threadWrites - g.Written(w.ours)
	for _, s := range w.growth.shares {
		if s.pool == nil {
			need += int(s.written(states)) - g.Written(s.Ours)
		}
	}
	if err := w.on.Owner.Afford(target.Need{Bytes: max(0, need)}); err != nil {
		return err
	}
	size := w.Seg.SizeFor(states)
	if size <= w.growth.size {
		return nil
	}
	err := g.Resize(w.ours, size)
	if err == nil {
		w.growth.size = size
	}
	return err
}

// has says which shares there are.
func (g *growth) has(shares []*Share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shares = shares
}
