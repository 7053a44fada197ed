package kprobe

import (
	"iter"
	"slices"
	"sync"

	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/mem"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// frame is one call whose return address has been swapped for the
// trampoline's. Its key is the address of the stack slot that holds it: that
// is unique in the process, whichever thread or coroutine runs on the stack.
type frame struct {
	real      arch.Addr // what was in the slot: the return address, or a detour's
	thread    target.Thread
	instances []*KretprobeInstance // oldest first: several probes, or tail calls
	bared     bool                 // the return address is in the slot, while a stack is walked (walk.go)
	outer     *frame               // of a call whose slot the target has used anew, and will come back to
}

// frames are the calls under way.
type frames struct {
	mu         sync.Mutex
	trampoline arch.Addr // a breakpoint in the target; 0 until one is needed
	at         map[arch.Addr]*frame

	// What follows is the other engine's.
	calls  returns.Calls[*Kretprobe, *KretprobeInstance]
	native returns.Stacks
}

func (f *frames) init() {
	f.at = make(map[arch.Addr]*frame)
}

func (f *frames) isTrampoline(pc arch.Addr) bool { return f.trampoline != 0 && pc == f.trampoline }

// entered is the pre-handler of a return probe: it takes an instance and
// swaps the return address.
func (rp *Kretprobe) entered(p *Kprobe, regs *Regs) int {
	s := regs.s
	f := &s.frames
	sp := regs.SP()
	ret, err := regs.Word(sp)
	if err != nil {
		rp.miss()
		return 0
	}
	f.mu.Lock()
	fr := f.at[sp]
	// Where a detour has swapped it once more, after us, this is a call that ours
	// ended in: it comes back to the trampoline, too, when the detour's return is over.
	swapped := arch.Addr(ret) == f.trampoline || fr != nil && f.kept(s, sp, arch.Addr(ret))
	var outer *frame
	if fr != nil && !swapped {
		if outer, fr = fr, nil; !f.swapped(s, sp) { // else this one is its tail call
			f.abandon(sp, outer) // its slot has been used anew: that call never returned
			outer = nil
		}
	}
	if swapped && fr == nil {
		f.mu.Unlock()
		rp.miss() // not a return address of ours; leave it alone
		return 0
	}
	if rp.active >= rp.MaxActive {
		f.reclaim(s, rp, regs)
	}
	if rp.active >= rp.MaxActive {
		f.mu.Unlock()
		rp.miss()
		return 0
	}
	ri := rp.take()
	ri.RetAddr = f.comesBackTo(s, sp, arch.Addr(ret))
	f.mu.Unlock()

	ri.Entry, ri.Task, ri.Tail = p.Addr, regs.Task(), false
	if !s.wanted(rp, ri, regs) {
		f.mu.Lock()
		rp.give(ri)
		f.mu.Unlock()
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fr == nil {
		next := arch.Addr(ret) // a detour's, perhaps, which a call that ended in this one has swapped
		if s.text.Lifeline.NoteFrame(sp, next, f.underWay(s)) != nil || s.putWord(sp, uint64(f.trampoline)) != nil {
			rp.give(ri)
			rp.miss()
			return 0
		}
		fr = &frame{real: next, thread: regs.th, outer: outer}
		f.at[sp] = fr
	}
	fr.instances = append(fr.instances, ri)
	return 0
}

func (rp *Kretprobe) miss() {
	rp.nmissed.Add(1)
	rp.Kp.missed.Add(1)
}

// take gives out an instance with clean private data.
func (rp *Kretprobe) take() *KretprobeInstance {
	rp.active++
	if n := len(rp.free); n > 0 {
		ri := rp.free[n-1]
		rp.free = rp.free[:n-1]
		clear(ri.Data)
		return ri
	}
	return &KretprobeInstance{Rp: rp, Data: make([]byte, rp.DataSize)}
}

func (rp *Kretprobe) give(ri *KretprobeInstance) {
	if ri.orphan {
		return
	}
	rp.active--
	rp.free = append(rp.free, ri)
}

// abandon forgets a call that will not return through the trampoline.
func (f *frames) abandon(sp arch.Addr, fr *frame) {
	fr.giveUp(longjmp)
	delete(f.at, sp)
}

// giveUp takes the instances off a call that seems to be over. The call itself
// is kept: whether a coroutine was dropped or only waits, nobody can tell from
// outside, and should it return after all, it must come to the right place.
func (fr *frame) giveUp(why loss) {
	for _, ri := range fr.instances {
		if !ri.orphan {
			ri.lose(why)
		}
	}
	fr.instances = nil
}

// dropLeaving takes those instances off a call that has come back whose probes are being unregistered. Here on
// the owner thread: handlers that are on their way to goroutines are waited for, and later ones must not touch
// a probe that may be somebody's again.
func (fr *frame) dropLeaving() {
	fr.instances = slices.DeleteFunc(fr.instances, func(ri *KretprobeInstance) bool {
		leaving := !ri.orphan && ri.Rp.Kp.leaving.Load()
		if leaving {
			ri.lose(unregistered)
		}
		return leaving || ri.orphan
	})
}

// orphan lets the calls of an unregistered probe return unreported.
func (f *frames) orphan(rp *Kretprobe) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fr := range f.at {
		for ; fr != nil; fr = fr.outer {
			for _, ri := range fr.instances {
				if ri.Rp == rp && !ri.orphan {
					ri.orphan = true
					rp.lost[unregistered].Add(1)
				}
			}
		}
	}
	gone := f.calls.Drop(func(_ returns.Place, of *Kretprobe, _ *KretprobeInstance) bool { return of == rp })
	rp.lost[unregistered].Add(uint64(len(gone)))
	rp.active, rp.free = 0, nil
}

// reclaim looks for instances whose calls are over although they never
// returned (longjmp, coroutines that were dropped): the stack slot no longer
// holds the trampoline, or lies below the stack pointer of its own thread.
func (f *frames) reclaim(s *Session, rp *Kretprobe, regs *Regs) {
	for sp, fr := range f.at {
		mine := slices.ContainsFunc(fr.instances, func(ri *KretprobeInstance) bool { return ri.Rp == rp })
		switch {
		case !mine && len(fr.instances) > 0:
		case f.left(s, sp):
			f.abandon(sp, fr)
		case mine && fr.thread == regs.th && sp < regs.SP() && s.sameStack(sp, regs.SP()):
			fr.giveUp(longjmp)
		}
	}
}

// swapped tells whether a call will return to the trampoline.
func (f *frames) swapped(s *Session, sp arch.Addr) bool {
	return len(f.places(s, sp)) > 0 || f.inDetour(s, sp)
}

// left tells whether a call will not return to the trampoline. Its thread may be running: so it is told
// by one look at the slot, and whatever may be in there before our trap is hit is no sign. That is, besides
// the trampoline's address, the return address of any detour, whatever its calls are: on its way back a
// thread has taken its call off the list before it puts the trampoline's address there.
func (f *frames) left(s *Session, sp arch.Addr) bool {
	if fr := f.at[sp]; fr != nil && fr.bared {
		return false
	}
	word, err := s.word(sp)
	if at := arch.Addr(word); err == nil && (at == f.trampoline || s.returnsInside(at)) {
		return false
	}
	return len(f.places(s, sp)) == 0 && !s.carried()
}

// returnsInside tells whether calls with this return address come back into a detour.
func (s *Session) returnsInside(ret arch.Addr) bool {
	s.view.RLock()
	defer s.view.RUnlock()
	return s.inside != nil && s.inside.Returns(ret)
}

// comesBackTo is where a call with a stack slot comes back to in the program, where the slot holds ret:
// detours and the controller may have swapped it, in any order.
func (f *frames) comesBackTo(s *Session, sp, ret arch.Addr) arch.Addr {
	for fr := f.at[sp]; ; fr = fr.outer {
		ret = s.following(sp, ret)
		if fr == nil || ret != f.trampoline {
			return ret
		}
		ret = fr.real
	}
}

// carried tells whether a return address may be where places does not find it.
func (s *Session) carried() bool {
	k, ok := s.t.(target.Keeper)
	return ok && k.Carried()
}

// places are where the trampoline's address is kept for the calls with a stack
// slot, the last call first: in the slot, and where the target put it.
func (f *frames) places(s *Session, sp arch.Addr) (at []arch.Addr) {
	if word, err := s.word(sp); err == nil && arch.Addr(word) == f.trampoline {
		at = append(at, sp)
	}
	if k, ok := s.t.(target.Keeper); ok && (len(at) == 0 || f.at[sp].outer != nil) {
		at = append(at, k.Kept(sp, f.trampoline)...)
	}
	return at
}

// inDetour tells whether a call will return to the trampoline by way of a detour, which has
// swapped its return address after us.
func (f *frames) inDetour(s *Session, sp arch.Addr) bool {
	word, err := s.word(sp)
	return err == nil && f.kept(s, sp, arch.Addr(word))
}

// kept tells whether a call that would return to an address of ours inside the target comes to
// the trampoline from there.
func (f *frames) kept(s *Session, sp, ret arch.Addr) bool {
	return ret != f.trampoline && s.following(sp, ret) == f.trampoline
}

// following is where a call with a stack slot goes in the end, when the returns that
// run inside the target are over. view is not held.
func (s *Session) following(sp, ret arch.Addr) arch.Addr {
	s.view.RLock()
	defer s.view.RUnlock()
	if s.inside != nil {
		ret = s.inside.Follow(sp, ret)
	}
	return ret
}

// redirect has calls go on to another address than that of a detour which is no more.
// The target is frozen.
func (f *frames) redirect(s *Session, rs []inside.Redirect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rs {
		if fr := f.at[r.Slot]; fr != nil && fr.real == r.From {
			fr.real = r.To
			s.report(s.text.Lifeline.NoteFrame(r.Slot, r.To, f.underWay(s)))
		}
	}
}

// sameStack tells whether two addresses lie in one mapping.
func (s *Session) sameStack(a, b arch.Addr) bool {
	maps, err := s.t.Maps()
	return err == nil && symbol.SameMapping(maps, uint64(a), uint64(b))
}

// returned deals with a thread that has come to the trampoline.
func (s *Session) returned(h *hit) {
	f := &s.frames
	f.mu.Lock()
	sp, fr := returns.Popped(f.at, h.regs.SP(), s.arch)
	if fr == nil {
		f.mu.Unlock()
		// Nothing is known of this call. To send the thread anywhere would be a
		// guess; it gets the signal that the trap stands for.
		s.report(fail(0, "thread %d returned to the trampoline with no call known at %v", int(h.regs.th), h.regs.SP()))
		s.t.Resume(h.regs.th, trapSignal)
		return
	}
	delete(f.at, sp)
	if fr.outer != nil {
		f.at[sp] = fr.outer
	}
	back := f.comesBackTo(s, sp, fr.real)
	fr.dropLeaving()
	f.mu.Unlock()
	h.regs.SetPC(back)
	goOn := func() {
		if h.regs.PC() == back { // else a handler wants it elsewhere
			h.regs.SetPC(fr.real)
		}
		s.resume(h, h.signal)
	}
	if !s.opts.Concurrent {
		s.returnHandlers(h, fr)
		goOn()
		return
	}
	s.aside(func() (then func()) {
		s.returnHandlers(h, fr)
		return goOn
	})
}

// trapSignal is SIGTRAP.
const trapSignal = 5

// returnHandlers runs the handlers of every probe on the call, newest first.
func (s *Session) returnHandlers(h *hit, fr *frame) {
	for i := len(fr.instances) - 1; i >= 0; i-- {
		ri := fr.instances[i]
		rp := ri.Rp
		if rp.Kp.leaving.Load() {
			s.frames.mu.Lock()
			ri.lose(unregistered)
			s.frames.mu.Unlock()
			continue
		}
		rp.returned.Add(1)
		if rp.Handler != nil {
			s.callReturn(rp, ri, &h.regs)
		}
		s.frames.mu.Lock()
		rp.give(ri)
		s.frames.mu.Unlock()
	}
}

// wanted runs the entry handler, and tells whether the call's return is to be reported. After a
// panic it is not: the private data may be half of what the other handler expects.
func (s *Session) wanted(rp *Kretprobe, ri *KretprobeInstance, r *Regs) (yes bool) {
	if rp.EntryHandler == nil {
		return true
	}
	defer func() {
		if e := recover(); e != nil {
			rp.nmissed.Add(1)
			s.handlerFault(&rp.Kp, r, e)
		}
	}()
	return rp.EntryHandler(ri, r) == 0
}

func (s *Session) callReturn(rp *Kretprobe, ri *KretprobeInstance, r *Regs) {
	defer func() {
		if e := recover(); e != nil {
			s.handlerFault(&rp.Kp, r, e)
		}
	}()
	rp.Handler(ri, r)
}

// dropThread gives up the calls of a thread that is gone. Not those that
// another has taken over, with the coroutine that made them: they return.
func (f *frames) dropThread(th target.Thread) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fr := range f.at {
		if fr.thread == th {
			fr.giveUp(exited)
		}
	}
}

// prune forgets what was given up and whose stack has been used anew since.
func (f *frames) prune(s *Session) {
	for sp, fr := range f.at {
		if len(fr.instances) == 0 && f.left(s, sp) {
			delete(f.at, sp)
		}
	}
}

// underWay forgets what can be forgotten and tells what calls are under way then.
func (f *frames) underWay(s *Session) func() (int, iter.Seq2[arch.Addr, arch.Addr]) {
	return func() (int, iter.Seq2[arch.Addr, arch.Addr]) {
		f.prune(s)
		return len(f.at), func(yield func(sp, real arch.Addr) bool) {
			for sp, fr := range f.at {
				if !yield(sp, fr.real) {
					return
				}
			}
		}
	}
}

// giveBack puts every real return address back; the target is frozen, and the
// trampoline is about to go. While a detour has one to return to, that fails, or
// anyhow is done although a thread may have fetched it by now.
func (f *frames) giveBack(s *Session, anyhow bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !anyhow && len(f.at) > 0 && s.carried() {
		return target.ErrNotNow
	}
	for sp, fr := range f.at {
		at := f.places(s, sp)
		if len(at) == 0 && f.inDetour(s, sp) { // of one that is not vacant
			if !anyhow {
				return target.ErrNotNow
			}
			s.inside.Seg.Mend(sp, f.trampoline, fr.real)
		}
		if word, err := s.word(sp); len(at) == 0 && err == nil && !anyhow && s.returnsInside(arch.Addr(word)) {
			return target.ErrNotNow // its thread is on its way here
		}
		for ; len(at) > 0 && fr != nil; at, fr = at[1:], fr.outer {
			if err := mem.PutWord(s.t, s.arch, at[0], uint64(fr.real)); err != nil {
				return err
			}
		}
	}
	// A thread may stand just behind its return, on the trampoline itself.
	for _, th := range s.t.Threads() {
		var r arch.Regs
		if s.t.Regs(th, &r) != nil {
			continue
		}
		pc := arch.Addr(r[s.arch.PC])
		if !f.isTrampoline(pc) {
			continue
		}
		if _, fr := returns.Popped(f.at, arch.Addr(r[s.arch.SP]), s.arch); fr != nil {
			r[s.arch.PC] = uint64(fr.real)
			s.t.SetRegs(th, &r)
		}
		for i, st := range s.stops {
			if st.Thread == th && st.Back {
				s.stops[i].Kind = target.StopWoken
				s.t.Resume(th, 0)
			}
		}
	}
	clear(f.at)
	f.trampoline = 0
	return nil
}

// restore writes the real return addresses into the memory of a child that was
// forked from the target. It answers the first failure, and what it has put back
// stays so.
func (f *frames) restore(s *Session, m mem.ReadWriter) (err error) {
	for sp, fr := range f.at {
		word, e := mem.Word(m, s.arch, sp)
		if e != nil || s.following(sp, arch.Addr(word)) != f.trampoline {
			continue // the stack has been used for something else
		}
		if e := mem.PutWord(m, s.arch, sp, uint64(s.following(sp, fr.real))); err == nil {
			err = e
		}
	}
	return err
}

// countEnded gives up the calls that are over although they did not return, as the stacks of
// the frozen target show: those below a stack pointer on the stack that its thread was born with.
// On other stacks, coroutines', nothing tells. Of the probes that leave, more is asked.
func (s *Session) countEnded(leaving []*Kprobe) {
	f := &s.frames
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range leaving {
		if rp := p.as().returns(); rp != nil {
			s.sweep(rp)
			s.sweepInside(rp)
		}
	}
	if s.machine != nil || len(f.at)+f.calls.Len() == 0 {
		return
	}
	for _, th := range s.t.Threads() {
		regs := Regs{s: s, th: th}
		if s.t.Regs(th, &regs.r) != nil {
			continue // it has ended
		}
		at := s.place(&regs)
		s.settle(at, regs.Task())
		if at.Stack == 0 {
			continue
		}
		limit := regs.SP()
		if s.returning(regs.PC()) {
			limit -= arch.Addr(s.arch.PtrSize)
		}
		for slot, fr := range f.at {
			if f.left(s, slot) || slot < limit && f.native.Of(int(th), s.t.PID(), slot, s.arch.ThreadPointer(&regs.r), s.t.Maps) == at.Stack {
				for ; fr != nil; fr = fr.outer {
					fr.giveUp(longjmp)
				}
			}
		}
	}
}

// returning tells whether a stopped thread may be behind its return and before we have seen it.
func (s *Session) returning(pc arch.Addr) bool {
	f := &s.frames
	return f.isTrampoline(pc) || f.isTrampoline(pc-arch.Addr(s.arch.BreakPC)) || s.inside != nil && s.inside.Busy(pc) || s.inside != nil && s.inside.Find(pc) != nil
}
