package kprobe

import (
	"slices"
	"sync"

	"kprobe/internal/calls"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
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
		before := b.Mark()
		if s.prepare(b, p) != nil {
			b.Back(before)
			return
		}
		added = append(added, p)
	}
	for _, name := range returns.Everywhere(s.on.Image.Space, returns.Walkers) {
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
	for _, name := range returns.Everywhere(s.on.Image.Space, returns.Unwinders) {
		p := &Kprobe{SymbolName: name, PreHandler: func(_ *Kprobe, regs *Regs) int {
			s.endCalls(regs, s.unswap(regs))
			return 0
		}}
		if p.prepare(s) == nil {
			add(p)
		}
	}
	return added
}

// swaps tells whether the batch has a return probe that swaps return addresses.
func (b *batch) swaps() bool {
	return slices.ContainsFunc(b.Probes, (*probed.Probe).Swaps)
}

// unswapped is a return address that is in its place while its stack is walked.
type unswapped = calls.Unswapped[inside.Unswapped]

// unswap puts the return addresses of a thread's calls back, and tells which.
func (s *Session) unswap(regs *Regs) []unswapped {
	return calls.Unswap(s.calls, regs.spot(), s.within.Walked(regs.th, &regs.r))
}

// swapAgain undoes it.
func (s *Session) swapAgain(us []unswapped) { calls.SwapAgain(s.calls, us, s.within.Walked(0, nil)) }

// endCalls counts as unwound what may be over when the stack has been unwound.
func (s *Session) endCalls(regs *Regs, us []unswapped) {
	calls.End(s.calls, us, s.within.Walked(regs.th, &regs.r))
}
