package calls

import (
	"kprobe/arch"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
)

// Enter begins to watch a call at its first instruction, whose return will be noticed at the
// function's exits. ret is its return address where the machine has that in a register; wanted is asked
// without the lock.
func (u *UnderWay[I]) Enter(p *Probe[I], at Spot, ret arch.Addr, wanted func(*Call[I]) bool) Outcome {
	u.mu.Lock()
	defer u.mu.Unlock()
	place := u.place(at)
	u.settle(place, at.Goroutine)
	if p.again[place] {
		delete(p.again, place) // the stack has grown, or a loop begins anew: no new call
		return NotWanted
	}
	if c, ok := u.exits.Take(place, p); ok {
		c.over() // another call has its place
	}
	if u.unseen || p.unseen {
		return Missed
	}
	if p.active >= p.MaxActive {
		u.sweep(p)
	}
	back, err := u.back(at.SP, ret)
	if err != nil {
		return Missed
	}
	c, outcome := u.begin(p, at, back, wanted)
	switch {
	case outcome != Watched:
	case u.unseen || p.unseen:
		c.lose(Unregistered)
	default:
		u.exits.Put(place, p, c)
	}
	return outcome
}

// Blind is asked before a probe that is switched off is taken off its function's exits. It answers false where calls are under way
// whose returns are to be reported. Else none begins any more: the handlers of hits that came before may still be on
// their way.
func (u *UnderWay[I]) Blind(p *Probe[I]) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.unseen = p.unseen || p.active == 0
	return p.unseen
}

// Sighted ends Blind: the probe is about to stand at the exits again.
func (u *UnderWay[I]) Sighted(p *Probe[I]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.unseen = false
}

// Exit is a thread at an instruction that may leave a function.
type Exit struct {
	Spot
	Kind  patch.ExitKind
	Leads bool      // to Next; else it will fault
	Next  arch.Addr // of a return, where the machine has its address in a register
	Again bool      // that is the function's entry, for the same call
	Stays bool      // that is in the function, unless it is a return
}

// Leave takes off the call that ends at an exit, to be reported: Done is called with it then. tail tells that
// it ends in a jump to another function. ok is false where there is nothing to report.
func (u *UnderWay[I]) Leave(p *Probe[I], x Exit) (c *Call[I], tail, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	place := u.place(x.Spot)
	u.settle(place, x.Goroutine)
	if !x.Leads {
		return nil, false, false
	}
	next := x.Next
	if x.Kind == patch.Ret {
		var err error
		if next, err = u.back(x.SP, next); err != nil {
			return nil, false, false
		}
	}
	if x.Kind == patch.Restart && x.Again {
		p.again[place] = true
	}
	if x.Kind != patch.Ret && x.Stays {
		return nil, false, false
	}
	// None: it began before the probe, was missed or not wanted, or this is no exit at this height.
	c, ok = u.exits.Take(place, p)
	if ok && p.Leaving() {
		c.lose(Unregistered)
		ok = false
	}
	if ok && x.Kind == patch.Ret && next != c.RetAddr {
		c.over() // another call, which was not seen to begin, has its place
		ok = false
	}
	if !ok {
		return nil, false, false
	}
	return c, next != c.RetAddr, true
}

// back is where a call comes back to in the program: this or another function with its slot may have
// return probes that swap its return address. That is ret where the machine has it in a register. Else it is
// read here, with the lock: what was read before may be the address of a detour that is no more (Retire).
func (u *UnderWay[I]) back(slot, ret arch.Addr) (arch.Addr, error) {
	if !u.arch.RetAddrOnStack {
		return ret, nil
	}
	word, err := u.world.Word(slot)
	return u.comesBackTo(slot, word), err
}

// settle gives up the calls that are over when a thread is at a place: those
// deeper on its stack, and in Go those of an earlier goroutine with the same
// descriptor.
func (u *UnderWay[I]) settle(at returns.Place, goroutine uint64) {
	if c, ok := u.exits.Outermost(at.Stack); ok && at.Stack != 0 && c.Goroutine != goroutine {
		for _, c := range u.exits.DropStack(at.Stack) {
			c.lose(Goexit)
		}
	}
	for _, c := range u.exits.Below(at) {
		c.over()
	}
}

// sweep gives up those calls of a probe whose goroutine has ended, or whose
// return address is not there any more.
func (u *UnderWay[I]) sweep(p *Probe[I]) {
	u.exits.Drop(func(at returns.Place, of *Probe[I], c *Call[I]) bool {
		if of != p {
			return false
		}
		if at.At >= 0 {
			if !u.arch.RetAddrOnStack {
				return false // nothing tells
			}
			slot := arch.Addr(at.At)
			ret, err := u.back(slot, 0)
			gone := err != nil || ret != c.RetAddr && !u.world.Returns(ret)
			if gone {
				c.over()
			}
			return gone
		}
		gone := u.world.Ended(arch.Addr(at.Stack), c.Goroutine)
		if gone {
			c.lose(Goexit)
		}
		return gone
	})
}
