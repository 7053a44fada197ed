package kprobe

import (
	"slices"
	"sync"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/returns"
)

// A program that walks its own stack (backtrace(3), an exception that passes
// through C code) must find its own return addresses there. So with the first
// return probe that swaps one come hidden probes on the functions that begin such
// a walk. What this thread has swapped is put back while one of them runs, and is
// swapped again when it returns.

// watchWalks adds the hidden probes to a batch that swaps return addresses, where
// they are not there yet. What cannot be probed is left out: the walk is then
// shorter than it was, as with any tool that swaps.
func (s *Session) watchWalks(b *batch) (added []*Kprobe) {
	if s.walks || !b.swaps() {
		return nil
	}
	add := func(p *Kprobe) {
		p.hidden = true
		try := new(batch)
		try.init()
		if s.prepare(try, p) == nil && s.prepare(b, p) == nil {
			added = append(added, p)
		}
	}
	for _, name := range returns.Everywhere(s.image.Space, returns.Walkers) {
		rp := &Kretprobe{Kp: Kprobe{SymbolName: name}, MaxActive: 1 << 16}
		var back sync.Map // []unswapped by *KretprobeInstance
		rp.EntryHandler = func(ri *KretprobeInstance, regs *Regs) int {
			back.Store(ri, s.unswap(regs))
			return 0
		}
		rp.Handler = func(ri *KretprobeInstance, _ *Regs) int {
			if us, ok := back.LoadAndDelete(ri); ok {
				s.swapAgain(us.([]unswapped))
			}
			return 0
		}
		if rp.prepare(s) == nil {
			add(&rp.Kp)
		}
	}
	for _, name := range returns.Everywhere(s.image.Space, returns.Unwinders) {
		add(&Kprobe{SymbolName: name, PreHandler: func(_ *Kprobe, regs *Regs) int {
			s.endCalls(regs, s.unswap(regs))
			return 0
		}})
	}
	return added
}

// swaps tells whether the batch has a return probe that swaps return addresses.
func (b *batch) swaps() bool {
	return slices.ContainsFunc(b.probes, (*Kprobe).swaps)
}

// unswapped is a return address that is in its place while its stack is walked: of
// a call that the controller knows, or of one that a detour does.
type unswapped struct {
	sp     arch.Addr
	detour inside.Unswapped
}

// unswap puts the return addresses of a thread's calls back, and tells which. What
// the controller has swapped a detour may have swapped once more, or the other way round,
// where both have a probe on a call, or on one and that which it ends in.
func (s *Session) unswap(regs *Regs) (us []unswapped) {
	f := &s.frames
	defer s.lockCalls()()
	for n := -1; n < len(us); {
		n = len(us)
		for sp, fr := range f.at {
			word, err := s.word(sp)
			if err == nil && arch.Addr(word) == f.trampoline && fr.thread == regs.th && s.putWord(sp, uint64(fr.real)) == nil {
				fr.bared = true
				us = append(us, unswapped{sp: sp})
			}
		}
		if s.inside != nil {
			for _, d := range s.inside.Unswap(regs.th, &regs.r, s.t) {
				us = append(us, unswapped{detour: d})
			}
		}
	}
	return us
}

// swapAgain undoes it, from the last on, where the call is still under way.
func (s *Session) swapAgain(us []unswapped) {
	f := &s.frames
	defer s.lockCalls()()
	for _, u := range slices.Backward(us) {
		if u.sp == 0 && s.inside != nil {
			s.inside.SwapAgain(u.detour, s.t)
			continue
		}
		word, err := s.word(u.sp)
		if fr := f.at[u.sp]; fr != nil && fr.bared {
			if err == nil && arch.Addr(word) == fr.real {
				s.putWord(u.sp, uint64(f.trampoline))
			}
			fr.bared = false
		}
	}
}

// endCalls counts as unwound what may be over when the stack has been unwound: some of
// the calls may live on, who knows which. Their return addresses are back.
func (s *Session) endCalls(regs *Regs, us []unswapped) {
	stack := inside.OwnStack(s.t, regs.th, &regs.r)
	defer s.lockCalls()()
	for _, u := range us {
		if fr := s.frames.at[u.sp]; fr != nil {
			fr.giveUp(unwound)
			delete(s.frames.at, u.sp)
		} else if u.sp == 0 && s.inside != nil && s.inside.End(u.detour, stack) {
			for _, p := range u.detour.Detour.Owner.([]*Kprobe) {
				if p.swaps() {
					p.as().returns().lost[unwound].Add(1)
				}
			}
		}
	}
}

// lockCalls keeps the calls under way as they are, those in detours too.
func (s *Session) lockCalls() (unlock func()) {
	s.frames.mu.Lock()
	s.view.RLock()
	return func() { s.view.RUnlock(); s.frames.mu.Unlock() }
}
