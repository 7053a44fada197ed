package links

import (
	"cmp"
	"slices"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/probed"
)

// A change of very many probes is several changes, one after the other, and the target runs in between. So no
// stop grows with the batch. What belongs to a function stays together: the entry of a return probe and its
// exits, and detours that run what is beside them.

// pieces cuts probes, which are at their points, by the address of their functions. A piece has change.AtOnce of
// them at most, but for a function that has more. Those that are at no point are in the first one.
func (l *Links) pieces(ps []*probed.Probe, at func(*probed.Probe) *probed.Point) (pieces [][]*probed.Probe) {
	if len(ps) <= change.AtOnce {
		return [][]*probed.Probe{ps}
	}
	functions := make(map[arch.Addr][]*probed.Probe)
	var starts []arch.Addr
	for _, p := range ps {
		start := arch.Addr(0)
		if pt := cmp.Or(at(p.Entry()), at(p)); pt != nil {
			start = pt.Addr - arch.Addr(pt.Loc.Off)
		}
		if functions[start] == nil {
			starts = append(starts, start)
		}
		functions[start] = append(functions[start], p)
	}
	slices.Sort(starts)
	var piece []*probed.Probe
	for _, start := range starts {
		more := functions[start]
		if len(piece) > 0 && len(piece)+len(more) > change.AtOnce {
			pieces, piece = append(pieces, piece), nil
		}
		piece = append(piece, more...)
	}
	return append(pieces, piece)
}

// pieces cuts a batch. A fresh point comes with the first of its probes, or with the first piece.
func (b *Batch) pieces() []*Batch {
	cut := b.l.pieces(b.Probes, b.At)
	if len(cut) == 1 {
		return []*Batch{b}
	}
	pieces := make([]*Batch, len(cut))
	comes := make(map[*probed.Point]*Batch, len(b.fresh))
	for i, ps := range cut {
		pieces[i] = b.l.Batch()
		for _, p := range ps {
			pt := b.at[p]
			pieces[i].Add(p, pt)
			if comes[pt] == nil {
				comes[pt] = pieces[i]
			}
		}
	}
	for _, pt := range b.fresh {
		piece := cmp.Or(comes[pt], pieces[0])
		piece.fresh = append(piece.fresh, pt)
		piece.byAddr[pt.Addr] = pt
	}
	return pieces
}
