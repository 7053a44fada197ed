package kprobe

import (
	"kprobe/internal/calls"
	"kprobe/internal/inject"
	"kprobe/internal/inside"
)

// spot is where the thread stands.
func (r *Regs) spot() calls.Spot {
	at := calls.Spot{Thread: r.th, SP: r.SP(), TP: inside.PointerOf(r.s.on.T, r.th, &r.r)}
	if g, ok := r.goroutine(); ok {
		at.G, at.Hi, at.Goroutine = g.G, g.Hi, g.ID
	}
	return at
}

// entered is the pre-handler of a return probe that swaps return addresses.
func (rp *Kretprobe) entered(p *Kprobe, regs *Regs) {
	rp.note(regs.s.calls.Swap(&rp.watch, regs.spot(), rp.wanted(p, regs)))
}

// enteredForExits is the pre-handler at the entry, where exits are probed.
func (rp *Kretprobe) enteredForExits(p *Kprobe, regs *Regs) {
	rp.note(regs.s.calls.Enter(&rp.watch, regs.spot(), regs.s.on.Arch.Link(&regs.r), rp.wanted(p, regs)))
}

// note counts a call that is not watched although it should be.
func (rp *Kretprobe) note(o calls.Outcome) {
	if o == calls.Missed {
		rp.nmissed.Add(1)
		rp.Kp.missed.Add(1)
	}
}

// wanted runs the entry handler, and tells whether the call's return is to be reported. After a
// panic it is not: the private data may be half of what the other handler expects.
func (rp *Kretprobe) wanted(p *Kprobe, r *Regs) func(*calls.Call[*KretprobeInstance]) bool {
	return func(c *calls.Call[*KretprobeInstance]) (yes bool) {
		if c.Instance == nil {
			c.Instance = &KretprobeInstance{Rp: rp, Data: make([]byte, rp.DataSize)}
		}
		ri := c.Instance
		clear(ri.Data)
		ri.RetAddr, ri.Entry, ri.Task, ri.Tail = c.RetAddr, p.Addr, r.Task(), false
		if rp.EntryHandler == nil {
			return true
		}
		defer func() {
			if e := recover(); e != nil {
				rp.nmissed.Add(1)
				r.s.handlerFault(&rp.Kp, r, e)
			}
		}()
		return rp.EntryHandler(ri, r) == 0
	}
}

func (s *Session) callReturn(rp *Kretprobe, ri *KretprobeInstance, r *Regs) {
	defer func() {
		if e := recover(); e != nil {
			s.handlerFault(&rp.Kp, r, e)
		}
	}()
	rp.Handler(ri, r)
}

// countEnded gives up the calls that are over although they did not return, as the stacks of
// the frozen target show. Of the probes that leave, more is asked.
func (s *Session) countEnded(leaving []*Kprobe) {
	if !s.on.Kind.OnCPUs() {
		s.calls.CountEnded(s.stands)
	}
	for _, p := range leaving {
		if rp := p.as().returns(); rp != nil {
			s.calls.TakenOff(&rp.watch)
			over, under := s.within.Sweep(rp.owner)
			rp.tally(over)
			rp.watch.Lose(calls.Unregistered, under)
		}
	}
}

// stands tells where the threads of the frozen target stand.
func (s *Session) stands(yield func(calls.Stand) bool) {
	for _, th := range s.on.T.Threads() {
		regs := Regs{s: s, th: th}
		if s.on.T.Regs(th, &regs.r) != nil {
			continue // it has ended
		}
		if !yield(calls.Stand{Spot: regs.spot(), Returning: s.threads.Returning(regs.PC())}) {
			return
		}
	}
}

// tally adds to a return probe's own counts what was counted inside.
func (rp *Kretprobe) tally(t inside.Tally) {
	rp.returned.Add(t.Hits)
	rp.nmissed.Add(t.Missed)
	for why, n := range t.Lost {
		rp.watch.Lose(rp.insideLoss(why), n)
	}
}

// insideLoss is what a loss inside the target is called.
func (rp *Kretprobe) insideLoss(why int) calls.Loss {
	if why == inject.LostUnwound && (rp.plan == nil || !rp.plan.Unwinds) {
		return calls.Longjmp
	}
	return [inject.Losses]calls.Loss{calls.Unwound, calls.Goexit, calls.Exited}[why]
}
