package bpf

import "fmt"

// A pool is memory that several targets have, so that programs in all of them work on the same keys
// and values. What a thread has for itself, its values and its ring, stays in its own target's
// segment, and so does a map that is Apart:
//
//	segment of target 1   per-CPU maps, rings, maps Apart ─┐
//	segment of target 2   per-CPU maps, rings, maps Apart ─┼─ pool: all other maps
//	the controller's      per-CPU maps, rings, maps Apart ─┘
//
// A program knows a map by its address, wherever that is. In its target's layout the pool's maps
// have offsets from the segment's beginning too, and may be before it.

// pooled tells whether a map is one that several targets may have.
func (s *MapSpec) pooled() bool { return !s.ring() && !s.perCPU() && !s.Apart }

// ArrangePooled is Arrange for a segment and a pool, which has Pool bytes. Errors: of Arrange; a
// map that holds maps.
func ArrangePooled(maps []*MapSpec, slots int) (*Layout, error) {
	for _, s := range maps {
		if s.OfMaps() {
			return nil, fmt.Errorf("bpf: map %q holds maps, and so cannot be that of several targets", s.Name)
		}
	}
	return arrange(maps, slots, (*MapSpec).pooled)
}

// BindPool is Bind for a segment and a pool that the target has at poolBase.
func (l *Layout) BindPool(mem []byte, base uint64, pool []byte, poolBase uint64) (*Segment, error) {
	switch {
	case uint64(len(pool)) < l.Pool:
		return nil, fmt.Errorf("bpf: pool of %d bytes, the layout takes %d", len(pool), l.Pool)
	case poolBase%segmentAlign != 0:
		return nil, fmt.Errorf("bpf: pool at %#x: not a multiple of %d", poolBase, segmentAlign)
	}
	bound := *l
	bound.Offs = append([]uint64(nil), l.Offs...)
	for i, in := range l.inPool {
		if in {
			bound.Offs[i] += poolBase - base
		}
	}
	s, err := bound.Bind(mem, base)
	if err != nil {
		return nil, err
	}
	s.pool, s.poolBase = pool[:l.Pool:l.Pool], poolBase
	return s, nil
}

// InitPool is Init for the pool's maps, once, whichever segment it is.
func (s *Segment) InitPool() error {
	return s.init(func(m int) bool { return s.inPool[m] })
}

// room is the memory that a map lies in, and where there.
func (s *Segment) room(m int) (memory, uint64) {
	if s.inPool[m] {
		return s.pool, s.Base + s.Offs[m] - s.poolBase
	}
	return s.mem, s.Offs[m]
}
