package inside

import (
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/returns"
	"kprobe/internal/segment"
	"kprobe/target"
)

// Acquaintance is what there is to know of threads besides their registers.
type Acquaintance struct {
	Comm   func(target.Thread) string
	Stacks []arch.Range // memory that a thread's stack may be a range of, where that is known
}

// Trust looks at all threads of a frozen target. If each of them can be known by memory that its thread
// pointer leads to, detours look there from now on, which is quickest; else they are careful, for the
// sake of those that cannot: a program that has not set up its thread-local storage yet, or never will.
// They stay careful, too, while a thread may be on its way by a key that it has no more.
// A program in which a thread has lost its pointer while it was relied on is not trusted again. Threads that have a
// pointer in common are known by their ids from then on. It answers whether the detours trust. Errors: of the target's memory.
func (in *Inside) Trust(t target.Target, known Acquaintance) (bool, error) {
	if in.cfg.Key.Kind != segment.FSSelf {
		return true, nil
	}
	careful, within := in.betrayed.Load(), t.Stuck() > 0
	pointers := make(map[uint64]int)
	for _, th := range t.Threads() {
		var r arch.Regs
		switch err := t.Regs(th, &r); {
		case errors.Is(err, target.ErrGone):
			continue
		case err != nil:
			careful, within = true, true
			continue
		case !in.proven(th, &r, t):
			careful = true
		}
		if _, borrowed := lender(t, th); !borrowed {
			pointers[in.pointer(th, &r)]++
		}
		pc := r.Addr(in.arch.PC)
		within = within || in.Busy(pc) || in.Find(pc) != nil
	}
	was, settle := in.Seg.Careful(), !in.Seg.Settled()
	if settle && !within {
		in.Seg.Settle(func(pointer uint64) int { return pointers[pointer] })
	}
	for pointer, n := range pointers {
		if n > 1 { // since before we came, or since a birth at which neither was known by it
			tid, _ := in.Seg.Owner(pointer)
			in.Seg.Share(pointer, tid)
		}
	}
	if err := in.setCareful(careful || in.Seg.Crossed(), t); err != nil {
		return false, err
	}
	if was && (!careful || settle && !within) {
		for _, th := range t.Threads() {
			in.rename(t, th, known)
		}
	}
	return !in.Seg.Careful(), nil
}

// Careful tells whether Trust may change something.
func (in *Inside) Careful() bool { return in.Seg.Careful() && !in.betrayed.Load() }

// pointer is a stopped thread's thread pointer.
func (in *Inside) pointer(th target.Thread, r *arch.Regs) uint64 {
	if in.cfg.pointer == nil {
		return in.arch.ThreadPointer(r)
	}
	pointer, err := in.cfg.pointer(th)
	if err != nil {
		return 0
	}
	return pointer
}

// lender finds the thread whose thread pointer another has, which waits for that one; false for a thread with its own.
func lender(t target.Target, th target.Thread) (of target.Thread, ok bool) {
	if b, may := t.(target.Borrower); may {
		return b.Borrows(th)
	}
	return of, false
}

// proven tells whether the word that a thread's pointer points to is that pointer. Where it is read as the
// register that it is, it need only be one that could be a key.
func (in *Inside) proven(th target.Thread, r *arch.Regs, mem arch.Memory) bool {
	pointer := in.pointer(th, r)
	if in.cfg.pointer != nil {
		return segment.Keyed(pointer)
	}
	word, err := in.word(mem, arch.Addr(pointer))
	return err == nil && pointer != 0 && uint64(word) == pointer
}

// setCareful tells every area; those that are only planned are told when they are committed.
func (in *Inside) setCareful(careful bool, mem arch.Memory) (err error) {
	if careful == in.Seg.Careful() {
		return nil
	}
	if careful && !in.Seg.ReadsBase() {
		in.Seg.ByID() // as which they are known to the careful; calls of theirs are under way
	}
	in.Seg.SetCareful(careful)
	return in.tellCareful(in.areas, mem)
}

func (in *Inside) tellCareful(areas []*area, mem arch.Memory) (err error) {
	for _, a := range areas {
		err = errors.Join(err, mem.WriteAt(a.CarefulAt(), []byte{in.Seg.CarefulByte()}))
	}
	return err
}

// key is the word that a stopped thread is known by.
func (in *Inside) key(th target.Thread, r *arch.Regs, mem arch.Memory) uint64 {
	pointer := in.pointer(th, r)
	if in.cfg.Key.Kind == segment.FSBase {
		return segment.BaseKey(pointer)
	}
	return in.Seg.KeyOf(pointer, in.proven(th, r, mem), int(th))
}

// thread is what there is to know of a stopped thread.
func (in *Inside) thread(t target.Target, th target.Thread, known Acquaintance) (it segment.Thread, ok bool) {
	var r arch.Regs
	if t.Regs(th, &r) != nil {
		return it, false
	}
	it = segment.Thread{Key: in.key(th, &r, t), TID: int(th), Comm: known.Comm(th)}
	if of, borrowed := lender(t, th); borrowed && it.Key != in.Seg.IDKey(it.TID) { // what is known by its pointer stays when it ends
		it.TID, it.Comm = int(of), known.Comm(of)
	}
	sp := r.Addr(in.arch.SP)
	if i := slices.IndexFunc(known.Stacks, func(m arch.Range) bool { return m.Contains(sp) }); i >= 0 {
		it.StackLow, it.StackHigh = known.Stacks[i].Start, known.Stacks[i].End
	}
	return it, true
}

// Welcome gives a stopped thread its memory for programs.
func (in *Inside) Welcome(t target.Target, th target.Thread, known Acquaintance) {
	if it, ok := in.thread(t, th, known); ok {
		in.Seg.Assign(it)
	}
}

// rename gives a thread that was known by its id its own key, with all that it is at.
func (in *Inside) rename(t target.Target, th target.Thread, known Acquaintance) {
	if it, ok := in.thread(t, th, known); ok {
		in.Seg.Rekey(in.Seg.IDKey(int(th)), it.Key)
		in.Seg.Acquaint(it)
	}
}

// Born welcomes a new thread. One that has its parent's thread pointer, or that of any other thread
// that runs, is known by its id from then on, and so is the other. In Go nobody is: the runtime sets
// another before anything else, and the thread enters itself then. Errors: of the target's memory.
func (in *Inside) Born(t target.Target, th target.Thread, known Acquaintance) error {
	var r arch.Regs
	if t.Regs(th, &r) != nil {
		return nil
	}
	pointer := in.pointer(th, &r)
	if in.cfg.Key.Kind == segment.FSBase {
		if _, lives := in.lives(t, segment.BaseKey(pointer), th); !lives {
			in.Welcome(t, th, known)
		} else if all, ok := t.(target.Nursery); ok {
			in.Seg.Reserve(all.Population()) // those that have not entered themselves yet, all of them perhaps
		}
		return nil
	}
	var err error
	if !in.proven(th, &r, t) {
		err = in.setCareful(true, t)
	}
	if other, lives := in.lives(t, pointer, th); lives && pointer != 0 {
		err = errors.Join(err, in.setCareful(true, t))
		in.Seg.Share(pointer, int(other))
	}
	if len(in.Accounts()) > 0 { // calls that an exception ends are told by it
		maps, _ := t.Maps()
		known.Stacks = []arch.Range{returns.NativeStack(maps, false, pointer)}
	}
	in.Welcome(t, th, known)
	return err
}

// lives tells whether another thread has a key and may run still. One that is about to end may have
// given its memory to the next already. Threads are asked for one by one: those that run are in no list.
func (in *Inside) lives(t target.Target, key uint64, than target.Thread) (target.Thread, bool) {
	tid, ok := in.Seg.Owner(key)
	other := target.Thread(tid)
	if !ok || other == than {
		return other, false
	}
	e, ok := t.(target.Ender)
	return other, !ok || !e.Ending(other)
}

// mend has a thread go on whose instruction has faulted through no fault of the program's: what a
// handler asked for is not there; the thread's pointer is none, and then no thread's is trusted any more;
// its stack has no room for a detour, which it then passes by; or the program may not read the time (PR_SET_TSC,
// SECCOMP_MODE_STRICT), which it is told then. It answers whether that was it.
func (in *Inside) mend(r *arch.Regs, mem arch.Memory) (mended bool, err error) {
	pc := r.Addr(in.arch.PC)
	if in.readsCounter(pc, mem) {
		counter := in.cfg.counter()
		r[arch.AX], r[arch.DX] = uint64(uint32(counter)), counter>>32
		r[in.arch.PC] += uint64(len(readCounter))
		return true, nil
	}
	to, mended, identifies := arch.Addr(0), false, false
	if a := in.Area(pc); a != nil {
		to, mended = a.Fixup(pc)
		identifies = a.Identifies(pc)
	} else if d := in.Find(pc); d != nil {
		if to, identifies, err = d.Fixup(pc); to == 0 && err == nil {
			return in.pass(d, r, mem)
		}
		mended = to != 0
	}
	if mended && identifies {
		err = in.doubt(mem)
	}
	if mended {
		r[in.arch.PC] = uint64(to)
	}
	return mended, err
}

// readCounter is the instruction rdtsc.
var readCounter = [...]byte{0x0f, 0x31}

// readsCounter tells whether code of ours at an address reads the time-stamp counter.
func (in *Inside) readsCounter(pc arch.Addr, mem arch.Memory) bool {
	var insn [len(readCounter)]byte
	return in.cfg.counter != nil && in.Busy(pc) && mem.ReadAt(pc, insn[:]) == nil && insn == readCounter
}

func (in *Inside) doubt(mem arch.Memory) error {
	in.betrayed.Store(true)
	return in.setCareful(true, mem)
}
