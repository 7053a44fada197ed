package room

import (
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/patch"
)

// Slots are the slots of one site: one that leads back by itself, and one that ends in a
// breakpoint, as the site needs them.
type Slots[P any] struct{ boost, step *Arena[P] }

func (s *Slots[P]) of(site *patch.Site, step bool) (**Arena[P], **patch.Slot) {
	if step {
		return &s.step, &site.Step
	}
	return &s.boost, &site.Boost
}

// Plan finds a place for a slot, where the function that is given can assemble it, and answers the
// write. more is the number of slots that are wanted in all. Errors: as Take; EINVAL where the
// instruction cannot run there.
func (s *Slots[P]) Plan(r *Room[P], site *patch.Site, step bool, near arch.Range, more int, assemble func(at arch.Addr) error) (patch.Write, error) {
	a, at, err := r.Take(near, more)
	if err != nil {
		return patch.Write{}, err
	}
	arena, slot := s.of(site, step)
	*arena = a
	if err := assemble(at); err != nil {
		a.Give(at)
		return patch.Write{}, &errno.Error{Errno: syscall.EINVAL, Err: err}
	}
	return patch.Write{Addr: at, New: (*slot).Code}, nil
}

// Forget gives back what Plan found.
func (s *Slots[P]) Forget(site *patch.Site, step bool) {
	arena, slot := s.of(site, step)
	if *arena != nil && *slot != nil {
		(*arena).Give((*slot).Addr)
	}
	*arena, *slot = nil, nil
}

// Release gives back the slots of a site that is no more.
func (s *Slots[P]) Release(site *patch.Site) {
	for _, step := range []bool{false, true} {
		if arena, slot := s.of(site, step); *arena != nil {
			(*arena).Give((*slot).Addr)
		}
	}
}

// Enter has addresses in the slots lead to their owner.
func (s *Slots[P]) Enter(site *patch.Site, p P) {
	for _, step := range []bool{false, true} {
		if arena, slot := s.of(site, step); *arena != nil && *slot != nil {
			(*arena).Enter(Ref[P]{Of: p, Site: site, Slot: *slot})
		}
	}
}
