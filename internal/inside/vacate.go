package inside

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/target"
)

// Vacate makes room for jumps to detours in a frozen target: a thread that stands under
// one is moved to where the instructions there run from now on. trapped are those that have
// executed a trap which is still to be served: that counts from the trap. The
// detours are in the order of their sites; own reads the target's own bytes. Errors: the target's; then nobody was moved.
func Vacate(t target.Target, own func(arch.Addr, []byte) error, ds []*Detour, trapped map[target.Thread]bool) (*Vacancy, error) {
	v := &Vacancy{Busy: make(map[*Detour]bool)}
	if t.Stuck() > 0 {
		for _, d := range ds {
			v.Busy[d] = true // one of those may be in there
		}
		v.Stuck = true
		return v, nil
	}
	under := func(a arch.Addr) *Detour {
		i, _ := slices.BinarySearchFunc(ds, a, func(d *Detour, a arch.Addr) int { return cmp.Compare(d.Span.Start, a) })
		if i == 0 || !ds[i-1].Under(a) {
			return nil
		}
		return ds[i-1]
	}
	if m, ok := t.(target.Machine); ok {
		v.Again = vacateMachine(own, m, ds, under, v.Busy)
	}
	pc := t.Arch().PC
	for _, th := range t.Threads() {
		var r arch.Regs
		if err := t.Regs(th, &r); err != nil {
			if !errors.Is(err, target.ErrGone) {
				return nil, errors.Join(err, v.Undo(t))
			}
			continue
		}
		d := under(arch.Addr(r[pc]))
		if d == nil || trapped[th] {
			continue
		}
		to, ok := d.copyFor(&r)
		if !ok {
			v.Busy[d] = true
			continue
		}
		v.moved = append(v.moved, move{th, r[pc]})
		r[pc] = uint64(to)
		if err := t.SetRegs(th, &r); err != nil && !errors.Is(err, target.ErrGone) {
			return nil, errors.Join(err, v.Undo(t))
		}
	}
	return v, nil
}

// Vacancy is what room there is for jumps.
type Vacancy struct {
	Busy  map[*Detour]bool // no jump may lead there now
	Again bool             // this may be different soon
	Stuck bool             // a thread cannot be looked at: then no jump has room

	moved []move
}

// move is a thread that was moved, and where it was.
type move struct {
	th target.Thread
	pc uint64
}

// Undo moves the threads back, in the same stop. Errors: the target's.
func (v *Vacancy) Undo(t target.Target) (err error) {
	for _, m := range v.moved {
		var r arch.Regs
		e := t.Regs(m.th, &r)
		if e == nil {
			r[t.Arch().PC] = m.pc
			e = t.SetRegs(m.th, &r)
		}
		if !errors.Is(e, target.ErrGone) {
			err = errors.Join(err, e)
		}
	}
	v.moved = nil
	return err
}

// vacateMachine finds the jumps that would be in somebody's way in a kernel: over bytes
// that are not ours to change, or not those that were planned for, over what tasks rest in. While it cannot be told where they
// rest, that is all. Tasks go on some time.
func vacateMachine(own func(arch.Addr, []byte) error, m target.Machine, ds []*Detour, under func(arch.Addr) *Detour, busy map[*Detour]bool) (again bool) {
	resting, err := m.Resting(func(a arch.Addr) bool { return under(a) != nil })
	for _, a := range resting {
		busy[under(a)] = true
	}
	for _, d := range ds {
		have := make([]byte, len(d.Jump.Old))
		if err != nil || m.Owned(d.Span.Start, d.Span.End) != "" || own(d.Span.Start, have) != nil || !bytes.Equal(have, d.Jump.Old) {
			busy[d] = true
		}
	}
	return err != nil || len(resting) > 0
}
