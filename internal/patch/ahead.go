package patch

import (
	"fmt"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// An instruction may be too short for a jump, with others behind it that must stay as they are (a
// return, and then code that others jump to). It may have a jump ahead of it: in front of
// instructions that do nothing but run into it. They move into the detour, which serves the probe
// when they are done. The instruction itself keeps its trap, for threads that come to it in any
// other way: by a branch, from a signal handler, or because they stood among those instructions
// already.

// PlanAhead tells how a jump can stand ahead of the instruction at addr; taken, where other
// probes are. Nothing of the jump is under the instruction. There is one way at most. Whether the
// jump of a probe in front of it depends on the same bytes is the caller's to find out, by Span.
func (b *Body) PlanAhead(addr arch.Addr, taken func(arch.Addr) bool) *Jump {
	j := &Jump{Addr: addr, m: b.m}
	form := b.m.JumpForm()
	i, ok := b.at(addr)
	switch {
	case form == nil || b.flow == nil || !ok:
		j.Reason = "what leads to it is not known"
		return j
	case form.Whole > 0:
		j.Reason = "a jump takes no more room than the instruction itself"
		return j
	case b.flow.Unguarded:
		j.Reason = "a trap and a jump cannot stand together"
		return j
	}
	last := b.Insns[i]
	for end := last.Off; last.Off-end < form.Len(); {
		if i--; i < 0 {
			j.Reason = "the function begins"
			return j
		}
		in := b.Insns[i]
		end = in.Off
		at := b.Addr + arch.Addr(in.Off)
		j.Addr, j.Ahead = at, int(addr-at)
		if j.Reason = b.runsInto(addr, in, taken); j.Reason != "" {
			return j
		}
	}
	w := Way{Tactic: Ahead, Own: form.Len(), Displaced: j.Ahead + last.Len}
	for i++; b.Insns[i].Off-int(j.Addr-b.Addr) < form.Len(); i++ {
		w.Inner = append(w.Inner, b.Insns[i].Off-int(j.Addr-b.Addr))
	}
	j.code = b.Code[j.Addr-b.Addr:]
	w.Reach = j.reach(form, 0, form.Len(), w.Inner)
	if w.Displaced > LongestSpan {
		j.Reason = "the instructions in front of it are too long"
		return j
	}
	if _, err := j.Head(&w, j.Addr); err != nil {
		j.Reason = err.Error()
		return j
	}
	j.Ways = []Way{w}
	return j
}

// at is the index of the instruction at an address.
func (b *Body) at(addr arch.Addr) (int, bool) {
	return b.index(int(addr - b.Addr))
}

// runsInto says why an instruction cannot move into the detour of the one at site, which it is in
// front of; "" where it can.
func (b *Body) runsInto(site arch.Addr, in Step, taken func(arch.Addr) bool) string {
	start := b.Addr + arch.Addr(in.Off)
	directly := start+arch.Addr(in.Len) == site
	if in.Flow != isa.Next && (in.Flow != isa.CondJump || directly) {
		return "what is in front of it does not run into it"
	}
	// Others may come to the first of them, but to none behind it.
	if to, ok := b.flow.Known(start+1, site); ok {
		return fmt.Sprintf("something leads, or refers, to -%d", site-to)
	}
	for a := start; a < site; a++ {
		if taken(a) {
			return "another probe is in the way"
		}
	}
	return ""
}

// Head makes the instructions between a jump and the probed one behind it, as they run at an
// address, to whose end they run. Errors: in words, where something of theirs is out of reach.
func (j *Jump) Head(w *Way, at arch.Addr) (*Slot, error) {
	v, err := j.m.Displace(j.code[:j.Ahead], j.Addr, at)
	if err == nil && (v.Kind == isa.Refuse || v.Body == 0) {
		err = &Refusal{j.Addr, v.Reason}
	}
	if err != nil {
		return nil, err
	}
	s := &Slot{Addr: at, Code: v.Code[:v.Body], BreakAt: -1}
	for _, m := range v.Marks {
		if m.Off < v.Body {
			s.Marks = append(s.Marks, m)
		}
	}
	return s, nil
}
