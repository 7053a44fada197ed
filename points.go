package kprobe

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/calls"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/target"
)

// The points of a session.
type (
	point     = probed.Point[*Kprobe]
	pointList = probed.List[*Kprobe]
)

// rules are what the points must know of probes and of the target.
type rules struct{ s *Session }

func (r rules) Taken(jumps pointList) { r.s.threads.TakenOff(jumps) }
func (r rules) Renewed(pt *point)     { r.s.threads.Renew(pt) }

func (rules) Active(p *Kprobe) bool { return p.active() }
func (rules) Inside(p *Kprobe) bool { return p.runsInside() }
func (rules) Post(p *Kprobe) bool   { return p.PostHandler != nil }

func (r rules) Forbidden(a arch.Addr) bool { _, bad := r.s.on.Image.Forbidden(a); return bad }
func (r rules) OnCPUs() bool               { return r.s.on.Kind.OnCPUs() }
func (r rules) Gateless() string           { return r.s.optimizer.Gateless() }

func (rules) Point(p *Kprobe) *point                         { return p.point }
func (rules) Tally(p *Kprobe, d *inside.Detour) inside.Tally { return p.as().tally(d) }
func (rules) Fold(p *Kprobe, d *inside.Detour)               { p.as().fold(p, d) }

func (rules) Account(p *Kprobe) *inside.Owner {
	if rp := p.as().returns(); rp != nil {
		return rp.owner
	}
	return nil
}

func (rules) Unwound(p *Kprobe) {
	if p.swaps() {
		p.as().returns().watch.Lose(calls.Unwound, 1)
	}
}

func (r rules) Comm(th target.Thread) string { return r.s.Comm(int(th)) }
func (r rules) Doubted()                     { r.s.optimize() }

func (rules) Want(w *inside.Want, p *Kprobe, entry arch.Addr) error { return p.as().want(w, p, entry) }
func (rules) Named(p *Kprobe, err error) error                      { return named(p, err) }

// Misses: what only counts hits misses none of its own.
func (rules) Misses(p *Kprobe) bool {
	program, _ := p.as().work(p)
	return program != CountOnly || p.as().returns() != nil
}

func (rules) Trails(p *Kprobe) bool     { return p.as().trails() }
func (rules) Swaps(p *Kprobe) bool      { return p.swaps() }
func (rules) Gone(p *Kprobe, gone bool) { p.gone.Store(gone) }
func (rules) Line(p *Kprobe) string     { return fmt.Sprintf("%c %s", p.as().letter(), p.SymbolName) }

func (hs handlers) Cramped(ds []*inside.Detour) {
	hs.s.changing(func() { hs.s.report(hs.s.links.LeaveCramped(ds)); hs.s.listChanged() })
}

func (r rules) Linked(p *Kprobe, pt *point) {
	p.as().linked(r.s, pt)
	p.point, p.given, p.placed, p.Addr = pt, p.Addr, true, pt.Addr
}

func (r rules) Unlinked(p *Kprobe) {
	p.as().unlinked(r.s)
	p.unplace()
}

// ReadMem reads the target's memory as the program wrote it: where probes have
// put breakpoints, the original bytes are seen. Errors: EFAULT.
func (s *Session) ReadMem(addr arch.Addr, p []byte) error { return s.on.Read(addr, p) }
