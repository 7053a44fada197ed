package inside

import (
	"cmp"
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/isa"
	"kprobe/internal/segment"
	"kprobe/target"
)

// A thread that is inside a detour is nowhere, to its program. Whoever looks at
// it there (a signal handler, an unwinder, a debugger that comes later) must see it
// at the probe's address or behind it; see package inject for a detour's phases.

// Course is what is to be done with a thread that is about to get a signal.
type Course uint8

const (
	Elsewhere Course = iota // it is not in our code
	Mended                  // the signal is of our code's making: it goes on without, with registers as they are now
	Placed                  // the registers are the program's now, and it gets its signal
	AsItIs                  // it gets its signal where it stands
	Onward                  // it must come out first: see DriveOut
)

// Signalled looks at a thread that is stopped for a signal; own tells that its own
// instruction has raised it. The registers are changed where Course says so. The
// detour is the one whose displaced instruction has faulted, else nil. Errors: of the
// memory; then the course is AsItIs.
func (in *Inside) Signalled(r *arch.Regs, own bool, mem arch.Memory) (c Course, d *Detour, err error) {
	pc := r.Addr(in.arch.PC)
	d, busy := in.Find(pc), in.Busy(pc)
	if d == nil && !busy {
		return Elsewhere, nil, nil
	}
	if own {
		if mended, err := in.mend(r, mem); mended {
			return Mended, nil, err
		}
	}
	if d == nil {
		return Onward, nil, nil
	}
	at, err := d.Where(r, mem.ReadAt)
	switch {
	case err != nil:
		return AsItIs, nil, err
	case at.Phase == inject.Displaced && own:
		return Placed, d, leave(at, r, mem)
	case at.Phase == inject.Displaced && (in.arch.InSyscall(r) || in.arch.SyscallNo == arch.NoReg && in.blocks(mem, pc)):
		// A system call is interrupted. The kernel may have to make it again, and for
		// that it must find it where it was.
		return AsItIs, nil, nil
	case at.Phase == inject.Displaced && pc >= d.tail.Addr && d.behind(at.Regs.Addr(in.arch.PC)):
		return Onward, nil, nil // it would come by the jump, and has been counted
	case d.Together():
		if at.Counted { // it comes again
			in.Seg.Uncount(d.Hits)
		}
		return Placed, nil, leave(at, r, mem)
	case at.Phase == inject.Before:
		return Placed, nil, leave(at, r, mem)
	}
	return Onward, nil, nil
}

// leave makes registers those that the program would have.
func leave(at *inject.Standing, r *arch.Regs, mem arch.Memory) error {
	*r = at.Regs
	if at.Busy != 0 {
		return mem.WriteAt(at.Busy, []byte{0})
	}
	return nil
}

// DriveOut has a thread that is stopped for a signal go on until it is out of our
// code. It answers the signal that it is to be resumed with: that of a fault that
// stopped it on the way, else none, since what it was about to get waits for it.
func (in *Inside) DriveOut(driver target.Driver, th target.Thread, signal int, mem arch.Memory) (left int, err error) {
	return in.drive(driver, th, signal, mem, func(r *arch.Regs) bool { return in.blocks(mem, r.Addr(in.arch.PC)) })
}

// Serve has a thread that stands at a probe's address be served by a detour, and no more: it
// comes back to that address with the instruction still before it, and served is true. It is false
// where a program has sent it elsewhere, to the caller that is, and where a fault has stopped it on
// the way: left is its signal then, which the thread is to be looked at for like any that it gets.
// Errors: ErrGone; the target's.
func (in *Inside) Serve(t target.Target, driver target.Driver, th target.Thread, d *Detour) (served bool, left int, err error) {
	if d.Together() {
		in.Seg.Count(d.Hits)
		return true, 0, nil
	}
	left, err = in.drive(driver, th, 0, t, func(r *arch.Regs) bool {
		switch r.Addr(in.arch.PC) {
		case d.Site:
			r[in.arch.PC] = uint64(d.ServeAt())
		case d.tail.Addr:
			r[in.arch.PC], served = uint64(d.Site), true
		}
		return served
	})
	return served, left, err
}

// drive has a thread go on until it is out of our code, or end says so, which may change its
// registers. Programs run on their own to their end, where a trap waits for them.
func (in *Inside) drive(driver target.Driver, th target.Thread, signal int, mem arch.Memory, end func(*arch.Regs) bool) (left int, err error) {
	running := false // a program, to its end
	err = driver.Drive(th, signal, func(r *arch.Regs, fault int) target.Move {
		pc := r.Addr(in.arch.PC)
		if a := in.Area(pc); a != nil && a.Exits(pc) {
			back, err := in.word(mem, in.Seg.BackAt(r))
			if err != nil {
				return target.MoveDone
			}
			r[in.arch.PC], running = uint64(back), false
			return target.MoveStep
		}
		if fault != 0 {
			if mended, err := in.mend(r, mem); !mended || err != nil {
				left = fault
				return target.MoveDone
			}
		}
		switch {
		case running:
			return target.MoveRun
		case in.Running(pc):
			if running = in.comeBack(r, mem); !running {
				return target.MoveDone
			}
			return target.MoveRun
		case end(r):
			return target.MoveDone
		}
		if pc = r.Addr(in.arch.PC); in.Find(pc) == nil && !in.Busy(pc) {
			return target.MoveDone
		}
		if a := in.Area(pc); a != nil {
			a.Atomically(r)
		}
		return target.MoveStep
	})
	return left, err
}

// comeBack has the program that a thread runs return to a trap. Where it would have returned is
// in the target: the thread may get there when this controller is dead.
func (in *Inside) comeBack(r *arch.Regs, mem arch.Memory) bool {
	slot := in.Seg.ReturnTo(r)
	word, err := in.word(mem, slot)
	if err != nil {
		return false
	}
	if a := in.Area(word); a != nil && word == a.TrapExit() {
		return true // since before a fault
	}
	d := in.Find(word)
	return d != nil && in.putWord(mem, in.Seg.BackAt(r), word) == nil && in.putWord(mem, slot, d.Area.TrapExit()) == nil
}

// blocks tells whether the instruction at an address may take for ever.
func (in *Inside) blocks(mem arch.Memory, pc arch.Addr) bool {
	b := make([]byte, in.arch.MaxInsn)
	if mem.ReadAt(pc, b) != nil {
		return true
	}
	insn, err := in.cfg.Machine.ISA.Decode(b, pc)
	return err != nil || insn.Flow == isa.Syscall
}

// GiveBackIn puts the real return addresses of all calls back in a copy of the target's
// memory, or in that of a target which is about to end: nobody returns to us there.
func (in *Inside) GiveBackIn(mem arch.Memory) (err error) {
	for _, c := range in.Seg.Calls() {
		if word, e := in.word(mem, c.Slot); e == nil && in.Find(word) != nil {
			err = errors.Join(err, in.putWord(mem, c.Slot, c.Ret))
		}
	}
	return err
}

// LeaveIn takes a thread of a forked child, whose memory mem is, out of our code. It answers
// whether the registers have changed.
func (in *Inside) LeaveIn(r *arch.Regs, mem arch.Memory) (moved bool, err error) {
	d := in.Find(r.Addr(in.arch.PC))
	if d == nil {
		return false, nil
	}
	at, err := d.Where(r, mem.ReadAt)
	if err != nil {
		return false, err
	}
	if at.Phase == inject.Returning {
		slot := at.Regs.Addr(in.arch.SP) - arch.Addr(in.arch.PtrSize)
		i := slices.IndexFunc(in.Seg.Calls(), func(c segment.Call) bool { return c.Slot == slot })
		if i < 0 {
			return false, nil // it is about to have its address back
		}
		at.Regs[in.arch.PC] = uint64(in.Seg.Calls()[i].Ret)
	}
	*r = at.Regs
	return true, nil
}

// Retire takes a detour that nothing leads to any more out of use. A thread may
// still be in it, so it keeps its memory until it is vacant, and dropped.
func (in *Inside) Retire(d *Detour) {
	d.retired = true
	in.retired = append(in.retired, d)
}

// Retired are the detours that were retired and not dropped.
func (in *Inside) Retired() []*Detour { return in.retired }

// Linger tells whether programs of retired detours run, or may be come back to by a call that is under way.
// The target is frozen.
func (in *Inside) Linger(ds []*Detour, t target.Target) bool {
	left, returns := make(map[*Detour]bool), make(map[uint32]bool)
	for _, d := range ds {
		if d.vacant {
			continue
		}
		left[d] = true
		if d.Returns() {
			returns[d.Detour.Return.ID] = true
		}
	}
	if len(left) == 0 {
		return false
	}
	if slices.ContainsFunc(in.Seg.Calls(), func(c segment.Call) bool { return returns[c.Probe] }) {
		return true
	}
	for _, th := range t.Threads() {
		var r arch.Regs
		if t.Regs(th, &r) != nil {
			continue
		}
		if in.Busy(r.Addr(in.arch.PC)) {
			callers, err := in.callers(&r, t)
			if err != nil || slices.ContainsFunc(callers, func(d *Detour) bool { return left[d] }) {
				return true
			}
			continue
		}
		d := in.Find(r.Addr(in.arch.PC))
		if !left[d] {
			continue
		}
		at, err := d.Where(&r, t.ReadAt)
		if err != nil || at.Phase != inject.After && at.Phase != inject.Displaced && at.Phase != inject.Returned {
			return true
		}
	}
	return false
}

// Displaced shows a thread that stands among the displaced instructions of a detour
// as the program sees it; ok is false, and r as it was, where it does not.
func (in *Inside) Displaced(r *arch.Regs, mem arch.Memory) (d *Detour, ok bool) {
	if d = in.Find(r.Addr(in.arch.PC)); d == nil {
		return nil, false
	}
	at, err := d.Where(r, mem.ReadAt)
	if err != nil || at.Phase != inject.Displaced {
		return d, false
	}
	*r = at.Regs
	return d, true
}

// LeaveRetired takes a stopped thread out of a retired detour, if it is at a place
// where that can be done; else it comes out by itself. So does who has been served, where there
// is a probe again, and would be served once more. before tells that nothing had happened to it yet.
func (in *Inside) LeaveRetired(r *arch.Regs, mem arch.Memory, probed func(arch.Addr) bool) (left, before bool) {
	d := in.Find(r.Addr(in.arch.PC))
	if d == nil || !d.retired {
		return false, false
	}
	at, err := d.Where(r, mem.ReadAt)
	served := at != nil && (at.Phase == inject.After || at.Phase == inject.Displaced)
	if err != nil || at.Phase != inject.Before && !served || served && probed(d.Site) {
		return false, false
	}
	return leave(at, r, mem) == nil, !served
}

// FindVacant finds out which retired detours no thread stands in any more, and puts back
// the real return addresses of the calls that would return there. The target is frozen.
func (in *Inside) FindVacant(t target.Target) {
	if len(in.retired)+len(in.returns.over) == 0 || t.Stuck() > 0 {
		return
	}
	stands := make(map[*Detour]bool)
	for _, th := range t.Threads() {
		var r arch.Regs
		if err := t.Regs(th, &r); errors.Is(err, target.ErrGone) {
			continue
		} else if err != nil {
			return
		}
		at := []*Detour{in.Find(r.Addr(in.arch.PC))}
		if in.Busy(r.Addr(in.arch.PC)) {
			var err error
			if at, err = in.callers(&r, t); err != nil {
				return // which detour waits for it?
			}
		}
		for _, d := range at {
			if d != nil && d.Detour.Gate {
				return // which does it lead to?
			}
			stands[d] = true
		}
	}
	if m, ok := t.(target.Machine); ok {
		resting, err := m.Resting(func(a arch.Addr) bool { return in.Find(a) != nil || in.Busy(a) })
		if err != nil {
			return
		}
		for _, a := range resting {
			if in.Busy(a) {
				return
			}
			stands[in.Find(a)] = true
		}
		if in.Seg.Gate && in.trapping {
			if tr, ok := t.(target.Trapper); !ok || tr.Passing() {
				return // which detour is it on its way to?
			}
			in.Seg.ForgetTraps()
		}
	}
	calls := in.Seg.Calls()
	returns := make(map[uint32]*Detour)
	for _, d := range in.retired {
		d.vacant = !stands[d]
		if len(calls) > 0 && d.Returns() && d.vacant { // those that a thread stands in are not in their places yet
			returns[d.Detour.Return.ID] = d
		}
	}
	for _, c := range calls {
		if d := returns[c.Probe]; d != nil {
			in.giveBack(d, c, t)
		}
	}
	in.purge()
}

// giveBack puts the real return address back of a call that would return into a detour, in
// its slot, or where the call that it ended in has it.
func (in *Inside) giveBack(d *Detour, c segment.Call, mem arch.Memory) {
	ret, err := d.ReturnAt()
	if word, e := in.word(mem, c.Slot); err == nil && e == nil && word == ret {
		in.putWord(mem, c.Slot, c.Ret)
	} else if err == nil {
		in.Seg.Mend(c.Slot, ret, c.Ret)
		in.redirects = append(in.redirects, Redirect{c.Slot, ret, c.Ret})
	}
	if err == nil {
		in.Seg.Redirect(c.Slot, ret, c.Ret)
	}
	in.Seg.Drop(c)
}

// Redirect tells that the call at a stack slot which would return to one address shall to
// another, wherever its return address is kept.
type Redirect struct{ Slot, From, To arch.Addr }

// Redirects are those since it was last asked. Who has swapped return addresses after a detour
// has to follow them before the target runs.
func (in *Inside) Redirects() (rs []Redirect) {
	rs, in.redirects = in.redirects, nil
	return rs
}

// DropVacant gives the memory of vacant detours back. fold is told of each while it
// still has its counts. It looks at the retired ones alone: there may be very many others.
func (in *Inside) DropVacant(fold func(*Detour)) {
	var gone, stubs []*Detour
	for _, d := range in.retired {
		if !d.vacant {
			continue
		}
		fold(d)
		in.places.Release(d.place)
		in.giveUp(d)
		if gone = append(gone, d); d.place.Stub != 0 {
			stubs = append(stubs, d)
		}
	}
	if len(gone) == 0 {
		return
	}
	in.detours = less(in.detours, gone, func(d *Detour) arch.Addr { return d.At })
	in.stubs = less(in.stubs, stubs, func(d *Detour) arch.Addr { return d.place.Stub })
	in.retired = slices.DeleteFunc(in.retired, func(d *Detour) bool { return d.vacant })
}

// less is a list without some of it, which is in the order of addresses: what is between those is copied as it is.
func less[T comparable](have, gone []T, at func(T) arch.Addr) []T {
	gone = slices.SortedFunc(slices.Values(gone), func(a, b T) int { return cmp.Compare(at(a), at(b)) })
	left, from := make([]T, 0, len(have)), 0
	for _, g := range gone {
		i, ok := slices.BinarySearchFunc(have[from:], at(g), func(d T, a arch.Addr) int { return cmp.Compare(at(d), a) })
		if !ok || have[from+i] != g {
			continue
		}
		left = append(left, have[from:from+i]...)
		from += i + 1
	}
	return append(left, have[from:]...)
}

func (in *Inside) word(mem arch.Memory, at arch.Addr) (arch.Addr, error) {
	b := make([]byte, in.arch.PtrSize)
	err := mem.ReadAt(at, b)
	return arch.Addr(in.arch.Word(b)), err
}

func (in *Inside) putWord(mem arch.Memory, at, v arch.Addr) error {
	b := make([]byte, in.arch.PtrSize)
	in.arch.PutWord(b, uint64(v))
	return mem.WriteAt(at, b)
}
