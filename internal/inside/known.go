package inside

import (
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/target"
)

// Acquaintance is what there is to know of threads besides their registers.
type Acquaintance struct {
	Comm   func(target.Thread) string
	Stacks []patch.Range // memory that a thread's stack may be a range of, where that is known
}

// Trust looks at all threads of a frozen target. If each of them can be known by memory that its thread
// pointer leads to, detours look there from now on, which is quickest; else they are careful, for the
// sake of those that cannot: a program that has not set up its thread-local storage yet, or never will.
// A program in which a thread has lost its pointer while it was relied on is not trusted again. It
// answers whether the detours trust. Errors: of the target's memory.
func (in *Inside) Trust(t target.Target, known Acquaintance) (bool, error) {
	if in.cfg.Key.Kind != inject.FSSelf {
		return true, nil
	}
	careful := in.betrayed
	for _, th := range t.Threads() {
		var r arch.Regs
		switch err := t.Regs(th, &r); {
		case errors.Is(err, target.ErrGone):
		case err != nil || !in.proven(&r, t):
			careful = true
		}
	}
	was := in.Seg.Careful()
	if err := in.setCareful(careful, t); err != nil {
		return false, err
	}
	if was && !careful {
		for _, th := range t.Threads() {
			in.rename(t, th, known)
		}
	}
	return !careful, nil
}

// Careful tells whether Trust may change something.
func (in *Inside) Careful() bool { return in.Seg.Careful() && !in.betrayed }

// proven tells whether the word that a thread's pointer points to is that pointer.
func (in *Inside) proven(r *arch.Regs, mem Memory) bool {
	pointer := in.arch.ThreadPointer(r)
	word, err := in.word(mem, arch.Addr(pointer))
	return err == nil && pointer != 0 && uint64(word) == pointer
}

// setCareful tells every area.
func (in *Inside) setCareful(careful bool, mem Memory) (err error) {
	if careful == in.Seg.Careful() {
		return nil
	}
	b := in.Seg.SetCareful(careful)
	for _, a := range in.areas {
		err = errors.Join(err, mem.WriteAt(a.CarefulAt(), []byte{b}))
	}
	return err
}

// key is the word that a stopped thread is known by.
func (in *Inside) key(th target.Thread, r *arch.Regs, mem Memory) uint64 {
	pointer := in.arch.ThreadPointer(r)
	if in.cfg.Key.Kind == inject.FSBase {
		return inject.BaseKey(pointer)
	}
	return in.Seg.KeyOf(pointer, in.proven(r, mem), int(th))
}

// thread is what there is to know of a stopped thread.
func (in *Inside) thread(t target.Target, th target.Thread, known Acquaintance) (it inject.Thread, ok bool) {
	var r arch.Regs
	if t.Regs(th, &r) != nil {
		return it, false
	}
	it = inject.Thread{Key: in.key(th, &r, t), TID: int(th), Comm: known.Comm(th)}
	sp := arch.Addr(r[in.arch.SP])
	if i := slices.IndexFunc(known.Stacks, func(m patch.Range) bool { return sp >= m.Start && sp < m.End }); i >= 0 {
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
	pointer := in.arch.ThreadPointer(&r)
	if in.cfg.Key.Kind == inject.FSBase {
		if _, lives := in.lives(t, inject.BaseKey(pointer), th); !lives {
			in.Welcome(t, th, known)
		}
		return nil
	}
	var err error
	if !in.proven(&r, t) {
		err = in.setCareful(true, t)
	}
	if other, lives := in.lives(t, pointer, th); lives {
		in.Seg.Share(pointer, int(other))
	}
	if len(in.Accounts()) > 0 { // calls that an exception ends are told by it
		maps, _ := t.Maps()
		known.Stacks = []patch.Range{returns.NativeStack(maps, false, pointer)}
	}
	in.Welcome(t, th, known)
	return err
}

// lives tells whether another thread has a key and may run still. One that is about to end may have
// given its memory to the next already.
func (in *Inside) lives(t target.Target, key uint64, than target.Thread) (target.Thread, bool) {
	tid, ok := in.Seg.Owner(key)
	other := target.Thread(tid)
	if !ok || other == than || !slices.Contains(t.Threads(), other) {
		return other, false
	}
	e, ok := t.(interface{ Ending(target.Thread) bool })
	return other, !ok || !e.Ending(other)
}

// mend has a thread go on whose instruction has faulted through no fault of the program's: what a
// handler asked for is not there; the thread's pointer is none, and then no thread's is trusted any more;
// or the program may not read the time (PR_SET_TSC, SECCOMP_MODE_STRICT), which it is told then. It answers
// whether that was it.
func (in *Inside) mend(r *arch.Regs, mem Memory) (mended bool, err error) {
	pc := arch.Addr(r[arch.IP])
	if in.readsCounter(pc, mem) {
		counter := in.cfg.counter()
		r[arch.AX], r[arch.DX] = uint64(uint32(counter)), counter>>32
		r[arch.IP] += uint64(len(readCounter))
		return true, nil
	}
	to, mended := arch.Addr(0), false
	if a := in.Area(pc); a != nil {
		if to, mended = a.Fixup(pc); mended && a.Identifies(pc) {
			err = in.doubt(mem)
		}
	} else if d := in.Find(pc); d != nil {
		if to, mended, err = d.Fixup(pc); mended {
			err = in.doubt(mem)
		}
	}
	if mended {
		r[arch.IP] = uint64(to)
	}
	return mended, err
}

// readCounter is the instruction rdtsc.
var readCounter = [...]byte{0x0f, 0x31}

// readsCounter tells whether code of ours at an address reads the time-stamp counter.
func (in *Inside) readsCounter(pc arch.Addr, mem Memory) bool {
	var insn [len(readCounter)]byte
	return in.cfg.counter != nil && in.Busy(pc) && mem.ReadAt(pc, insn[:]) == nil && insn == readCounter
}

func (in *Inside) doubt(mem Memory) error {
	in.betrayed = true
	return in.setCareful(true, mem)
}
