package within

import (
	"fmt"
	"sync"
	"time"

	"kprobe/arch"
	"kprobe/internal/segment"
	"kprobe/target"
)

// Threads that begin later need memory, too: each has a state of the segment, and its parts of maps
// and rings. The files behind these grow as states and counters are given out. So no more addresses
// lead to memory than may be of use, and a program that locks all of its memory does not make all
// the gigabytes that are reserved. A control group may have no memory left for one more thread. Its
// hits are missed then: each command tells that, and the reason is told once.

// growth has the sizes of the files as they are now. Shares come and go while threads are born.
type growth struct {
	mu      sync.Mutex
	shares  []*Share
	size    int         // of the segment's own file
	groups  map[int]int // of each group that has a file of its own
	wanted  int         // states: their groups should have files of their own
	due     bool        // and some have none yet
	extra   int         // of the ring for what programs print, 0 before it exists
	refused bool
	parts   [2]bool // the parts of the segment that exist
}

// grows has the segment grow with the threads. No state was given out yet.
func (w *Within) grows() error {
	g, ok := w.on.T.(target.Grower)
	if !ok {
		return nil
	}
	threads := w.population()
	w.growth.mu.Lock()
	w.growth.size, w.growth.groups, w.growth.wanted = w.on.Room.Round(w.SizeFor(threads)), make(map[int]int), manyTimes*threads
	w.growth.extra, w.growth.parts = 0, [2]bool{}
	w.growth.mu.Unlock()
	if err := w.separate(g); err != nil {
		return err
	}
	w.More = func(p segment.Part) error { return w.more(g, p) }
	first := min(segment.Spare, w.Seg.Threads)
	if err := w.fill(first); err != nil {
		return err
	}
	w.Seg.Allow(first, func(states, lanes int) bool {
		err := w.grow(g, states, lanes)
		if err != nil && !w.growth.refused {
			w.growth.refused = true
			w.on.Report(fmt.Errorf("hits of threads that begin now are missed where programs run, or are counted inside: %w", err))
		}
		return err == nil
	}, func(states, lanes int) error { return w.lengthen(g, states, lanes) })
	return nil
}

// grow makes room for so many states and their counters, if the target can have the memory that
// their threads write to. Errors: ENOMEM, in numbers; the target's.
func (w *Within) grow(g target.Grower, states, lanes int) error {
	w.growth.mu.Lock()
	need := headWritten + states*threadWrites - g.Written(w.ours)
	for i := range w.growth.groups {
		need -= g.Written(w.group(i))
	}
	for _, s := range w.growth.shares {
		if s.pool == nil {
			need += int(s.sizeFor(states)) - g.Written(s.Ours)
		}
	}
	w.growth.mu.Unlock()
	if err := w.on.Owner.Afford(target.Need{Bytes: max(0, need)}); err != nil {
		return err
	}
	if err := w.fill(states); err != nil {
		return err
	}
	return w.lengthen(g, states, lanes)
}

// lengthen makes memory for so many states and lanes of the segment.
func (w *Within) lengthen(g target.Grower, states, lanes int) error {
	w.growth.mu.Lock()
	defer w.growth.mu.Unlock()
	size := 0
	for i := range w.Seg.Groups(states) {
		n := w.Seg.GroupFor(i, states, lanes)
		was, own := w.growth.groups[i]
		if !own {
			at, _ := w.Seg.Group(i)
			size = at + n
			continue
		}
		if err := w.resize(g, w.group(i), &was, n); err != nil {
			return err
		}
		w.growth.groups[i] = was
	}
	if err := w.resize(g, w.ours, &w.growth.size, size); err != nil {
		return err
	}
	w.ahead(states)
	if w.growth.extra == 0 {
		return nil
	}
	at, size, _ := w.Seg.Part(segment.ExtraPart)
	return w.resize(g, w.ours[at:at+size], &w.growth.extra, w.PrintedFor(states))
}

// manyTimes is for the threads to come: the groups of so many times the threads that there are have
// files of their own. Further groups get them when there may soon be more threads. If threads begin
// faster than that, their states are in the segment's own file, which is long then.
const manyTimes = 4

// separate makes a file for each group that is wanted and not in use yet. The target is frozen.
func (w *Within) separate(g target.Grower) error {
	if !w.Seg.Grouped {
		return nil
	}
	for _, i := range w.together() {
		at, size := w.Seg.Group(i)
		if err := g.Extend(w.shared.Start+arch.Addr(at), w.ours[at:at+size], 0); err != nil {
			return err
		}
		w.growth.mu.Lock()
		w.growth.groups[i] = 0
		w.growth.mu.Unlock()
	}
	return nil
}

// together lists the groups that are wanted, have no file of their own, and are not in use.
func (w *Within) together() (groups []int) {
	w.growth.mu.Lock()
	defer w.growth.mu.Unlock()
	for i := 1; i < w.Seg.Groups(min(w.growth.wanted, w.Seg.Threads)); i++ {
		at, _ := w.Seg.Group(i)
		if _, own := w.growth.groups[i]; !own && at >= w.growth.size {
			groups = append(groups, i)
		}
	}
	return groups
}

// ahead asks for further groups before those that exist are all in use. The lock is held.
func (w *Within) ahead(states int) {
	if !w.Seg.Grouped || w.Seg.Groups(2*states) <= w.Seg.Groups(w.growth.wanted) {
		return
	}
	w.growth.wanted, w.growth.due = manyTimes*states, true
	time.AfterFunc(0, w.world.Doubted)
}

// separateLate does what ahead has asked for. Errors: the target's.
func (w *Within) separateLate() error {
	g, ok := w.on.T.(target.Grower)
	w.growth.mu.Lock()
	due := w.growth.due
	w.growth.due = false
	w.growth.mu.Unlock()
	if !ok || !due || !w.Some() {
		return nil
	}
	return w.on.Owner.Frozen(func() error { return w.separate(g) })
}

// group is the memory of a group of states.
func (w *Within) group(i int) []byte {
	at, size := w.Seg.Group(i)
	return w.ours[at : at+size]
}

// held counts the threads' slots that maps may have.
func (w *Within) held() int {
	if !w.Some() {
		return w.slots.Count()
	}
	return max(w.Seg.Allowed(), w.slots.Count())
}

// fill makes the memory that so many threads write to in maps and rings.
func (w *Within) fill(threads int) error {
	g, ok := w.on.T.(target.Grower)
	if !ok {
		return nil
	}
	w.growth.mu.Lock()
	defer w.growth.mu.Unlock()
	for _, s := range w.growth.shares {
		if s.pool != nil {
			continue
		}
		if err := w.resize(g, s.Ours, &s.there, int(s.sizeFor(threads))); err != nil {
			return err
		}
	}
	return nil
}

// resize makes memory longer, if it was shorter than that. The lock is held.
func (w *Within) resize(g target.Grower, ours []byte, was *int, size int) error {
	size = min(w.on.Room.Round(size), len(ours))
	if size <= *was {
		return nil
	}
	err := g.Resize(ours, size)
	if err == nil {
		*was = size
	}
	return err
}

// more makes a part of the segment exist from now on.
func (w *Within) more(g target.Grower, p segment.Part) error {
	at, size, ok := w.Seg.Part(p)
	if !ok || w.growth.has(p) {
		return nil
	}
	return w.on.Owner.Frozen(func() error {
		if w.growth.has(p) {
			return nil
		}
		there := size
		if p == segment.ExtraPart {
			there = w.on.Room.Round(w.PrintedFor(w.Seg.Allowed()))
		}
		err := g.Extend(w.shared.Start+arch.Addr(at), w.ours[at:at+size], there)
		if err != nil {
			return err
		}
		w.growth.mu.Lock()
		defer w.growth.mu.Unlock()
		w.growth.parts[p] = true
		if p == segment.ExtraPart {
			w.growth.extra = there
		}
		return nil
	})
}

// sharing says which shares there are.
func (g *growth) sharing(shares []*Share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shares = shares
}

// has tells whether a part of the segment exists. Each return probe of a batch asks, and a look is no reason to
// stop the target.
func (g *growth) has(p segment.Part) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parts[p]
}
