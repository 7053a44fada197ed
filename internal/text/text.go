// Package text is what stands in a program's code at the places that are probed: how it
// is changed, all or none, and the lifeline that knows of it, should this controller die.
//
//	text.go      what may stand at a place
//	rewrite.go   how that is changed
//	lifeline.go  what keeps the target alive if nobody is left to serve its traps
//
// What should stand where is the caller's to say.
package text

import (
	"bytes"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/lifeline"
	"kprobe/internal/patch"
)

// Kind is what stands in the program's code at a place.
type Kind uint8

const (
	Own    Kind = iota // the program's own bytes
	Trap               // the breakpoint: the place is armed
	Beside             // the program's own, and a breakpoint that the target keeps beside them
	Jump               // a jump to the place's detour: it is optimized
)

// Place is one probed instruction.
type Place struct {
	Addr   arch.Addr
	Site   *patch.Site
	Detour *inside.Detour // where programs run; nil: no probe has one
	Text   Kind           // what stands there
}

// over are the bytes that stand over the program's own.
func (p *Place) over(k Kind) []byte {
	switch k {
	case Trap:
		return p.Site.Break
	case Jump:
		if p.Detour != nil {
			return p.Detour.Jump.New
		}
	}
	return nil
}

// own is the program's code from the place on, as far as anything of ours
// stands over it.
func (p *Place) own() []byte {
	if p.Detour != nil && len(p.Detour.Jump.Old) > len(p.Site.Original) {
		return p.Detour.Jump.Old
	}
	return p.Site.Original
}

// Ours are the bytes of ours that stand there.
func (p *Place) Ours() []byte { return p.over(p.Text) }

// Hidden are the program's own bytes that those stand over.
func (p *Place) Hidden() []byte { return p.own()[:len(p.Ours())] }

// Guards are the traps that the place's jump holds where instructions began: those in
// which a thread would be that comes to the middle of it.
func (p *Place) Guards() (es []lifeline.Entry) {
	if p.Detour == nil || !p.Detour.Optimizable() {
		return nil
	}
	for _, off := range p.Detour.Way.Inner {
		at := p.Addr + arch.Addr(off)
		if to, ok := p.Detour.Copy(at); ok && off < len(p.Detour.Jump.New) && bytes.HasPrefix(p.Detour.Jump.New[off:], p.Site.Break) {
			es = append(es, lifeline.Entry{Addr: at, Slot: to})
		}
	}
	return es
}

// Change is a change of the text at a place.
type Change struct {
	Place    *Place
	From, To Kind
}

// write is what makes one text another.
func (c Change) write() patch.Write {
	p := c.Place
	have, want := p.over(c.From), p.over(c.To)
	n := max(len(have), len(want))
	whole := func(b []byte) []byte {
		switch len(b) {
		case 0:
			return p.own()[:n]
		case n:
			return b
		}
		return slices.Concat(b, p.own()[len(b):n])
	}
	return patch.Write{Addr: p.Addr, Old: whole(have), New: whole(want)}
}
