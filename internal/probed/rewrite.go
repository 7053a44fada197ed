package probed

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/inside"
	"kprobe/internal/text"
)

// rearming is what brings the text at some points to what it should be.
type rearming struct {
	*text.Rewrite
	pts List
}

// rearming plans to bring the text at points to what it will have to be.
func (o *Outlook) rearming(pts List) *rearming {
	cs := make([]text.Change, len(pts))
	for i, pt := range pts {
		cs[i] = text.Change{Place: &pt.Place, From: pt.Text, To: o.Wanted(pt)}
		if cs[i].To == text.Jump {
			cs[i].First = o.first(pt)
		}
	}
	if o.unlisted {
		return &rearming{o.Text.PlanUnlisted(cs), pts}
	}
	return &rearming{o.Text.Plan(cs, func(yield func(*text.Place, bool) bool) {
		for _, pt := range o.Points {
			place := &pt.Place
			if first := o.first(pt); first != nil {
				place = place.With(first)
			}
			if !yield(place, o.told(pt)) {
				return
			}
		}
	}), pts}
}

// Rearm brings the text at some points to what it should be, all or none. The target is
// frozen. Errors: those of text.Rewrite.
func (t *Table) Rearm(pts List) error {
	return t.carryOutAll(t.Present().rearming(pts))
}

// carryOutAll is all of it in the stop.
func (t *Table) carryOutAll(r *rearming) error {
	if r.HasAhead() {
		if err := r.Ahead(); err != nil {
			return err
		}
	}
	return t.carryOut(r)
}

// RearmSingly is Rearm one by one, as far as that goes.
func (t *Table) RearmSingly(pts List) (err error) {
	for _, pt := range pts {
		err = errors.Join(err, t.Rearm(List{pt}))
	}
	return err
}

// carryOut is the rest, in the stop. Where texts have changed since it was planned (they give
// way when others rewrite them), it is planned anew.
func (t *Table) carryOut(r *rearming) error {
	if r.Stale() {
		return t.Rearm(r.pts)
	}
	jumps := slices.DeleteFunc(slices.Clone(r.pts), func(pt *Point) bool { return pt.Text != text.Jump })
	if err := r.CarryOut(); err != nil {
		return err
	}
	for _, pt := range r.pts { // what is away comes again after a look at who stands there
		pt.Optimized.Store(pt.Text == text.Jump)
		pt.Led.Store(pt.Text == text.Trap)
	}
	jumps = slices.DeleteFunc(jumps, func(pt *Point) bool { return pt.Text == text.Jump })
	if len(jumps) > 0 {
		t.rules.Taken(jumps)
	}
	return nil
}

// Rewriting is the text's part of a change.
type Rewriting struct {
	Table    *Table
	As       func() *Outlook // what is planned ahead; nil: in the stop, as things are when all else is committed
	Points   func() List     // where the text may change
	Singly   bool            // where not all can be changed, one by one, as far as that goes: Left says how far
	Left     error
	Report   func(error)
	Unlisted bool // ours only goes, and a later piece of the removal tells the lifeline: see text.Writer.PlanUnlisted

	r    *rearming
	late bool // it was planned in the stop
}

// Ahead is change.Text's.
func (w *Rewriting) Ahead(t change.Target) (err error) {
	w.r, w.late = nil, false
	if w.As == nil {
		return nil
	}
	as := w.As()
	as.unlisted = w.Unlisted
	w.r = as.rearming(w.Points())
	if w.r.HasAhead() {
		err = t.Meanwhile(w.r.Ahead)
	}
	if err != nil && w.Singly {
		w.r, err = nil, nil // then all of it in the stop
	}
	return err
}

// Anew has the text be planned in the stop after all, as an outlook says.
func (w *Rewriting) Anew(as *Outlook) {
	w.r = as.rearming(w.Points())
	w.late = true
}

// Refuse has traps stand, in the stop, where jumps to some detours were planned.
func (w *Rewriting) Refuse(busy map[*inside.Detour]bool) {
	if w.r == nil || len(busy) == 0 {
		return
	}
	to := make(map[*text.Place]text.Kind, len(busy))
	for _, c := range w.r.Changes() {
		d := c.First
		if d == nil {
			d = c.Place.Detour
		}
		if c.To == text.Jump && busy[d] {
			to[c.Place] = w.Table.Text.Armed()
		}
	}
	w.r.Instead(to)
}

// Firsts are, in order, the detours of the jumps that are planned together with them.
func (w *Rewriting) Firsts() (ds []*inside.Detour) {
	if w.r == nil {
		return nil
	}
	for _, c := range w.r.Changes() {
		if c.First != nil {
			ds = append(ds, c.First)
		}
	}
	return ds
}

// Commit is change.Text's.
func (w *Rewriting) Commit() (err error) {
	switch {
	case w.late:
		err = w.Table.carryOutAll(w.r)
	case w.r != nil:
		err = w.Table.carryOut(w.r)
	case !w.Singly:
		err = w.Table.Rearm(w.Points())
	}
	if w.Singly && (w.r == nil || err != nil) {
		// Somebody else changed a byte of ours. The rest is still put back, and the foreign
		// byte stays as it is.
		w.Left, err = w.Table.RearmSingly(w.Points()), nil
	}
	return err
}

// Undo has the lifeline know what there is again, too: what was planned is about to be unmapped. Code that the program has unmapped
// meanwhile stays as it is.
func (w *Rewriting) Undo() {
	w.Table.Text.Unnoted()
	live := slices.DeleteFunc(w.Points(), func(pt *Point) bool { return !pt.Live })
	err := w.Table.Rearm(live)
	if !errors.Is(err, syscall.EFAULT) {
		w.Report(err)
		return
	}
	for _, pt := range live {
		if err := w.Table.Rearm(List{pt}); !errors.Is(err, syscall.EFAULT) {
			w.Report(err)
		}
	}
}

// Writes is change.Text's: where the program's own text is written over.
func (w *Rewriting) Writes() (rs []arch.Range) {
	for _, pt := range w.Points() {
		if pt.Text == text.Own {
			rs = append(rs, arch.Range{Start: pt.Addr, End: pt.Addr + arch.Addr(len(pt.Site.Original))})
		}
	}
	return rs
}

// Lines is change.Text's.
func (w *Rewriting) Lines() (ls []string) {
	if w.r == nil {
		return nil
	}
	for _, c := range w.r.Changes() {
		ls = append(ls, fmt.Sprintf("%v %v -> %v", c.Place.Addr, c.From, c.To))
	}
	return ls
}
