// Package room is the memory of ours in the target: where there is some to be had, and the
// arenas of slots, in which displaced instructions run, with the way back from an
// address in a slot to the probe that it serves.
//
//	room.go   ranges that are free, and what is mapped
//	arena.go  slots
//	slots.go  those of one site
package room

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/patch"
	"kprobe/target"
)

// UserFloor is the lowest address that the memory of programs may have.
const UserFloor = arch.Addr(0x10000)

// Room is our memory in one target. P is the owner of a slot.
//
// The memory for a batch of probes is planned while the target runs, is mapped when it stands
// still, and then is adopted, or dropped.
type Room[P any] struct {
	// Floor and Limit are between which memory may be mapped.
	Floor, Limit arch.Addr

	// Others are ranges that are taken although the target does not list them. Taken is called with
	// each range that is given out.
	Others func() []arch.Range
	Taken  func(arch.Range)

	t       target.Target
	alloc   target.Allocator // nil: there is no memory for us
	arenas  []*Arena[P]
	planned []*Arena[P]
	slot    int       // bytes that a slot takes
	reach   arch.Addr // isa.ISA's
	shadow  arch.Range
}

// New has nothing yet.
func New[P any](t target.Target) *Room[P] {
	r := &Room[P]{t: t, Floor: UserFloor, Others: func() []arch.Range { return nil }, Taken: func(arch.Range) {}}
	r.alloc, _ = t.(target.Allocator)
	return r
}

// Become sets the machine. A slot holds so many bytes of its code and a breakpoint, and lies within reach of what it is for.
func (r *Room[P]) Become(a *arch.Arch, slot int, reach arch.Addr) {
	r.Limit, r.reach, r.shadow = a.UserEnd, reach, a.Shadow
	r.slot = (slot + len(a.Break) + 15) &^ 15
}

// page is the target's.
func (r *Room[P]) page() arch.Addr { return arch.Addr(r.alloc.PageSize()) }

// Round is a size in whole pages of the target's.
func (r *Room[P]) Round(size int) int {
	page := r.alloc.PageSize()
	return (size + page - 1) &^ (page - 1)
}

// Some tells whether there can be any memory of ours in the target.
func (r *Room[P]) Some() bool { return r.alloc != nil }

// Find finds size bytes near a range where nothing is mapped, or planned. Errors: ENOMEM;
// the target's.
func (r *Room[P]) Find(near arch.Range, size int) (arch.Addr, error) {
	used, err := r.used()
	if err != nil {
		return 0, err
	}
	at, ok := patch.FindGap(near, r.reach, size, used, r.Floor, r.Limit, r.page())
	if !ok {
		return 0, errno.New(syscall.ENOMEM, "no %d bytes are free within %d MiB of %v", size, (r.reach+1<<20-1)>>20, near.Start)
	}
	r.Taken(arch.Range{Start: at, End: at + arch.Addr(size)})
	return at, nil
}

// FindAbove is Find for what need not be near anything, from an address on; where there is
// no room above, near it. Errors: as Find.
func (r *Room[P]) FindAbove(from arch.Addr, size int) (arch.Addr, error) {
	used, err := r.used()
	if err != nil {
		return 0, err
	}
	at, ok := patch.FindAbove(from, size, used, r.Limit, r.page())
	if !ok {
		return r.Find(arch.Range{Start: from, End: from + 1}, size)
	}
	r.Taken(arch.Range{Start: at, End: at + arch.Addr(size)})
	return at, nil
}

// FindPreferring is Find for what need not be near anything, but lies there by custom: it is above
// where there is no such place. Detours lie at places that their jumps choose, and a hundred
// thousand of them leave no large piece near the text. Errors: as Find.
func (r *Room[P]) FindPreferring(near arch.Range, size int) (arch.Addr, error) {
	at, err := r.Find(near, size)
	if errors.Is(err, syscall.ENOMEM) {
		return r.FindAbove(near.Start, size)
	}
	return at, err
}

// used is the memory that the target has, or will want, also that which is only planned yet,
// in order.
func (r *Room[P]) used() ([]arch.Range, error) {
	used, err := r.Occupied()
	if err != nil {
		return nil, err
	}
	for _, a := range r.planned {
		used = append(used, a.span())
	}
	slices.SortFunc(used, func(a, b arch.Range) int { return cmp.Compare(a.Start, b.Start) })
	return used, nil
}

// Occupied is the memory that the target has, or will want.
func (r *Room[P]) Occupied() ([]arch.Range, error) {
	maps, err := r.t.Maps()
	if err != nil {
		return nil, err
	}
	// Where the program has nothing, a sanitizer may be about to map all. Else it has done that, or
	// there is none.
	used, claimed := []arch.Range{r.shadow}, r.shadow.End > 0
	for _, m := range maps {
		u := m.Range()
		if m.Path == "[stack]" {
			u.Start -= 64 << 20 // it grows down; leave it its customary room
		}
		claimed = claimed && (u.End <= r.shadow.Start || u.Start >= r.shadow.End)
		used = append(used, u)
	}
	if !claimed {
		used = used[1:]
	}
	return append(used, r.Others()...), nil
}

// Map maps memory in the frozen target. Errors: the target's, explained.
func (r *Room[P]) Map(m arch.Range) error {
	return Explain(r.alloc.Alloc(m.Start, int(m.End-m.Start)))
}

// Explain says of an error that it is why no memory could be mapped.
func Explain(err error) error {
	const why = "no memory for slots"
	var no syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		return &errno.Error{Errno: no, Reason: why, Err: err}
	case errors.Is(err, target.ErrNotNow):
		return &errno.Error{Errno: syscall.EBUSY, Reason: "no memory can be mapped just now", Err: err}
	}
	return fmt.Errorf("%s: %w", why, err)
}

// Planned tells whether arenas are planned.
func (r *Room[P]) Planned() bool { return len(r.planned) > 0 }

// MapPlanned maps the planned memory. Errors: as Map; a part may be mapped then.
func (r *Room[P]) MapPlanned() error {
	for _, a := range r.planned {
		if err := r.Map(a.span()); err != nil {
			return err
		}
		a.mapped = true
	}
	return nil
}

// Adopt makes planned arenas known to At. It answers whether there are any.
func (r *Room[P]) Adopt() bool {
	some := r.Planned()
	r.arenas, r.planned = append(r.arenas, r.planned...), nil
	return some
}

// Drop gives up the planned memory. For the part that has been mapped already it has frozen run a
// function in the frozen target, which unmaps it.
func (r *Room[P]) Drop(frozen func(func() error) error) {
	dropped := r.planned
	r.planned = nil
	if !slices.ContainsFunc(dropped, func(a *Arena[P]) bool { return a.mapped }) {
		return
	}
	frozen(func() error {
		for _, a := range dropped {
			if a.mapped {
				r.alloc.Free(a.Addr, a.Size)
			}
		}
		return nil
	})
}

// Spans are the arenas' ranges.
func (r *Room[P]) Spans() []arch.Range {
	spans := make([]arch.Range, len(r.arenas))
	for i, a := range r.arenas {
		spans[i] = a.span()
	}
	return spans
}

// Leave unmaps the arenas in the frozen target. Errors: the target's; it can be called
// again.
func (r *Room[P]) Leave() error {
	for len(r.arenas) > 0 {
		a := r.arenas[0]
		if err := r.alloc.Free(a.Addr, a.Size); err != nil && !errors.Is(err, target.ErrGone) {
			return err
		}
		r.arenas = r.arenas[1:]
	}
	return nil
}

// Forget is for a target that has executed another program: nothing of ours is there.
func (r *Room[P]) Forget() { r.arenas = nil }
