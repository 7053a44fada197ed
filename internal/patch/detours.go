package patch

import (
	"cmp"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Detours gives out places for detours in one target. Most jumps may lead to many places, and their
// detours stand side by side. A jump whose displacement is mostly given (Pun) leads to a stub
// instead: a jump on a page of its own, where there happens to be room, that leads to a detour
// among the others. Nothing is mapped here: Areas tells which ranges are to be mapped.
type Detours struct {
	m     isa.ISA
	guard *guardSet
	page  arch.Addr
	reach arch.Addr // the machine's

	busy   []arch.Range // memory in use, the target's and ours; sorted, disjoint
	areas  []arch.Range // ours, in the order in which they were made
	fresh  []arch.Range // pages of areas on which nothing was put yet; sorted
	pieces []arch.Range // free memory on the others; sorted
	next   arch.Addr    // where the last detour was put
	least  int          // the smallest size that was asked for: smaller pieces are not kept

	stubs []arch.Addr        // sorted
	pages map[arch.Addr]bool // that hold stubs only
}

// Place is the memory that Detours gives for one jump.
type Place struct {
	Way    *Way
	Detour arch.Addr
	Size   int       // of the detour, in bytes
	Stub   arch.Addr // a jump to Detour, where the site's jump leads; 0 for none

	held arch.Range // of the detour, with slivers beside it that are of no use
}

// To is the address that the site's jump leads to.
func (p *Place) To() arch.Addr {
	if p.Stub != 0 {
		return p.Stub
	}
	return p.Detour
}

const (
	areaSize = 1 << 16 // bytes that are mapped at a time
	align    = 16      // of detours where there is a choice: for the fetch unit
	maxTries = 64      // places that are looked at before there is a new area
	ahead    = 1 << 23 // half of what one value of the displacement's top byte reaches
)

// NewDetours starts with a target's memory map. Memory below floor (the system gives none there) or
// from limit on is not used, and neither is a page beside any memory of the target: stacks and
// heaps grow. The machine's jumps must be known (isa.JumpForm).
func NewDetours(m isa.ISA, occupied []arch.Range, floor, limit, page arch.Addr) *Detours {
	d := &Detours{m: m, guard: newGuardSet(m.JumpForm()), page: page, reach: m.Reach(), least: areaSize, pages: make(map[arch.Addr]bool)}
	d.busy = give(d.busy, arch.Range{Start: 0, End: floor})
	d.busy = give(d.busy, arch.Range{Start: limit, End: ^arch.Addr(0)})
	for _, r := range occupied {
		d.busy = give(d.busy, arch.Range{Start: r.Start - min(r.Start, page), End: r.End + min(^r.End, page)})
	}
	return d
}

// Put finds a place for a jump with a detour of size bytes, by the first of its
// ways for which there is one. near is the module that the site is in: all of it
// will be in reach of the detour, whose instructions may refer to it. False where
// no way leads to free memory.
func (d *Detours) Put(j *Jump, near arch.Range, size int) (Place, bool) {
	if near.End-near.Start >= d.reach {
		return Place{}, false
	}
	d.least = min(d.least, size)
	bounds := arch.Range{Start: near.End - min(near.End, d.reach), End: near.Start + min(^near.Start, d.reach) - arch.Addr(size)}
	for i := range j.Ways {
		w := &j.Ways[i]
		if p, ok := d.put(w, w.Reach, bounds, near, size); ok {
			return p, true
		}
		if d.m.Arch().PtrSize == 4 {
			// Addresses wrap around: to lead below 0 is to lead to the top.
			r, all := w.Reach, arch.Range{Start: 0, End: 1<<32 - 1}
			r.From += 1 << 32
			if p, ok := d.put(w, r, all, near, size); ok {
				return p, true
			}
		}
	}
	return Place{}, false
}

// put is Put by one way.
func (d *Detours) put(w *Way, r Reach, bounds, near arch.Range, size int) (Place, bool) {
	if w.Tactic != Pun {
		at, held, ok := d.body(&r, bounds, near, size)
		return Place{w, at, size, 0, held}, ok
	}
	stub, ok := d.stub(&r)
	if !ok {
		return Place{}, false
	}
	bounds.Start, bounds.End = max(bounds.Start, stub-min(stub, d.reach)), min(bounds.End, stub+min(^stub, d.reach))
	all := anywhere(stub)
	at, held, ok := d.body(&all, bounds, near, size)
	if !ok {
		d.dropStub(stub)
	}
	return Place{w, at, size, stub, held}, ok
}

// Release takes a place back.
func (d *Detours) Release(p Place) {
	if p.Stub != 0 {
		d.dropStub(p.Stub)
	}
	d.pieces = give(d.pieces, p.held)
}

// Areas are the pages that must be mapped, readable and executable, for all
// places that were given out; sorted, neighbours joined. Pages are never given
// back: the next probes will need them.
func (d *Detours) Areas() []arch.Range {
	rs := slices.Clone(d.areas)
	for page := range d.pages {
		rs = append(rs, arch.Range{Start: page, End: page + d.page})
	}
	slices.SortFunc(rs, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	joined := rs[:0]
	for _, r := range rs {
		if n := len(joined); n > 0 && joined[n-1].End == r.Start {
			joined[n-1].End = r.End
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// Lose tells that memory is not to be had after all: the target has mapped it meanwhile. Places
// that were given out there must have been released.
func (d *Detours) Lose(r arch.Range) {
	meets := func(o arch.Range) bool { return o.Start < r.End && r.Start < o.End }
	d.areas = slices.DeleteFunc(d.areas, meets)
	elsewhere := func(p arch.Range) bool {
		return !slices.ContainsFunc(d.areas, func(a arch.Range) bool { return p.Start >= a.Start && p.End <= a.End })
	}
	d.pieces = slices.DeleteFunc(d.pieces, elsewhere)
	d.fresh = slices.DeleteFunc(d.fresh, elsewhere)
	for page := range d.pages {
		if meets(arch.Range{Start: page, End: page + d.page}) {
			delete(d.pages, page) // and it stays busy
		}
	}
	d.busy = give(d.busy, r)
}

// StubPages is the number of pages that hold stubs only.
func (d *Detours) StubPages() int { return len(d.pages) }

// body finds room for size bytes that start in reach and in bounds: on pages
// that are in use, else on fresh ones, else in a new area.
func (d *Detours) body(r *Reach, bounds, near arch.Range, size int) (at arch.Addr, held arch.Range, ok bool) {
	for _, list := range []*[]arch.Range{&d.pieces, &d.fresh} {
		// From where the last one was, and then from the lowest on.
		for _, from := range []arch.Addr{d.next, 0} {
			if at, ok := d.search(r, *list, arch.Range{Start: max(from, bounds.Start), End: bounds.End}, size); ok {
				return at, d.take(at, size), true
			}
		}
	}
	// Where every detour has a first byte in its jump that traps, those that need
	// one find room among those that do not.
	usual := *r
	if usual.Bytes[3] == Any {
		usual.Bytes[3] = Trapping
	}
	if at, ok = d.open(&usual, bounds, near, size); !ok {
		if at, ok = d.open(r, bounds, near, size); !ok {
			return 0, arch.Range{}, false
		}
	}
	return at, d.take(at, size), true
}

// take gives out size bytes that are free. A rest beside them goes with them where it is too small
// for others.
func (d *Detours) take(at arch.Addr, size int) arch.Range {
	d.next = at
	r := arch.Range{Start: at, End: at + arch.Addr(size)}
	if i := meeting(d.fresh, at, r.End); i >= 0 {
		pages := arch.Range{Start: max(d.fresh[i].Start, r.Start&^(d.page-1)), End: min(d.fresh[i].End, (r.End+d.page-1)&^(d.page-1))}
		d.fresh = cut(d.fresh, i, pages)
		d.pieces = give(d.pieces, pages)
	}
	i := meeting(d.pieces, at, r.End)
	p := d.pieces[i]
	if r.Start-p.Start < arch.Addr(d.least) {
		r.Start = p.Start
	}
	if p.End-r.End < arch.Addr(d.least) {
		r.End = p.End
	}
	d.pieces = cut(d.pieces, i, r)
	return r
}

// meeting finds the range of a list that meets another one; -1 for none.
func meeting(list []arch.Range, start, end arch.Addr) int {
	i, _ := slices.BinarySearchFunc(list, start, func(p arch.Range, a arch.Addr) int { return cmp.Compare(p.End, a+1) })
	if i == len(list) || list[i].Start >= end {
		return -1
	}
	return i
}

// cut takes a part out of a range of a list.
func cut(list []arch.Range, i int, part arch.Range) []arch.Range {
	var rest []arch.Range
	for _, r := range []arch.Range{{Start: list[i].Start, End: part.Start}, {Start: part.End, End: list[i].End}} {
		if r.Start < r.End {
			rest = append(rest, r)
		}
	}
	return slices.Replace(list, i, i+1, rest...)
}

// give adds a range to a list, joined with its neighbours.
func give(list []arch.Range, r arch.Range) []arch.Range {
	i, _ := slices.BinarySearchFunc(list, r.Start, func(b arch.Range, a arch.Addr) int { return cmp.Compare(b.End, a) })
	j := i
	for j < len(list) && list[j].Start <= r.End {
		r.Start, r.End = min(r.Start, list[j].Start), max(r.End, list[j].End)
		j++
	}
	return slices.Replace(list, i, j, r)
}

// search finds a place in a list of free ranges. Reach and ranges take turns in
// naming the next address that is possible.
func (d *Detours) search(r *Reach, free []arch.Range, bounds arch.Range, size int) (arch.Addr, bool) {
	at := bounds.Start
	for range maxTries {
		i, _ := slices.BinarySearchFunc(free, at, func(p arch.Range, a arch.Addr) int { return cmp.Compare(p.End, a+1) })
		if i == len(free) {
			break
		}
		p, ok := free[i], false
		if at, ok = d.fit(r, max(at, p.Start)); !ok || at > bounds.End {
			break
		}
		if at+arch.Addr(size) <= p.End {
			return at, true
		}
		at = max(at, p.End)
	}
	return 0, false
}

// fit finds the first address from lo on that is in reach, and aligned if that
// can be had.
func (d *Detours) fit(r *Reach, lo arch.Addr) (arch.Addr, bool) {
	for {
		at, ok := r.first(d.guard, lo)
		if !ok || r.Bytes[0] != Any || at%align == 0 {
			return at, ok
		}
		lo = (at + align - 1) &^ (align - 1)
	}
}

// open adds an area that has room for size bytes in reach and in bounds: below the
// module if it can be, and as near as it can; else above, and then as far as it
// can, since heaps grow upwards from programs.
func (d *Detours) open(r *Reach, bounds, near arch.Range, size int) (arch.Addr, bool) {
	var gaps []arch.Range // from the highest below the module down, then from the highest of all
	for i := len(d.busy) - 1; i > 0; i-- {
		gap := arch.Range{Start: max(d.busy[i-1].End, bounds.Start), End: min(d.busy[i].Start, bounds.End+arch.Addr(size))}
		gap.Start = (gap.Start + d.page - 1) &^ (d.page - 1)
		if gap.End &^= d.page - 1; gap.Start < gap.End {
			gaps = append(gaps, gap)
		}
	}
	slices.SortStableFunc(gaps, func(a, b arch.Range) int {
		switch aAbove, bAbove := a.Start > near.Start, b.Start > near.Start; {
		case aAbove == bAbove:
			return 0
		case aAbove:
			return 1
		}
		return -1
	})
	for _, gap := range gaps {
		// From the gap's end down in growing steps, until something fits.
		for step := arch.Addr(areaSize); ; step *= 2 {
			lo := gap.Start
			if step < gap.End-gap.Start {
				lo = gap.End - step
			}
			if at, ok := d.openIn(r, arch.Range{Start: lo, End: gap.End}, size); ok {
				return at, true
			}
			if lo == gap.Start {
				break
			}
		}
	}
	return 0, false
}

// openIn adds an area in a gap.
func (d *Detours) openIn(r *Reach, gap arch.Range, size int) (arch.Addr, bool) {
	at, ok := d.fit(r, gap.Start)
	if ok && r.Bytes[3] != Any && at > gap.Start {
		// This site's reach begins here, and that of the sites behind it a little further.
		if a, ok := d.fit(r, at+ahead); ok && a+areaSize <= gap.End {
			at = a
		}
	}
	if !ok || at+arch.Addr(size) > gap.End {
		return 0, false
	}
	start := at &^ (d.page - 1)
	need := (at + arch.Addr(size) - start + d.page - 1) &^ (d.page - 1)
	a := arch.Range{Start: start, End: min(gap.End, start+max(need, areaSize))}
	d.areas = append(d.areas, a)
	d.fresh = give(d.fresh, a)
	d.busy = give(d.busy, a)
	return at, true
}

// stub finds a place for a jump that is in reach, whose displacement's high
// bytes are given: one window of addresses. Pages that have stubs already are
// preferred; a new one is taken at the window's end, because the windows of
// the sites behind this one begin and end a little further.
func (d *Detours) stub(r *Reach) (arch.Addr, bool) {
	lo, ok := r.first(d.guard, r.From-bias)
	if !ok {
		return 0, false
	}
	last := lo - r.From // the displacement of the window's end
	for i := 0; i < len(r.Bytes) && r.Bytes[i] >= Any; i++ {
		last |= 0xff << (8 * i)
	}
	hi := r.From + last

	const tries = 8
	i, _ := slices.BinarySearch(d.stubs, lo&^(d.page-1))
	for range tries {
		if i == len(d.stubs) || d.stubs[i] > hi {
			break
		}
		page := d.stubs[i] &^ (d.page - 1)
		if at, ok := d.stubOn(r, max(page, lo), min(page+d.page-1, hi)); ok {
			d.takeStub(at)
			return at, true
		}
		i, _ = slices.BinarySearch(d.stubs, page+d.page)
	}
	for page := hi &^ (d.page - 1); ; page -= d.page {
		if b, busy := d.busyAt(page); busy && !d.pages[page] {
			if page = b.Start &^ (d.page - 1); page <= lo {
				return 0, false
			}
			continue
		}
		if at, ok := d.stubOn(r, max(page, lo), min(page+d.page-1, hi)); ok {
			d.takeStub(at)
			return at, true
		}
		if page <= lo {
			return 0, false
		}
	}
}

// stubOn finds a place for a stub that begins between two addresses of one page.
func (d *Detours) stubOn(r *Reach, lo, hi arch.Addr) (arch.Addr, bool) {
	size := arch.Addr(d.m.JumpForm().Len())
	for lo <= hi {
		at, ok := r.first(d.guard, lo)
		if !ok || at > hi {
			return 0, false
		}
		i, _ := slices.BinarySearch(d.stubs, at-size+1)
		if i == len(d.stubs) || d.stubs[i] >= at+size {
			// It may run over into the next page.
			over := (at + size - 1) &^ (d.page - 1)
			_, busy := d.busyAt(over)
			return at, !busy || d.pages[over]
		}
		lo = d.stubs[i] + size
	}
	return 0, false
}

// busyAt finds the busy range that meets a page.
func (d *Detours) busyAt(page arch.Addr) (arch.Range, bool) {
	if i := meeting(d.busy, page, page+d.page); i >= 0 {
		return d.busy[i], true
	}
	return arch.Range{}, false
}

// takeStub gives a stub's place out, and makes its pages ours.
func (d *Detours) takeStub(at arch.Addr) {
	i, _ := slices.BinarySearch(d.stubs, at)
	d.stubs = slices.Insert(d.stubs, i, at)
	for _, a := range []arch.Addr{at, at + arch.Addr(d.m.JumpForm().Len()) - 1} {
		page := a &^ (d.page - 1)
		if !d.pages[page] {
			d.pages[page] = true
			d.busy = give(d.busy, arch.Range{Start: page, End: page + d.page})
		}
	}
}

func (d *Detours) dropStub(at arch.Addr) {
	if i, ok := slices.BinarySearch(d.stubs, at); ok {
		d.stubs = slices.Delete(d.stubs, i, i+1)
	}
}
