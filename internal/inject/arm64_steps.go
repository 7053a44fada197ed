package inject

import (
	"sync/atomic"

	"kprobe/arch"
)

// Between a load and a store exclusive no step may be made, or the store fails, and the thread tries again for
// ever. A thread that is led through the routines in steps comes to a few such pairs, on words of the
// segment's head or counters: they are carried out for it, from here.

// pair is one of them.
type pair struct {
	at         string // where a thread stands at it
	addr       int    // the register that points to the word
	was        int    // becomes what was there
	expects    int    // what must be there for it to become what is in set; 0: it is counted up, and that is in set
	set        int
	done, lost string // where the thread goes on
	wide       bool   // a counter of 8 bytes, anywhere
}

var pairs = []pair{
	{at: "take_entry", addr: 5, was: 6, expects: 7, set: 0, done: "entry_taken", lost: "entry_lost"},
	{at: "next_state", addr: 7, was: 2, set: 4, done: "state_given"},
	{at: "give_batch", addr: 13, was: 11, expects: 14, set: 15, done: "batch_given", lost: "batch_kept"},
	{at: "take_batch", addr: 13, was: 11, expects: 14, set: 15, done: "batch_taken", lost: "batch_lost"},
	{at: "lose_one", addr: 2, was: 0, set: 10, done: "one_lost", wide: true},
	{at: "next_call", addr: 13, was: 10, set: 12, done: "call_given"},
}

// Atomically has a thread that stands at such a pair, with registers r, go on behind it; false where it
// does not stand at one.
func (a *Area) Atomically(r *arch.Regs) bool {
	m, pc := a.machine(), arch.Addr(r[a.machine().Arch.PC])
	for _, p := range pairs {
		if off, ok := m.routines[p.at]; !ok || pc != a.Addr+areaCode+arch.Addr(off) {
			continue
		}
		off, to := int(arch.Addr(r[p.addr])-a.Of.Segment.Addr), p.done
		end := a.Of.Segment.TableEnd()
		if p.wide {
			end = a.Of.Segment.Size()
		}
		if off < 0 || off >= end || off%4 != 0 || (p.expects != 0 || p.wide) && off%8 != 0 {
			return false
		}
		switch {
		case p.wide:
			next := atomic.AddUint64(a.Of.Segment.Word(off), 1)
			r[p.was], r[p.set] = next-1, next
		case p.expects == 0:
			next := atomic.AddUint32(a.Of.Segment.Word32(off), 1)
			r[p.was], r[p.set] = uint64(next-1), uint64(next)
		default:
			if r[p.was] = r[p.expects]; !atomic.CompareAndSwapUint64(a.Of.Segment.Word(off), r[p.expects], r[p.set]) {
				r[p.was], to = a.Of.Segment.Get(off), p.lost
			}
		}
		r[8] = 0 // the store has not failed
		r[m.PC] = uint64(a.routine(to))
		return true
	}
	return false
}
