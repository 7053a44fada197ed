package probed

import (
	"cmp"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/text"
)

// Rules say what a table must know of the target.
type Rules interface {
	Forbidden(arch.Addr) bool // it must not be probed
	OnCPUs() bool             // threads are CPUs: a trap can be led to its detour with no stop,
	Gateless() string         // or why not; "" where it can

	// Taken is told of jumps that have just been taken out of the frozen target's text, and Renewed
	// of a point that has handlers outside the frozen target now, and had none.
	Taken(List)
	Renewed(*Point)
}

// Table are the points of one target. What it has is changed by the owner thread with the
// session's view held.
type Table struct {
	List
	Text        *text.Writer // what stands at them
	Disarmed    bool         // the global switch is off
	Unoptimized bool         // the switch of optimization is off
	rules       Rules
}

// NewTable has no points yet.
func NewTable(w *text.Writer, r Rules) *Table { return &Table{Text: w, rules: r} }

// Refresh derives what the hit path asks of a point's probes.
func (t *Table) Refresh(pt *Point) {
	outer := slices.ContainsFunc(pt.Probes, t.outer)
	if outer && !pt.Outer {
		t.rules.Renewed(pt)
	}
	pt.Outer = outer
	pt.Post = slices.ContainsFunc(pt.Probes, func(p *Probe) bool { return p.Active() && p.Post() })
}

// outer tells whether a probe has a handler that runs outside the target.
func (t *Table) outer(p *Probe) bool { return p.Active() && !p.Inside() }

// Inside are those of some probes that run inside the target now.
func (t *Table) Inside(ps []*Probe) []*Probe {
	return slices.DeleteFunc(slices.Clone(ps), func(p *Probe) bool { return !p.Active() || !p.Inside() })
}

// Outlook is how things will be after a change that is being planned: which points
// there will be, and what differs at some of them.
type Outlook struct {
	*Table
	Points List
	Probes map[*Point][]*Probe // else as they are
	Off    map[*Probe]bool     // which of them are off; else as they are
	Stays  func(*Point) bool   // whether what may stand there may still; nil: everywhere
	Hope   func(*Point) bool   // whether what can stand there may, though nobody has looked yet; nil: nowhere
	Comes  func(*Point) bool   // whether a later piece has something of ours stand at one; nil: nowhere
	// First is the detour that a point will have which has none; nil for none.
	First func(*Point) *inside.Detour

	unlisted bool // see Rewriting
}

// Present is the outlook of no change.
func (t *Table) Present() *Outlook { return &Outlook{Table: t, Points: t.List} }

func (o *Outlook) probesOf(pt *Point) []*Probe {
	if ps, ok := o.Probes[pt]; ok {
		return ps
	}
	return pt.Probes
}

// due tells whether anything of ours is to stand at a point.
func (o *Outlook) due(pt *Point) bool {
	return pt.Notify || !o.Disarmed && slices.ContainsFunc(o.probesOf(pt), o.active)
}

func (o *Outlook) active(p *Probe) bool { return p.ActiveWith(o.Off) }

// told tells whether the lifeline is to know of a point.
func (o *Outlook) told(pt *Point) bool { return o.due(pt) || o.Comes != nil && o.Comes(pt) }

// Wanted tells what.
func (o *Outlook) Wanted(pt *Point) text.Kind {
	may := func(now bool) bool { return o.hopes(pt) || now && (o.Stays == nil || o.Stays(pt)) }
	switch {
	case !o.due(pt):
		return text.Own
	case may(pt.Optimized.Load()) && o.optimizable(pt) == "":
		return text.Jump
	case may(pt.Led.Load()) && o.Leadable(pt):
		return text.Trap
	}
	return o.Text.Armed()
}

func (o *Outlook) hopes(pt *Point) bool { return o.Hope != nil && o.Hope(pt) }

// first is the detour that comes to a point which has none; nil for none.
func (o *Outlook) first(pt *Point) *inside.Detour {
	if pt.Detour != nil || o.First == nil {
		return nil
	}
	return o.First(pt)
}

// detour is the one that a point has then.
func (o *Outlook) detour(pt *Point) *inside.Detour {
	if first := o.first(pt); first != nil {
		return first
	}
	return pt.Detour
}

// optimizable says why a point keeps its trap; "" for one that may have a jump.
func (o *Outlook) optimizable(pt *Point) string {
	d := o.detour(pt)
	switch {
	case pt.Notify:
		return "it is ours"
	case d == nil:
		return "its handlers run outside the target"
	case o.Unoptimized:
		return "optimization is off"
	case !d.Optimizable():
		return cmp.Or(d.Reason, "the code around it is not known")
	}
	if o.outside(pt) {
		return "a handler runs outside the target"
	}
	span := d.Span
	if len(o.Points.Within(span.Start, pt.Addr))+len(o.Points.Within(pt.Addr+1, span.End)) > 0 {
		return "another probe is in the way"
	}
	for a := span.Start; a < span.End; a++ {
		if a != pt.Addr && o.rules.Forbidden(a) {
			return "the jump would cover what must not be probed"
		}
	}
	return ""
}

// outside tells whether one of a point's probes has a handler that runs outside the target.
func (o *Outlook) outside(pt *Point) bool {
	return slices.ContainsFunc(o.probesOf(pt), func(p *Probe) bool { return o.active(p) && !p.Inside() })
}

// Leadable tells whether a point may be a trap that is led to its detour.
func (o *Outlook) Leadable(pt *Point) bool {
	return o.rules.OnCPUs() && pt.Detour != nil && !pt.Notify && !o.outside(pt) && (!o.hopes(pt) || o.rules.Gateless() == "")
}
