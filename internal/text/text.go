// Package text changes a program's code at the places that are probed, all or none, and keeps the
// lifeline that knows of it, should this controller die.
//
//	text.go      the kinds of text that may stand at a place
//	rewrite.go   how text is changed
//	lifeline.go  keeps the target alive if no controller is left to serve its traps
//
// The caller says which text should stand where.
package text

import (
	"bytes"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/lifeline"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// Kind is the kind of text in the program's code at a place.
type Kind uint8

const (
	Own    Kind = iota // the program's own bytes
	Trap               // the breakpoint: the place is armed
	Beside             // the program's own, and a breakpoint that the target keeps beside them
	Jump               // a jump to the place's detour: it is optimized
)

// String is the kind's name.
func (k Kind) String() string { return [...]string{"own", "trap", "beside", "jump"}[k] }

// Place is one probed instruction.
type Place struct {
	Addr   arch.Addr
	Site   *patch.Site
	Module *symbol.Module // that the instruction is of; nil: of none that is known
	Detour *inside.Detour // where programs run; nil: no probe has one
	Text   Kind           // the text there now
}

// over are the bytes that stand over the program's own, and where they begin.
func (p *Place) over(k Kind) (arch.Addr, []byte) {
	switch k {
	case Trap:
		return p.Addr, p.Site.Break
	case Jump:
		if p.Detour != nil {
			return p.Detour.Jump.Addr, p.Detour.Jump.New
		}
	}
	return p.Addr, nil
}

// own is the program's code, as far as anything of ours stands over it, and where it begins.
func (p *Place) own() (arch.Addr, []byte) {
	if p.Detour != nil && len(p.Detour.Jump.Old) > len(p.Site.Original) {
		return p.Detour.Jump.Addr, p.Detour.Jump.Old
	}
	return p.Addr, p.Site.Original
}

// hidden are n of the program's own bytes.
func (p *Place) hidden(at arch.Addr, n int) []byte {
	start, code := p.own()
	return code[at-start:][:n]
}

// Stands is our text at the place, over the program's own bytes.
func (p *Place) Stands() patch.Write {
	at, ours := p.over(p.Text)
	return patch.Write{Addr: at, Old: p.hidden(at, len(ours)), New: ours}
}

// Entries are the facts that a lifeline has to know of the place: the trap, and the other bytes
// that come with a jump. In the jump there may be traps where instructions began: a thread that
// comes to the middle of it meets one.
func (p *Place) Entries() []lifeline.Entry { return p.entries(nil) }

// Count counts them.
func (p *Place) Count() int {
	var room [4]lifeline.Entry
	return len(p.entries(room[:0]))
}

// entries adds them to others: a list has those of all places, and is made anew with every batch.
func (p *Place) entries(es []lifeline.Entry) []lifeline.Entry {
	if p.Site.Boost == nil {
		return es
	}
	note := func(at, slot arch.Addr, n int) {
		e := lifeline.Entry{Addr: at, Slot: slot}
		e.Len = byte(copy(e.Original[:], p.hidden(at, n)))
		es = append(es, e)
	}
	at, jump := p.over(Jump)
	trap := len(p.Site.Break)
	if len(jump) > 0 {
		at += arch.Addr(p.Detour.Way.JumpAt())
		jump = jump[p.Detour.Way.JumpAt():]
	}
	if at == p.Addr {
		trap = max(trap, len(jump))
	}
	note(p.Addr, p.Site.Boost.Addr, trap)
	if len(jump) == 0 {
		return es
	}
	if p.Detour.Way.JumpAt() > 0 {
		if to, ok := p.Detour.Copy(at); ok {
			note(at, to, len(jump))
		}
		return es
	}
	if at != p.Addr {
		if to, ok := p.Detour.Copy(at); ok {
			note(at, to, p.Detour.Way.Own)
		}
	}
	for _, off := range p.Detour.Way.Inner {
		to, ok := p.Detour.Copy(at + arch.Addr(off))
		if ok && off < len(jump) && bytes.HasPrefix(jump[off:], p.Site.Break) {
			note(at+arch.Addr(off), to, 0)
		}
	}
	return es
}

// Change is a change of the text at a place.
type Change struct {
	Place    *Place
	From, To Kind
	First    *inside.Detour // where the jump leads, if it comes together with the place's first detour
}

// after is the place with the detour that it has then.
func (c Change) after() *Place {
	if c.First == nil {
		return c.Place
	}
	return c.Place.With(c.First)
}

// With is the place, in its own right, with a detour.
func (p *Place) With(d *inside.Detour) *Place {
	with := *p
	with.Detour = d
	return &with
}

// write is the write that makes one text another.
func (c Change) write() patch.Write {
	p := c.after()
	have, old := p.over(c.From)
	want, new := p.over(c.To)
	start := min(have, want)
	n := int(max(have+arch.Addr(len(old)), want+arch.Addr(len(new))) - start)
	whole := func(at arch.Addr, b []byte) []byte {
		all := slices.Clone(p.hidden(start, n))
		copy(all[at-start:], b)
		return all
	}
	return patch.Write{Addr: start, Old: whole(have, old), New: whole(want, new)}
}
