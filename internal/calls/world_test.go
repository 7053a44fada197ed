package calls

import (
	"fmt"
	"iter"
	"slices"

	"kprobe/arch"
	"kprobe/symbol"
	"kprobe/target"
)

// A target without a process: words of memory, stacks and threads. What swaps return addresses in
// a real target besides us does so here, too: detours inside (account), and somebody else's return
// probes, whose addresses the target keeps for them (kept).

const (
	trampolineAt = arch.Addr(0x700000)
	detoursAt    = arch.Addr(0x600000) // + 16 for each function
	foreignAt    = arch.Addr(0x500000) // where calls return that somebody else watches
	sitesAt      = arch.Addr(0x400000) // return addresses of the program's own
	keptAt       = arch.Addr(0x300000) // where the target keeps what somebody else has swapped
	stacksAt     = arch.Addr(0x10000000)
	stackSize    = arch.Addr(0x10000)
)

// account is a call that a detour watches.
type account struct {
	slot, ret arch.Addr
	fn        int
	call      *call
}

// world implements World.
type world struct {
	mem       map[arch.Addr]arch.Addr
	accounts  []account                 // newest first
	kept      map[arch.Addr][]arch.Addr // of a slot, last taken first: where
	nkept     int
	tasks     []*task
	maps      []symbol.Mapping
	carried   bool
	noteFails bool
	noted     map[arch.Addr]arch.Addr
}

func newWorld() *world {
	return &world{mem: map[arch.Addr]arch.Addr{}, kept: map[arch.Addr][]arch.Addr{}, noted: map[arch.Addr]arch.Addr{}}
}

func (w *world) Word(at arch.Addr) (arch.Addr, error) { return w.mem[at], nil }

func (w *world) PutWord(at, v arch.Addr) error { w.mem[at] = v; return nil }

// Note fails now and then, and otherwise asks for all calls, as a full table does.
func (w *world) Note(slot, real arch.Addr, all func() (int, iter.Seq2[arch.Addr, arch.Addr])) error {
	if w.noteFails {
		return fmt.Errorf("the table is full")
	}
	n, seq := all()
	clear(w.noted)
	for slot, real := range seq {
		w.noted[slot] = real
		n--
	}
	if n != 0 {
		panic("the number of calls is not theirs")
	}
	w.noted[slot] = real
	return nil
}

func detour(fn int) arch.Addr { return detoursAt + arch.Addr(16*fn) }

func (w *world) Returns(ret arch.Addr) bool { return ret >= detoursAt && ret < detoursAt+0x1000 }

func (w *world) Way(slot arch.Addr) func(arch.Addr) arch.Addr {
	calls := slices.Clone(w.accounts)
	return func(ret arch.Addr) arch.Addr { return w.follow(&calls, slot, ret) }
}

func (w *world) follow(left *[]account, slot, ret arch.Addr) arch.Addr {
	for calls := *left; w.Returns(ret); *left = calls {
		i := slices.IndexFunc(calls, func(a account) bool { return a.slot == slot && detour(a.fn) == ret })
		if i < 0 {
			break
		}
		ret = calls[i].ret
		calls = slices.Delete(calls, i, i+1)
	}
	return ret
}

// Called: what a function is jumped to with is below all code.
func (w *world) Called(word arch.Addr) bool { return word >= keptAt }

func (w *world) Keeps(word arch.Addr) bool { return word == foreignAt }

func (w *world) Kept(slot, ret arch.Addr) (at []arch.Addr) {
	for _, k := range w.kept[slot] {
		if w.mem[k] == ret {
			at = append(at, k)
		}
	}
	return at
}

func (w *world) Carried() bool { return w.carried }

func (w *world) Ended(g arch.Addr, id uint64) bool {
	for _, t := range w.tasks {
		if t.g == g && t.id == id {
			return false
		}
	}
	return true
}

func (w *world) Maps() ([]symbol.Mapping, error) { return w.maps, nil }
func (w *world) PID() int                        { return 1 }

// ReadAt and WriteAt make a world's copy the memory of a child.
type image map[arch.Addr]arch.Addr

func (m image) ReadAt(at arch.Addr, b []byte) error {
	arch.AMD64.PutWord(b, uint64(m[at]))
	return nil
}

func (m image) WriteAt(at arch.Addr, b []byte) error {
	m[at] = arch.Addr(arch.AMD64.Word(b))
	return nil
}

// task is what has a stack: a thread, a coroutine or a goroutine.
type task struct {
	kind   kind
	thread target.Thread // that runs it, or ran it last
	home   arch.Addr     // the upper end of its stack
	sp     arch.Addr
	g      arch.Addr // of a goroutine: its descriptor
	id     uint64    // and its number
	calls  []*call   // outermost first

	back   *call     // what is just returning, and
	next   arch.Addr // where to; 0: none is
	walk   []Unswapped[int]
	walks  bool
	walker *walker
}

type kind uint8

const (
	native kind = iota
	coroutine
	goroutine
)

func (k kind) String() string { return [...]string{"thread", "coroutine", "goroutine"}[k] }

// call is a call of the program's, as it is: the truth that the package has to find out.
type call struct {
	fn      int // the last function of a chain of tail calls
	slot    arch.Addr
	real    arch.Addr
	foreign bool // somebody else has swapped its return address
	entries []*entry
	over    bool // it will not return
	blind   bool // it was entered while a probe there was off
}

// comesBackTo tells whether an address is where the call comes back to, as far as we can see: what somebody
// else has swapped, only the target knows.
func (c *call) comesBackTo(a arch.Addr) bool { return a == c.real || c.foreign && a == foreignAt }

// push makes a call: the return address is written, and the frame below it is junk of others.
func (w *world) push(t *task, fn int, site, frame arch.Addr) *call {
	slot := t.sp - frame
	for a := slot; a < t.sp; a += 8 {
		if a%64 == 0 { // locals are set here and there only: what lay there shows through
			w.mem[a] = 1
		}
	}
	w.forgetKept(t, slot+8)
	c := &call{fn: fn, slot: slot, real: sitesAt + 8*site}
	t.sp, t.calls = slot, append(t.calls, c)
	w.mem[slot] = c.real
	return c
}

// forgetKept is what the target does when a stack pointer has passed calls that never returned.
func (w *world) forgetKept(t *task, sp arch.Addr) {
	for slot := range w.kept {
		if slot < sp && slot >= t.home-stackSize {
			delete(w.kept, slot)
		}
	}
}

// detoured has a detour swap a call's return address, and drop those on the stack below: they are over.
// foreignly has somebody else do it.
func (w *world) detoured(t *task, c *call) {
	w.accounts = slices.DeleteFunc(w.accounts, func(a account) bool {
		return a.call != c && a.slot <= c.slot && a.slot >= t.home-stackSize
	})
	w.accounts = slices.Insert(w.accounts, 0, account{c.slot, w.mem[c.slot], c.fn, c})
	w.mem[c.slot] = detour(c.fn)
}

func (w *world) foreignly(c *call) {
	w.nkept++
	at := keptAt + arch.Addr(8*w.nkept)
	w.mem[at] = w.mem[c.slot]
	w.kept[c.slot] = slices.Insert(w.kept[c.slot], 0, at)
	w.mem[c.slot] = foreignAt
	c.foreign = true
}

// retire takes a function's detour away: its calls go on to where it would have sent them.
func (w *world) retire(fn int, redirect func(slot, from, to arch.Addr)) {
	for {
		i := slices.IndexFunc(w.accounts, func(a account) bool { return a.fn == fn })
		if i < 0 {
			return
		}
		a := w.accounts[i]
		w.accounts = slices.Delete(w.accounts, i, i+1)
		from := detour(fn)
		newer := slices.IndexFunc(w.accounts[:i], func(b account) bool { return b.slot == a.slot && b.ret == from })
		elsewhere := w.Kept(a.slot, from)
		switch {
		case w.mem[a.slot] == from:
			w.mem[a.slot] = a.ret
		case len(elsewhere) > 0:
			w.mem[elsewhere[0]] = a.ret
		case newer >= 0:
			w.accounts[newer].ret = a.ret
		default:
			redirect(a.slot, from, a.ret)
		}
	}
}

func (w *world) spot(t *task) Spot {
	s := Spot{Thread: t.thread, SP: t.sp, TP: uint64(tp(t.thread))}
	if t.kind == goroutine {
		s.G, s.Hi, s.Goroutine = t.g, t.home, t.id
	}
	return s
}

// tp is a thread's thread pointer: it lies on the stack that the thread was born with.
func tp(th target.Thread) arch.Addr { return stackEnd(int(th)) - 8 }

func stackEnd(n int) arch.Addr { return stacksAt + arch.Addr(n+1)*stackSize }

// walker is the detours while a thread walks its stack.
type walker struct {
	w  *world
	t  *task
	us []account
	on []arch.Addr
}

func (d *walker) Hold() func() { return func() {} }

func (d *walker) Unswap(already []int) (us []int) {
	accounts := slices.Clone(d.w.accounts)
	for _, i := range already {
		if j := slices.Index(accounts, d.us[i]); j >= 0 {
			accounts = slices.Delete(accounts, j, j+1)
		}
	}
	for _, a := range accounts {
		mine := slices.ContainsFunc(d.t.calls, func(c *call) bool { return c == a.call })
		if mine && d.w.mem[a.slot] == detour(a.fn) {
			d.us, d.on = append(d.us, a), append(d.on, d.w.mem[a.slot])
			d.w.mem[a.slot] = a.ret
			us = append(us, len(d.us)-1)
		}
	}
	return us
}

func (d *walker) SwapAgain(i int) {
	if a := d.us[i]; d.w.mem[a.slot] == a.ret && slices.Contains(d.w.accounts, a) {
		d.w.mem[a.slot] = d.on[i]
	}
}

func (d *walker) End(i int) {
	if j := slices.Index(d.w.accounts, d.us[i]); j >= 0 {
		d.w.accounts = slices.Delete(d.w.accounts, j, j+1)
	}
}
