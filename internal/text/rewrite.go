package text

import (
	"bytes"
	"errors"
	"iter"
	"slices"
	"sync"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/inside"
	"kprobe/internal/lifeline"
	"kprobe/internal/mem"
	"kprobe/internal/patch"
	"kprobe/symbol"
	"kprobe/target"
)

// Writer changes the text of a target.
type Writer struct {
	t      target.Target
	beside target.Breaker // nil: probes are written into the target's memory
	view   sync.Locker    // is held while a Place's Text changes
	report func(error)

	// Gate leads traps to detours with no stop; nil: each trap stops its thread, and leads nowhere.
	Gate Gate

	Lifeline Lifeline
	unnoted  bool
	written  map[arch.Addr]bool // pages of text
}

// Gate is told which traps stand in the text, while the target is frozen: of one before it is
// written, and when it has been taken out.
type Gate interface {
	LeadTrap(*inside.Detour) bool // false: there is no room
	LeaveTrap(at arch.Addr)
}

// NewWriter makes the writer of a target that has only its own text yet. view is locked for every
// change of a place's state. beside keeps breakpoints if memory is not to be written. report gets
// errors that no call can return.
func NewWriter(t target.Target, beside target.Breaker, view sync.Locker, report func(error)) *Writer {
	return &Writer{t: t, beside: beside, view: view, report: report, Lifeline: newLifeline(t, report), written: make(map[arch.Addr]bool)}
}

// Unnoted tells that the lifeline's list is out of date, whatever changes next: there are
// other detours than it knows of.
func (w *Writer) Unnoted() { w.unnoted = true }

// Written are the pages of text that have been written to, as they are now or were before.
func (w *Writer) Written() (rs []arch.Range) {
	for at := range w.written {
		rs = append(rs, arch.Range{Start: at, End: at + mem.LeastPage})
	}
	return rs
}

// Armed is the kind of text at a place that waits for its threads.
func (w *Writer) Armed() Kind {
	if w.beside != nil {
		return Beside
	}
	return Trap
}

// Rewrite is a change of the text at places: the part that is known and done before the target
// stands still. Jumps go first: other places may be under them.
type Rewrite struct {
	w      *Writer
	steps  [2]step
	noting *noting // nil: nothing changes for a recovery

	unlisted bool // something does, and it is told later
}

// step is a part of a rewrite, with its writes.
type step struct {
	changes []Change
	spans   []patch.Span
	breaks  []Change // that the target keeps beside its memory
}

// Plan plans changes. all are the places that there will be, with the detours that they will have,
// and whether anything of ours is to stand there.
func (w *Writer) Plan(changes []Change, all iter.Seq2[*Place, bool]) *Rewrite {
	r, notes := w.plan(changes)
	if notes || w.unnoted {
		r.noting = w.Lifeline.note(all)
	}
	return r
}

// PlanUnlisted is Plan where ours only goes, and another change follows at once: the lifeline has the
// list of before until then, which takes all places to make. An entry for a place that is the
// program's own again does no harm: nothing is taken away there where nothing of ours stands, and
// its slot is there still.
func (w *Writer) PlanUnlisted(changes []Change) *Rewrite {
	r, notes := w.plan(changes)
	r.unlisted = notes
	return r
}

// plan answers also whether a recovery has to know.
func (w *Writer) plan(changes []Change) (r *Rewrite, notes bool) {
	r = &Rewrite{w: w}
	for _, c := range changes {
		if c.From == c.To {
			continue
		}
		st := &r.steps[1]
		if c.From == Jump {
			st = &r.steps[0]
		}
		st.changes = append(st.changes, c)
		// Between trap and jump nothing changes, but with a new detour.
		notes = notes || c.From == Own || c.To == Own
	}
	for i := range r.steps {
		r.steps[i].plan()
	}
	return r, notes
}

func (st *step) plan() {
	var ws []patch.Write
	for _, c := range st.changes {
		if w := c.write(); len(w.New) > 0 {
			ws = append(ws, w)
		}
		if c.From == Beside || c.To == Beside {
			st.breaks = append(st.breaks, c)
		}
	}
	st.spans = patch.Spans(ws, mem.LeastPage)
}

// Instead changes the plan for some places. Only these are planned anew: there may be very many
// others, and the target stands. A lifeline has the same entries for a place, whatever stands
// there.
func (r *Rewrite) Instead(to map[*Place]Kind) {
	for i := range r.steps {
		r.steps[i].instead(to)
	}
}

func (st *step) instead(to map[*Place]Kind) {
	var other step
	var taken []patch.Write
	kept := make([]Change, 0, len(st.changes))
	for _, c := range st.changes {
		k, ok := to[c.Place]
		if !ok {
			kept = append(kept, c)
			continue
		}
		taken = append(taken, c.write())
		st.breaks = slices.DeleteFunc(st.breaks, func(b Change) bool { return b.Place == c.Place })
		if c.From != k {
			other.changes = append(other.changes, Change{Place: c.Place, From: c.From, To: k})
		}
	}
	if len(kept) == len(st.changes) {
		return
	}
	other.plan()
	st.changes = append(kept, other.changes...)
	st.spans = append(patch.Without(st.spans, taken), other.spans...)
	st.breaks = append(st.breaks, other.breaks...)
}

// Changes are the changes that it makes, in order.
func (r *Rewrite) Changes() []Change { return slices.Concat(r.steps[0].changes, r.steps[1].changes) }

// HasAhead tells whether Ahead has anything to do.
func (r *Rewrite) HasAhead() bool { return r.noting != nil }

// Ahead writes what nothing leads to before CarryOut; the target may run.
func (r *Rewrite) Ahead() error { return put(r.w.t, r.noting.lists) }

// Stale tells that the text at some place has changed since the rewrite was planned.
func (r *Rewrite) Stale() bool {
	for _, st := range r.steps {
		if slices.ContainsFunc(st.changes, func(c Change) bool { return c.Place.Text != c.From }) {
			return true
		}
	}
	return false
}

// CarryOut is the rest, all or nothing, in the frozen target. Errors: EBUSY where others have
// changed bytes; EIO; the target's.
func (r *Rewrite) CarryOut() error {
	w := r.w
	if n := r.noting; n != nil {
		if err := put(w.t, n.head); err != nil {
			return err
		}
		w.Lifeline.half, w.unnoted = n.half, false
	}
	w.unnoted = w.unnoted || r.unlisted
	if err := w.rewrite(r.steps[0]); err != nil {
		return err
	}
	err := w.rewrite(r.steps[1])
	if err != nil {
		back := step{changes: slices.Clone(r.steps[0].changes)}
		for i, c := range back.changes {
			back.changes[i] = Change{Place: c.Place, From: c.To, To: c.From}
		}
		back.plan()
		w.report(w.rewrite(back))
	}
	return err
}

func (w *Writer) rewrite(st step) (err error) {
	for _, s := range st.spans {
		for at := s.Addr &^ (mem.LeastPage - 1); at < s.Addr+arch.Addr(s.Len); at += mem.LeastPage {
			w.written[at] = true
		}
	}
	if err = w.lead(st.changes); err == nil {
		err = patch.Carry(w.t, st.spans, w.report)
	}
	var foreign *patch.Mismatch
	gone := false // the code of a place that is armed
	if errors.Is(err, syscall.EFAULT) || errors.As(err, &foreign) {
		var there step
		there.changes, gone = w.present(st.changes)
		if len(there.changes) < len(st.changes) {
			there.plan()
			err = patch.Carry(w.t, there.spans, w.report)
		}
	}
	if err == nil {
		if err = w.setBreaks(st.breaks); err != nil {
			w.report(patch.Carry(w.t, patch.Undo(st.spans), w.report))
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, syscall.EFAULT), gone:
		err = &errno.Error{Errno: syscall.EFAULT, Reason: "the code is not there any more", Err: err}
	case errors.As(err, &foreign):
		err = &errno.Error{Errno: syscall.EBUSY, Err: err}
	case errors.Is(err, patch.ErrLost):
		err = &errno.Error{Errno: syscall.EIO, Err: err}
	}
	w.leave(st.changes, err)
	if err != nil {
		return err
	}
	w.view.Lock()
	defer w.view.Unlock()
	for _, c := range st.changes {
		c.Place.Text = c.To
		if c.First != nil {
			c.Place.Detour = c.First
		}
	}
	return nil
}

// present leaves out the changes of places where ours stood, and whose code has been unmapped since it was looked at: ours is gone with
// it, as if the code had been unmapped a moment later. gone tells whether some of the rest is in such code. Where the mappings cannot be
// told it leaves out nothing.
func (w *Writer) present(cs []Change) (there []Change, gone bool) {
	maps, err := w.t.Maps()
	if err != nil {
		return cs, false
	}
	for _, c := range cs {
		missing := !w.isThere(c, maps)
		if missing && c.From != Own {
			continue
		}
		there, gone = append(there, c), gone || missing
	}
	return there, gone
}

// isThere tells whether a place's code is still mapped. Another file's that has just the expected bytes is: a program may have moved
// its text there, and ours with it.
func (w *Writer) isThere(c Change, maps []symbol.Mapping) bool {
	m := symbol.MappingAt(maps, c.Place.Addr)
	if m == nil || c.Place.Module == nil || !c.Place.Module.Replaced(m) {
		return m != nil
	}
	change := c.write()
	have := make([]byte, len(change.Old))
	return w.t.ReadAt(change.Addr, have) == nil && bytes.Equal(have, change.Old)
}

// lead tells the gate of traps that are about to be written.
func (w *Writer) lead(cs []Change) error {
	for _, c := range cs {
		if w.Gate != nil && c.To == Trap && !w.Gate.LeadTrap(c.Place.Detour) {
			return errno.New(syscall.ENOSPC, "no more traps can be led to their detours")
		}
	}
	return nil
}

// leave tells the gate of traps that do not stand any more, or were not written after all.
func (w *Writer) leave(cs []Change, failed error) {
	for _, c := range cs {
		gone := c.From
		if failed != nil {
			gone = c.To
		}
		if w.Gate != nil && gone == Trap {
			w.Gate.LeaveTrap(c.Place.Addr)
		}
	}
}

// setBreaks brings the breakpoints that the target keeps to their new state. On the first failure
// all that was done is undone.
func (w *Writer) setBreaks(cs []Change) (err error) {
	set := func(p *Place, k Kind) error {
		if k == Beside {
			return w.beside.SetBreak(p.Addr)
		}
		return w.beside.ClearBreak(p.Addr)
	}
	for i, c := range cs {
		if c.To == Beside {
			err = w.Check(c.Place)
		}
		if err == nil {
			err = set(c.Place, c.To)
		}
		if err != nil {
			for _, done := range cs[:i] {
				w.report(set(done.Place, done.From))
			}
			return err
		}
	}
	return nil
}

// Check makes sure that a place has the instruction that was looked at: a kernel
// rewrites its own text. Errors: EFAULT, EBUSY.
func (w *Writer) Check(p *Place) error {
	have := make([]byte, len(p.Site.Original))
	if err := w.t.ReadAt(p.Addr, have); err != nil {
		return &errno.Error{Errno: syscall.EFAULT, Err: err}
	}
	if !bytes.Equal(have, p.Site.Original) {
		return &errno.Error{Errno: syscall.EBUSY, Err: &patch.Mismatch{Addr: p.Addr, Have: have, Want: p.Site.Original}}
	}
	return nil
}

func put(t target.Target, ws []lifeline.Write) error {
	for _, w := range ws {
		if err := t.WriteAt(w.Addr, w.New); err != nil {
			return err
		}
	}
	return nil
}
