package parts

import (
	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/patch"
	"kprobe/internal/probed"
)

// Crowded are the points that shall make do with copies of their own instructions, because there are others'
// in their detours' copies: those that a probe of the kernel's own is on, that is. When these are gone, it is as
// before. after is what runs inside at each.
func (k *Kit) Crowded() (pts probed.List, after map[*probed.Point][]*probed.Probe) {
	if !k.On.Kind.Shared() {
		return nil, nil
	}
	after = make(map[*probed.Point][]*probed.Probe)
	for _, pt := range k.On.Points.List {
		if pt.Detour == nil || pt.Detour.Way == nil && !pt.Crowded {
			continue
		}
		_, code := pt.Displaced()
		changes := pt.Site.Insn.Len < len(code) && k.OwnedAt(pt) != ""
		if pt.Crowded {
			changes = k.roomForJump(pt)
		}
		if changes {
			after[pt] = k.On.Points.Inside(pt.Probes)
			pts = append(pts, pt)
		}
	}
	return pts, after
}

// OwnedAt says which others may rewrite what a point's detour has a copy of; "" for none.
func (k *Kit) OwnedAt(pt *probed.Point) string {
	at, code := pt.Displaced()
	return k.On.Kind.Owned(at, at+arch.Addr(len(code)))
}

// roomForJump tells whether a jump can stand at a kernel's point with nothing of others' displaced.
func (k *Kit) roomForJump(pt *probed.Point) bool {
	j := k.On.JumpAt(pt).Beside(func(a arch.Addr) bool { return a != pt.Addr && k.On.Probed(a) })
	return j != nil && len(j.Without(func(span arch.Range) string { return k.On.Kind.Owned(span.Start, span.End) }).Ways) > 0
}

// Redetour gives points other detours, with what is to run inside at each. Errors: those of the change.
func (k *Kit) Redetour(pts probed.List, after map[*probed.Point][]*probed.Probe) error {
	c := &change.Change{
		What:  "other detours",
		Parts: []change.Part{&Detours{Kit: k, After: after, Taken: k.On.Probed}},
		Text:  k.Rewriting(func() probed.List { return pts }),
	}
	return c.Insist(k.On.Owner)
}

// Tactic tells how a jump could stand at a point; why says why none can, else it is "".
func (k *Kit) Tactic(pt *probed.Point) (how patch.Tactic, why string) {
	on := k.On
	if err := on.Machine.Counts(); err != nil {
		return 0, err.Error()
	}
	j := on.JumpAt(pt)
	if j != nil && (len(j.Ways) == 0 || j.Passed()) {
		if ahead := on.Image.Ahead(pt.Loc, on.Probed); len(ahead.Ways) > 0 {
			j = ahead
		}
	}
	switch {
	case j == nil:
		return 0, "the code around it is not known"
	case len(j.Ways) == 0:
		return 0, j.Reason
	}
	span := j.Span(&j.Ways[0])
	return j.Ways[0].Tactic, on.Kind.Owned(span.Start, span.End)
}
