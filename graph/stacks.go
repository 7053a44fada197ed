package graph

import "slices"

// A thread has one stack, and so calls lie in each other as their places do. But a program may have other stacks, for coroutines or
// signals, on which threads go on by turns. What is called there says nothing about the calls on the thread's own.
//
// Where such a stack begins is not known. So calls that are near each other are taken to be on one stack. Each stack that has
// calls under way has a number, and a call belongs to the stack whose newest call it is just below.

// near is the greatest distance, in bytes, between a call and the next one on its stack; stacks are further apart.
const near = 8 << 10

// stacks are those of processes that are no thread's own.
type stacks struct {
	last uint64              // number that was given
	of   map[int][]uint64    // by process
	odd  map[threadOf]bool   // threads whose own stack turned out to be several
	gone map[callAt]struct{} // calls that were said to be unwound
}

type threadOf struct{ pid, tid int }

// callAt identifies a call by its process, its function and its place on the stack.
type callAt struct {
	pid   int
	name  string
	place uint64
}

// mostGone limits how many unwound calls are remembered.
const mostGone = 1 << 16

// stackOf is the number of the stack of a call of a process, at the return address's place; 0 for a thread's own. A return is on the stack that has
// its call.
func (c *Calls) stackOf(pid, tid int, name string, sp uint64, back bool) uint64 {
	s := &c.stacks
	own := (c.Own == nil || c.Own(pid, tid, sp)) && !s.odd[threadOf{pid, tid}]
	if own && !back || back && len(s.of[pid]) == 0 {
		return 0
	}
	ids := s.of[pid][:0]
	for _, id := range s.of[pid] {
		if len(c.Nest.stacks[keyOf(pid, tid, 0, id)]) > 0 {
			ids = append(ids, id)
		}
	}
	if s.of == nil {
		s.of = make(map[int][]uint64)
	}
	s.of[pid] = ids
	best, least := uint64(0), uint64(near)
	for _, id := range ids {
		calls := c.Nest.stacks[keyOf(pid, tid, 0, id)]
		if back {
			for _, o := range calls {
				if o.is(name, sp) {
					return id
				}
			}
			continue
		}
		newest, oldest := calls[len(calls)-1].place, calls[0].place
		switch {
		case sp >= newest && sp <= oldest:
			return id
		case sp < newest && newest-sp < least:
			best, least = id, newest-sp
		}
	}
	if best != 0 || back {
		return best
	}
	s.last++
	s.of[pid] = append(s.of[pid], s.last)
	return s.last
}

// unwound notes a call that is said to be over without having returned.
func (c *Calls) unwound(s *Span, place uint64) {
	if c.stacks.gone == nil || len(c.stacks.gone) >= mostGone {
		c.stacks.gone = make(map[callAt]struct{})
	}
	c.stacks.gone[callAt{s.PID, s.Name, place}] = struct{}{}
}

// late takes the return of a call that was said to be unwound, or that another thread began: they go on on several stacks, in what seemed
// to be one of each.
func (c *Calls) late(r Return) {
	for k, calls := range c.Nest.stacks {
		if k.pid == r.PID && !k.g && slices.ContainsFunc(calls, func(o open) bool { return o.is(r.Name, r.SP) }) {
			c.several(r.PID, r.TID)
			c.several(r.PID, int(k.id))
			c.Lost--
			r.TID = int(k.id)
			c.Leave(r)
			return
		}
	}
	for _, place := range []uint64{r.SP, r.SP - pops} {
		at := callAt{r.PID, r.Name, place}
		if _, ok := c.stacks.gone[at]; !ok {
			continue
		}
		delete(c.stacks.gone, at)
		c.several(r.PID, r.TID)
		c.Lost--
		c.Revived++
		return
	}
}

// several notes that what seemed to be a thread's own stack is several.
func (c *Calls) several(pid, tid int) {
	if c.stacks.odd == nil {
		c.stacks.odd = make(map[threadOf]bool)
	}
	c.stacks.odd[threadOf{pid, tid}] = true
}
