package text

import (
	"iter"
	"slices"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// Lifeline keeps the target alive should this controller die, by SIGKILL even, with breakpoints in
// place. It is there before the first of them and goes after the last. Targets that can have none
// do nothing here.
type Lifeline struct {
	t       target.Target
	alloc   target.Allocator
	catcher target.Catcher
	guarded target.Guarded
	report  func(error)

	trap     *lifeline.Trap // nil until it is in place
	frames   *lifeline.Frames
	old      target.Action      // the program's own, for its trap signal
	spent    bool               // it was for once (SA_RESETHAND), and has run
	inherits bool               // the one that is executed now ignores it
	parts    []arch.Range       // the trap's own memory first, then each room for entries
	exits    map[arch.Addr]bool // traps that programs may be sent to
	room     int                // entries that the last one holds, twice
	half     int                // which half of it is in use

	planned     *lifeline.Trap // that Start is to put in place
	plannedPart arch.Range
	plannedRoom int
}

// minEntries is the room for entries that a session begins with.
const minEntries = 4096

func newLifeline(t target.Target, report func(error)) Lifeline {
	l := Lifeline{t: t, report: report}
	l.alloc, _ = t.(target.Allocator)
	l.catcher, _ = t.(target.Catcher)
	l.guarded, _ = t.(target.Guarded)
	return l
}

// can tells whether the target can have a lifeline.
func (l *Lifeline) can() bool { return l.catcher != nil && l.guarded != nil && l.alloc != nil }

// On tells whether it is in place.
func (l *Lifeline) On() bool { return l.trap != nil }

// Catches tells whether the target's action for its trap signal can be changed.
func (l *Lifeline) Catches() bool { return l.catcher != nil }

// Parts are the parts of memory that the lifeline takes.
func (l *Lifeline) Parts() []arch.Range { return l.parts }

// Plan makes sure that there is a lifeline with room for so many entries. A new part, if
// one is needed, is where find finds memory that is free now; the target is not touched
// yet. It answers whether Start has anything to do.
func (l *Lifeline) Plan(m *lifeline.Machine, need int, find func(size int) (arch.Addr, error)) (bool, error) {
	need += len(l.exits)
	if !l.can() || l.On() && need <= l.room {
		return false, nil
	}
	room := max(minEntries, 2*need)
	size := 2 * lifeline.EntriesSize(room)
	if !l.On() {
		size += lifeline.TrapSize()
	}
	page := l.alloc.PageSize()
	size = (size + page - 1) &^ (page - 1)
	at, err := find(size)
	if err != nil {
		return false, err
	}
	if !l.On() {
		if m == nil {
			return false, lifeline.Missing(l.t.Arch())
		}
		trap := lifeline.NewTrap(m, at, uint64(time.Now().UnixNano()))
		if err := l.guarded.Guard(at, trap.ID); err != nil {
			return false, &errno.Error{Errno: syscall.EIO, Reason: "no guardian for the target", Err: err}
		}
		l.planned = trap
	}
	l.plannedPart, l.plannedRoom = arch.Range{Start: at, End: at + arch.Addr(size)}, room
	return true, nil
}

// Writes are the ranges that Start, and then lists of so many entries, write for the first time in
// the planned memory.
func (l *Lifeline) Writes(need int) (rs []arch.Range) {
	part := l.plannedPart
	if part.End == 0 {
		return nil
	}
	at := part.Start
	if l.planned != nil {
		rs = append(rs, arch.Range{Start: at, End: at + lifeline.CallRoomAt})
		at += arch.Addr(lifeline.TrapSize())
	}
	for range 2 {
		rs = append(rs, arch.Range{Start: at, End: at + arch.Addr(lifeline.EntriesSize(need+len(l.exits)))})
		at += arch.Addr(lifeline.EntriesSize(l.plannedRoom))
	}
	return rs
}

// Drop undoes Plan where nothing came of it.
func (l *Lifeline) Drop() {
	if l.planned != nil {
		l.guarded.Unguard()
	}
	l.planned, l.plannedPart = nil, arch.Range{}
}

// Start maps and fills the planned memory; the target is frozen. It is complete before the
// program's signal action leads there. Errors: those of alloc, which maps memory; the target's.
func (l *Lifeline) Start(alloc func(arch.Range) error) error {
	if l.plannedPart.End == 0 {
		return nil
	}
	part := l.plannedPart
	if heir, ok := l.t.(target.Heir); ok && !l.On() {
		heir.GiveBackLeft()
	}
	if err := alloc(part); err != nil {
		return err
	}
	l.plannedPart = arch.Range{}
	l.parts, l.room = append(l.parts, part), l.plannedRoom
	if l.planned == nil {
		return nil
	}
	l.trap = l.planned
	if err := l.install(); err != nil {
		l.report(l.alloc.Free(part.Start, int(part.End-part.Start)))
		l.trap, l.parts = nil, nil
		return err
	}
	l.frames, l.exits, l.planned = l.trap.NewFrames(), make(map[arch.Addr]bool), nil
	return nil
}

// install fills the new lifeline's memory and leads the program's signal action
// there.
func (l *Lifeline) install() (err error) {
	if l.old, err = l.catcher.TrapAction(); err != nil {
		return err
	}
	if l.inherits && l.old == (target.Action{}) {
		l.old = ignore(l.t.Arch())
	}
	l.inherits, l.spent = false, false
	l.catcher.OnTrapTaken(l.taken)
	ours := l.catcher.TrapHandler(l.trap.Handler(), l.trap.Restorer(), l.old)
	var at arch.Addr
	at, l.half = l.entriesAt()
	l.trap.SetEntries(at, nil) // the image says so
	if err = l.t.WriteAt(l.trap.Base, l.trap.Image(l.old)); err != nil {
		return err
	}
	if err = l.catcher.SetTrapAction(ours); err != nil {
		l.report(l.catcher.SetTrapAction(l.old)) // it may have been made nevertheless
	}
	return err
}

// entriesAt is the address of the next list of entries: in the newest part, in the half where the
// last one is not. Should we die while we write it, the last one holds.
func (l *Lifeline) entriesAt() (at arch.Addr, half int) {
	half = 1 - l.half
	at = l.parts[len(l.parts)-1].Start + arch.Addr(half*lifeline.EntriesSize(l.room))
	if len(l.parts) == 1 {
		at += arch.Addr(lifeline.TrapSize())
	}
	return at, half
}

// noting tells the lifeline which places are, or are about to be, armed.
type noting struct {
	lists []lifeline.Write // memory to which nothing leads yet
	head  []lifeline.Write // the word on them
	half  int
}

// note plans it; nil where there is no lifeline.
func (l *Lifeline) note(all iter.Seq2[*Place, bool]) *noting {
	if !l.On() {
		return nil
	}
	var es []lifeline.Entry
	for p, due := range all {
		site := p.Site
		if p.Text != Own || due {
			es = p.entries(es)
		}
		if sl := site.Step; sl != nil {
			e := lifeline.Entry{Addr: sl.Addr + arch.Addr(sl.BreakAt), Slot: sl.Next}
			e.Len = byte(copy(e.Original[:], site.Break))
			es = append(es, e)
		}
		if sl := site.Boost; sl != nil {
			for _, x := range sl.Exits {
				e := lifeline.Entry{Addr: sl.Addr + arch.Addr(x.Off), Slot: x.To}
				e.Len = byte(copy(e.Original[:], site.Break))
				es = append(es, e)
			}
		}
		if d := p.Detour; d != nil && d.Area.Runs() {
			l.exits[d.Area.TrapExit()] = true
		}
	}
	for at := range l.exits {
		// A trap like that at the end of a slot: behind it lies what it becomes a jump to.
		e := lifeline.Entry{Addr: at, Slot: at + arch.Addr(l.trap.Machine.BypassLen()), Len: byte(len(l.t.Arch().Break))}
		copy(e.Original[:], l.t.Arch().Break)
		es = append(es, e)
	}
	at, half := l.entriesAt()
	ws := l.trap.SetEntries(at, es)
	return &noting{ws[:len(ws)-1], ws[len(ws)-1:], half}
}

// NoteReturn tells it the trampoline that swapped return addresses lead to.
func (l *Lifeline) NoteReturn(at arch.Addr) error {
	if !l.On() {
		return nil
	}
	return put(l.t, l.trap.SetReturn(at))
}

// NoteFrame tells it, before a return address is swapped, which one it was. Where the
// table is full, under are the calls under way, of which there are n. Errors: ENOSPC.
func (l *Lifeline) NoteFrame(sp, real arch.Addr, under func() (n int, calls iter.Seq2[arch.Addr, arch.Addr])) error {
	if !l.On() {
		return nil
	}
	if l.frames.Crowded() {
		n, calls := under()
		if n > l.frames.Room() {
			return errno.New(syscall.ENOSPC, "%d calls are under way", n)
		}
		if err := put(l.t, l.frames.Rebuild(calls)); err != nil {
			return err
		}
	}
	w, changed := l.frames.Set(sp, real)
	if !changed {
		return nil
	}
	return l.t.WriteAt(w.Addr, w.New)
}

// End takes the lifeline away; the target is frozen and its text its own. It can be called again.
// Errors: target.ErrNotNow while a thread is in the handler. With anyhow the memory stays for it.
//
// The action stays, too, as long as it may be tried again: a thread that is led out makes single
// steps, and for the trap of each the kernel makes SIG_DFL of a SIG_IGN.
func (l *Lifeline) End(anyhow bool) error {
	if !l.On() {
		return nil
	}
	inhabited := l.inhabited()
	if inhabited && !anyhow {
		return target.ErrNotNow
	}
	if err := l.catcher.ReturnTrapAction(l.isOurs, l.own()); err != nil {
		return err // the handler must stay where the action leads
	}
	for len(l.parts) > 0 && l.t.Stuck() == 0 && !inhabited {
		part := l.parts[0]
		if err := l.alloc.Free(part.Start, int(part.End-part.Start)); err != nil {
			return err
		}
		l.parts = l.parts[1:]
	}
	l.Forget()
	l.inherits = false
	return nil
}

// Holds tells whether code of the lifeline's is at an address.
func (l *Lifeline) Holds(pc arch.Addr) bool {
	return slices.ContainsFunc(l.parts, func(r arch.Range) bool { return r.Contains(pc) })
}

// inhabited tells whether a thread of the frozen target is in the handler: the program was sent its
// trap signal, or has run into a trap of its own, and the handler is about to do as the program has
// asked. Nothing else leads back there: a thread gets no other signal while it is in there.
func (l *Lifeline) inhabited() bool {
	return slices.ContainsFunc(l.t.Threads(), func(th target.Thread) bool {
		var r arch.Regs
		return l.t.Regs(th, &r) == nil && l.Holds(r.Addr(l.t.Arch().PC))
	})
}

// LeadOut has a stopped thread go on to the end of the handler, if it is in there, which is not
// far. signal is the signal that the thread is about to get. It gets that behind the handler, for
// no frame of a signal may lead back to memory that goes with the session. left is another signal
// that stopped it on the way. It answers false for a thread that is elsewhere, or on a target that
// cannot lead it. Errors: as target.Driver.
func (l *Lifeline) LeadOut(th target.Thread, pc arch.Addr, signal int) (led bool, left int, err error) {
	driver, ok := l.t.(target.Driver)
	if !ok || !l.Holds(pc) {
		return false, signal, nil
	}
	err = driver.Drive(th, signal, func(r *arch.Regs, fault int) target.Move {
		if left = fault; fault != 0 || !l.Holds(r.Addr(l.t.Arch().PC)) {
			return target.MoveDone
		}
		return target.MoveStep
	})
	return true, left, err
}

// Forced tells whether the trap signal that a thread is reported for, and that was sent to it,
// stands for a trap that it has met as well. The thread blocked the signal then.
func (l *Lifeline) Forced(th target.Thread) bool { return l.On() && l.catcher.TrapForced(th) }

// isOurs tells an action that leads to the handler from one that the program has set itself since.
func (l *Lifeline) isOurs(a target.Action) bool { return l.trap.IsHandler(a) }

// Forget is for a target that has executed another program: nothing is left of the lifeline.
// Programs inherit that the signal is ignored. A handler in its place kept that from this one.
func (l *Lifeline) Forget() {
	l.inherits = l.On() && l.t.Arch().Order.Uint64(l.old[:]) == sigIgn
	l.trap, l.parts = nil, nil
}

// sigIgn is an action's first word, in place of a handler, where the signal is ignored.
const sigIgn = 1

// ignore is the action of a program that has inherited to ignore a signal.
func ignore(m *arch.Arch) (a target.Action) {
	m.Order.PutUint64(a[:], sigIgn)
	return a
}

// Unguard lets the guardian go.
func (l *Lifeline) Unguard() {
	if l.guarded != nil {
		l.guarded.Unguard()
	}
}

// LeaveIn takes it out of a child that was forked from the target. It answers what went
// wrong with the child's signal action.
func (l *Lifeline) LeaveIn(c target.Child) error {
	if !l.On() {
		return nil
	}
	err := c.ReturnTrapAction(l.isOurs, l.own())
	for _, part := range l.parts {
		c.Free(part.Start, int(part.End-part.Start))
	}
	return err
}

// Keep keeps the handler in place. The trap that a thread is reported for may have made the kernel
// take it away, or take away an action that the program has set itself since. Our handler then does
// that action on traps that are not ours.
func (l *Lifeline) Keep(th target.Thread) {
	if !l.On() {
		return
	}
	own, err := l.catcher.KeepTrapAction(th)
	if own != nil && err == nil {
		err = l.adopt(*own)
	}
	l.report(err)
}

// Ignored tells whether the trap signal that a thread is about to get was sent and must not reach
// the program, which ignored it before our traps made the kernel end that. One that our own handler
// sends ends the program as it would have ended.
func (l *Lifeline) Ignored(th target.Thread) bool {
	var r arch.Regs
	faulter, ok := l.t.(target.Faulter)
	if !ok || !l.On() || l.t.Regs(th, &r) != nil {
		return false
	}
	f, err := faulter.Fault(th)
	return err == nil && !f.Sync && !l.Holds(r.Addr(l.t.Arch().PC)) && l.catcher.IgnoresTraps()
}

// own is the program's action.
func (l *Lifeline) own() target.Action {
	if l.spent {
		return target.Action{} // SIG_DFL
	}
	return l.old
}

// taken is told of a thread that has been given its trap signal and stands where the handler
// begins: ours, or that of an action which the program has set since.
func (l *Lifeline) taken(own *target.Action) {
	const saResethand = 0x80000000
	order := l.t.Arch().Order
	switch {
	case !l.On():
	case own != nil:
		l.report(l.adopt(*own))
	case l.spent:
		l.report(l.adopt(target.Action{}))
	default:
		l.spent = order.Uint64(l.old[:]) > sigIgn && order.Uint64(l.old[8:])&saResethand != 0
	}
}

// adopt makes an action the program's.
func (l *Lifeline) adopt(own target.Action) error {
	if l.trap.IsHandler(own) {
		return nil // the program has put back the action that it had read
	}
	if err := put(l.t, l.trap.SetOld(own)); err != nil {
		return err
	}
	l.old, l.spent = own, false
	return l.catcher.SetTrapAction(l.catcher.TrapHandler(l.trap.Handler(), l.trap.Restorer(), own))
}
