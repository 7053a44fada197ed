package inject

import (
	"sync/atomic"

	"kprobe/arch"
)

// Between a load and a store exclusive no step may be made, or the store fails, and the thread tries again for
// ever. A thread that is led through the routines in steps comes to a few such pairs, on words of the
// segment's head or counters: they are carried out for it, from here.

// Pair is one of them.
type Pair struct {
	At         string // where a thread stands at it
	Addr       int    // the register that points to the word
	Was        int    // becomes what was there
	Expects    int    // what must be there for it to become what is in set; 0: it is counted up, and that is in set
	Set        int
	Status     int    // the register that tells whether the store has failed
	Done, Lost string // where the thread goes on
	Wide       bool   // a counter of 8 bytes, anywhere
}

// Atomically has a thread that stands at such a pair, with registers r, go on behind it; false where it
// does not stand at one.
func (a *Area) Atomically(r *arch.Regs) bool {
	m, pc := a.machine(), r.Addr(a.machine().Arch.PC)
	for _, p := range m.Pairs {
		if off, ok := m.Routines[p.At]; !ok || pc != a.Addr+AreaCode+arch.Addr(off) {
			continue
		}
		off, to := int(arch.Addr(r[p.Addr])-a.Of.Segment.Addr), p.Done
		end := a.Of.Segment.TableEnd()
		if p.Wide {
			end = a.Of.Segment.Size()
		}
		if off < 0 || off >= end || off%4 != 0 || (p.Expects != 0 || p.Wide) && off%8 != 0 {
			return false
		}
		switch {
		case p.Wide:
			next := atomic.AddUint64(a.Of.Segment.Word(off), 1)
			r[p.Was], r[p.Set] = next-1, next
		case p.Expects == 0:
			next := atomic.AddUint32(a.Of.Segment.Word32(off), 1)
			r[p.Was], r[p.Set] = uint64(next-1), uint64(next)
		default:
			if r[p.Was] = r[p.Expects]; !atomic.CompareAndSwapUint64(a.Of.Segment.Word(off), r[p.Expects], r[p.Set]) {
				r[p.Was], to = a.Of.Segment.Get(off), p.Lost
			}
		}
		r[p.Status] = 0 // the store has not failed
		r[m.PC] = uint64(a.Routine(to))
		return true
	}
	return false
}
