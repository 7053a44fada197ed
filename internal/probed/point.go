// Package probed has the points of a program that are probed, in order of address, and says what
// is to stand in the text at each: now, and after a change that is being planned. It knows
// of probes what their roles tell.
//
//	probe.go    probes, as the engine has them
//	point.go    points, and where they are looked up
//	outlook.go  what should stand at them
//	rewrite.go  how the text is brought to that
package probed

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync/atomic"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/patch"
	"kprobe/internal/room"
	"kprobe/internal/text"
	"kprobe/symbol"
)

// Point is one probed address and all the probes on it (the kernel's aggregate). It
// belongs to the owner thread once it is in a table.
type Point struct {
	text.Place
	Loc    symbol.Loc
	Probes []*Probe // newest first; replaced, never changed in place
	Post   bool     // an active probe has a post-handler
	Outer  bool     // an active probe runs outside the target
	Live   bool     // in the table
	Notify bool     // internal: the dynamic linker's notification, or
	Asks   bool     // the function that programs ask for a tracer with
	Pinned string   // why the instruction must run where it stands; "" where it need not

	Crowded   bool        // somebody else's text was in what a jump would displace
	Optimized atomic.Bool // the jump to the detour may stand there; changed in the stops, also while somebody plans
	Refused   bool        // and was not possible the last time
	Led       atomic.Bool // a trap that the gate leads to the detour may; likewise
	Slots     room.Slots[*Point]
}

// Unready tells that neither the jump nor the trap that is led may stand there, until somebody has
// looked.
func (pt *Point) Unready() {
	pt.Optimized.Store(false)
	pt.Led.Store(false)
}

// Displaced is what the point's detour has a copy of, be the jump there or not.
func (pt *Point) Displaced() (at arch.Addr, code []byte) {
	if d := pt.Detour; d != nil && d.Way != nil {
		return d.Span.Start, d.Jump.Old
	}
	return pt.Addr, pt.Site.Original
}

// ByAddr is the order that points are kept in: what goes through all of them
// while the target stands still needs no sorting.
func ByAddr(a, b *Point) int { return cmp.Compare(a.Addr, b.Addr) }

// List are points in order of address. The slice is replaced, never changed in place: what
// takes the place of another is made ready while the target runs.
type List []*Point

// from is the index of the first one that is not below an address.
func (ps List) from(addr arch.Addr) int {
	i, _ := slices.BinarySearchFunc(ps, addr, func(pt *Point, a arch.Addr) int { return cmp.Compare(pt.Addr, a) })
	return i
}

// Probes are the probes on them.
func (ps List) Probes() (all []*Probe) {
	for _, pt := range ps {
		all = append(all, pt.Probes...)
	}
	return all
}

// At is the one at an address, nil for none.
func (ps List) At(addr arch.Addr) *Point {
	if i := ps.from(addr); i < len(ps) && ps[i].Addr == addr {
		return ps[i]
	}
	return nil
}

// Within are those from one address on and below another.
func (ps List) Within(lo, hi arch.Addr) List {
	if hi < lo {
		return nil
	}
	return ps[ps.from(lo):ps.from(hi)]
}

// longest is the most that may stand over the program's own bytes at a point, and ahead of it, or
// depend on them.
const longest = patch.LongestSpan

// Around are those whose text may concern an address.
func (ps List) Around(addr arch.Addr, n int) List {
	return ps.Within(addr-min(addr, longest), addr+arch.Addr(n)+longest)
}

// Covering are the points whose jumps depend on the bytes at an address.
func (ps List) Covering(addr arch.Addr) (all List) {
	for _, pt := range ps.Around(addr, 0) {
		if pt.Text == text.Jump && pt.Detour.Under(addr) {
			all = append(all, pt)
		}
	}
	return all
}

// Strayed finds where a thread goes on that came to the middle of a jump: by a
// branch that nobody knew of, or back from a signal handler.
func (ps List) Strayed(pc arch.Addr) (arch.Addr, bool) {
	for _, pt := range ps.Covering(pc) {
		if to, ok := pt.Detour.Copy(pc); ok {
			return to, true
		}
	}
	return 0, false
}

// Ahead tells whether the jump of a point behind an address, ahead of the point, depends on what
// stands there. Points that change are not asked: they are planned later, and keep out of the way.
func (ps List) Ahead(a arch.Addr, changes func(*Point) bool) bool {
	return slices.ContainsFunc(ps.Within(a+1, a+longest), func(n *Point) bool {
		return n.Detour != nil && n.Detour.Ahead() && a >= n.Detour.Span.Start && !changes(n)
	})
}

// Reaches tells whether the jump of a point in front of pt depends on what stands from an
// address on, which is in front of pt too: as it is, or of those that change as it was planned.
func (ps List) Reaches(pt, from arch.Addr, planned []*inside.Detour, changes func(*Point) bool) bool {
	lo := from - min(from, longest)
	for _, n := range slices.Backward(planned) {
		if n.Site < lo {
			break
		}
		if n.Span.End > from {
			return true
		}
	}
	return slices.ContainsFunc(ps.Within(lo, pt), func(n *Point) bool {
		return n.Detour != nil && n.Detour.Span.End > from && !changes(n)
	})
}

// Hiding are the points whose detours run the instruction at an address.
func (ps List) Hiding(addr arch.Addr) (all List) {
	for _, n := range ps.Within(addr-min(addr, inside.Around), addr+inside.Around) {
		if n.Detour != nil && n.Detour.Hides(addr) {
			all = append(all, n)
		}
	}
	return all
}

// Overlay puts the program's own bytes over those that were read from an address on.
func (ps List) Overlay(addr arch.Addr, p []byte) {
	for _, pt := range ps.Around(addr, len(p)) {
		w := pt.Stands()
		patch.Overlay(p, addr, w.Addr, w.Old)
	}
}

// RestoreIn puts the program's own bytes back in a copy of its memory, as far as ours are there.
func (ps List) RestoreIn(m arch.Memory) (err error) {
	for _, pt := range ps {
		w := pt.Stands()
		have := make([]byte, len(w.New))
		if pt.Text != text.Own && m.ReadAt(w.Addr, have) == nil && bytes.Equal(have, w.New) {
			err = errors.Join(err, m.WriteAt(w.Addr, w.Old))
		}
	}
	return err
}

// Entries counts what a lifeline may have to know of points; each may have a second trap, at the end of a
// slot, and traps in place of the slot's jumps.
func (ps List) Entries() (n int) {
	for _, pt := range ps {
		n += 2 + Entries(&pt.Place)
		if pt.Site.Boost != nil {
			n += len(pt.Site.Boost.Exits)
		}
	}
	return n
}

// Entries counts what a lifeline may have to know of a place. Where no jump leads to a detour now, one
// may when probes beside it have gone: with a trap for each inner byte, and one that it is ahead of.
func Entries(p *text.Place) int {
	const most = 6
	if p.Detour != nil && !p.Detour.Optimizable() {
		return most
	}
	return p.Count()
}

// Live are those that are still.
func (ps List) Live() List {
	return slices.DeleteFunc(slices.Clone(ps), func(pt *Point) bool { return !pt.Live })
}

// With are these points and more, each once, in order.
func (ps List) With(more ...*Point) List {
	all := append(slices.Clone(ps), more...)
	slices.SortFunc(all, ByAddr)
	return slices.Compact(all)
}
