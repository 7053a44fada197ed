package room

import (
	"iter"
	"slices"

	"kprobe/arch"
	"kprobe/internal/patch"
)

// arenaSize is the number of bytes that are mapped at a time, unless more is needed at once.
const arenaSize = 256 << 10

// granule is the alignment of slots, by which an index finds them.
const granule = 16

// Arena is a range of slots in the target, with an index from address to slot.
type Arena[P any] struct {
	*patch.Arena
	refs   []*piece[P] // of the index, nil where no slot is
	slot   int
	mapped bool
}

// piece is the index of some granules of an arena, which is made when the first of their slots is:
// most arenas have few.
type piece[P any] [pieceSize]Ref[P]

const pieceSize = 256

// Ref is a slot, the instruction that runs in it, and the slot's owner.
type Ref[P any] struct {
	Of   P
	Site *patch.Site
	Slot *patch.Slot
}

func (a *Arena[P]) span() arch.Range {
	return arch.Range{Start: a.Addr, End: a.Addr + arch.Addr(a.Size)}
}

// Take finds room for one slot near a range, planning a new arena where there is none:
// for so many more at once. Errors: as Find.
func (r *Room[P]) Take(near arch.Range, more int) (*Arena[P], arch.Addr, error) {
	for _, a := range slices.Concat(r.arenas, r.planned) {
		if !a.Near(near, r.reach) {
			continue
		}
		if at, ok := a.Take(r.slot); ok {
			return a, at, nil
		}
	}
	n := r.Round(max(arenaSize, more*r.slot))
	at, err := r.Find(near, n)
	if err != nil {
		return nil, 0, err
	}
	a := &Arena[P]{Arena: patch.NewArena(at, n), refs: make([]*piece[P], (n/granule+pieceSize-1)/pieceSize), slot: r.slot}
	r.planned = append(r.planned, a)
	slot, _ := a.Take(r.slot)
	return a, slot, nil
}

// Give takes a slot's room back.
func (a *Arena[P]) Give(at arch.Addr) {
	for ref := range a.granules(at, a.slot, false) {
		*ref = Ref[P]{}
	}
	a.Release(at, a.slot)
}

// Enter has At find a slot.
func (a *Arena[P]) Enter(ref Ref[P]) {
	for to := range a.granules(ref.Slot.Addr, len(ref.Slot.Code), true) {
		*to = ref
	}
}

// granules are the entries of the index that size bytes at an address have, those that there are
// or, made, all.
func (a *Arena[P]) granules(at arch.Addr, size int, made bool) iter.Seq[*Ref[P]] {
	return func(yield func(*Ref[P]) bool) {
		first := int(at-a.Addr) / granule
		for g := first; g < first+(size+granule-1)/granule; g++ {
			p := &a.refs[g/pieceSize]
			if *p == nil && made {
				*p = new(piece[P])
			}
			if *p != nil && !yield(&(*p)[g%pieceSize]) {
				return
			}
		}
	}
}

// At finds the slot that a PC is in. The address just past a slot's trap
// belongs to it: that is where the PC stands when the trap is reported.
func (r *Room[P]) At(pc arch.Addr) (Ref[P], bool) {
	for _, a := range r.arenas {
		if a.Contains(pc) {
			g := int(pc-a.Addr) / granule
			p := a.refs[g/pieceSize]
			if p == nil {
				return Ref[P]{}, false
			}
			ref := p[g%pieceSize]
			return ref, ref.Slot != nil && pc < ref.Slot.Addr+arch.Addr(len(ref.Slot.Code))
		}
	}
	return Ref[P]{}, false
}

// AtBreak tells whether a PC is at the trap behind the instruction.
func (r Ref[P]) AtBreak(pc arch.Addr) bool {
	return r.Slot.BreakAt >= 0 && pc == r.Slot.Addr+arch.Addr(r.Slot.BreakAt)
}

// Again tells of a PC in a slot that the last access was no other than one before
// it: the return address of a call is pushed in two parts.
func (r Ref[P]) Again(pc arch.Addr) bool {
	m := r.Slot.Marks
	return len(m) > 1 && pc > r.Slot.Addr+arch.Addr(m[1].Off)
}

// Leave changes registers from a place in a slot to the same state in the
// program. It answers whether the probed instruction has been executed.
func (r Ref[P]) Leave(a *arch.Arch, regs *arch.Regs) (executed bool) {
	pc := regs.Addr(a.PC)
	m, ok := r.Slot.Mark(pc)
	if !ok {
		return true // between instructions only; a thread cannot stand elsewhere
	}
	regs[a.PC] = uint64(m.PC)
	regs[a.SP] += uint64(m.SP)
	if m.HasLink && regs.Addr(m.Link) == pc {
		regs[m.Link] = uint64(m.PC)
	}
	return m.PC != r.Site.Addr
}
