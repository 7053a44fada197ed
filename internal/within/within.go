// Package within has what a session has inside its target: memory in common with it, the account of what
// runs there (package inside), and the detours that are being taken back.
//
//	within.go   how the memory in common comes and goes
//	counts.go   what probes have counted there, and detours that are taken back
//	returns.go  how returns are noticed, and where programs can run at them
//	calls.go    the target as the calls under way see it
package within

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/ground"
	"kprobe/internal/image"
	"kprobe/internal/inside"
	"kprobe/internal/machine"
	"kprobe/internal/returns"
	"kprobe/internal/room"
	"kprobe/target"
)

// Within belongs to one session.
type Within struct {
	*inside.Inside // nil until something needs it. Changed by the owner thread with Ground.View held
	owners

	on     *ground.Ground
	calls  Calls
	world  World
	sharer target.Sharer // nil: the target has no memory in common with anybody

	slots  inside.Slots
	ours   []byte // our side of the memory
	shared arch.Range
	shares []*Share
	growth growth

	doubt   *time.Timer // see Reconsider
	doubted time.Duration
}

// Calls are the calls under way.
type Calls interface {
	Trampoline() arch.Addr
	Retire(f func(redirect func(slot, from, to arch.Addr) error))
}

// World answers for the session.
type World interface {
	// Comm is a thread's name.
	Comm(target.Thread) string
	// Doubted is told that detours have become slower than they need be for long.
	Doubted()
}

// New has nothing inside yet.
func New(on *ground.Ground, c Calls, world World) *Within {
	w := &Within{on: on, calls: c, world: world}
	w.sharer, _ = on.T.(target.Sharer)
	on.Room.Others, on.Room.Taken = w.unlisted, w.taken
	return w
}

// Some tells whether there is anything inside.
func (w *Within) Some() bool { return w.Inside != nil }

// Can tells whether the target has memory that others have, too.
func (w *Within) Can() bool { return w.sharer != nil }

// unlisted is memory that the target does not list and is not to be had either:
// that which detours will want and, in a kernel, all that they have.
func (w *Within) unlisted() (rs []arch.Range) {
	if w.Some() {
		rs = w.Planned()
	}
	if !w.on.Kind.Listed() {
		rs = slices.Concat(rs, w.Held())
	}
	return rs
}

// taken has detours keep out of memory that was given out.
func (w *Within) taken(r arch.Range) {
	if w.Some() {
		w.Avoid(r)
	}
}

// Arrange sees to the memory that the target shares with us, once a session; serves tells whether the
// machine can. Errors: ENOTSUP; those of Share.
func (w *Within) Arrange(serves func(*machine.Machine) error) error {
	on := w.on
	if w.Some() && serves(on.Machine) == nil {
		return nil
	}
	const cannot = "programs cannot run in this target"
	if w.sharer == nil || on.Alloc == nil || !on.Kind.Memory(on.T) {
		return errno.New(syscall.ENOTSUP, cannot)
	}
	if err := serves(on.Machine); err != nil {
		return &errno.Error{Errno: syscall.ENOTSUP, Err: err}
	}
	c, err := w.configure()
	if err != nil {
		return &errno.Error{Errno: syscall.ENOTSUP, Reason: cannot, Err: err}
	}
	if err := w.guard(); err != nil {
		return err
	}
	if err := w.on.Owner.Afford(target.Need{Bytes: headWritten, Each: threadWrites}); err != nil {
		return err
	}
	threads := w.population()
	addr, ours, err := w.share(c.Room.Size(), c.Room.SizeFor(threads))
	for less, ok := c.Room.Less(threads); tooLarge(err) && ok; less, ok = less.Less(threads) {
		c.Room = less
		addr, ours, err = w.share(c.Room.Size(), c.Room.SizeFor(threads))
	}
	if err != nil {
		return err
	}
	occupied, err := on.Room.Occupied()
	if err != nil {
		return errors.Join(err, w.unshare(addr, ours))
	}
	w.shared = arch.Range{Start: addr, End: addr + arch.Addr(len(ours))}
	in, err := inside.New(c, addr, ours, append(occupied, w.shared))
	if err != nil {
		return errors.Join(err, w.unshare(addr, ours))
	}
	return on.Owner.Frozen(func() error { return w.take(in, ours, occupied) })
}

// What of the memory in common is written, of all that is reserved: what all threads read, and what each has for itself.
const (
	headWritten  = 64 << 10
	threadWrites = 32 << 10
)

// guard sees to the lifeline, so that a guardian knows of the target before there is anything of ours in it: memory that is shared has a
// descriptor there, for a moment.
func (w *Within) guard() error {
	on := w.on
	l := &on.Text.Lifeline
	return on.Owner.Insist(func(bool) error {
		grows, err := l.Plan(on.Machine.Lifeline, on.Points.Entries(), func(size int) (arch.Addr, error) {
			return on.Room.FindPreferring(image.RangeOf(on.Image.Program(), room.UserFloor), size)
		})
		if err != nil || !grows {
			return err
		}
		if err = w.on.Owner.Afford(target.Need{Written: l.Writes(on.Points.Entries())}); err != nil {
			l.Drop()
			return err
		}
		if err = on.Owner.Frozen(func() error { return on.Owner.Together(func() error { return l.Start(on.Room.Map) }) }); err != nil {
			l.Drop()
		}
		return err
	})
}

// take makes the memory known to the frozen target's threads.
func (w *Within) take(in *inside.Inside, ours []byte, occupied []arch.Range) error {
	t := w.on.T
	w.Inside, w.ours = in, ours
	in.Seg.SetOther(w.calls.Trampoline())
	w.LearnFiles()
	if w.on.Kind.OnCPUs() {
		w.on.Text.Gate = in
		return nil // its CPUs are known already
	}
	if err := w.grows(); err != nil {
		return err
	}
	if _, err := in.Trust(t, w.acquaintance(occupied)); err != nil {
		return err
	}
	for _, th := range t.Threads() {
		in.Welcome(t, th, w.acquaintance(occupied))
	}
	t.(target.Nursery).OnBirth(func(born, _ target.Thread) {
		if !w.Some() {
			return
		}
		careful := w.Careful()
		w.on.Report(w.Born(t, born, w.acquaintance(nil)))
		if w.Careful() && !careful {
			time.AfterFunc(shortest, w.world.Doubted)
		}
	})
	if l, ok := t.(target.Mortal); ok {
		return l.Living(ours, in.Seg.Alive())
	}
	return nil
}

// LearnFiles tells what runs inside where code of files is, after a look at it.
func (w *Within) LearnFiles() {
	if w.Some() {
		w.Seg.SetFiles(w.on.Image.Files())
	}
}

// acquaintance is what inside wants to know of threads.
func (w *Within) acquaintance(stacks []arch.Range) inside.Acquaintance {
	return inside.Acquaintance{Comm: w.world.Comm, Stacks: stacks}
}

// configure says what the target is like.
func (w *Within) configure() (c inside.Config, err error) {
	on := w.on
	c, err = inside.Configure(on.T, on.Machine, returns.GoProgram(on.Image.Space) != "", w.population())
	c.Page, c.Floor, c.Limit, c.Slots = arch.Addr(on.Alloc.PageSize()), on.Room.Floor, on.Room.Limit, &w.slots
	c.Goroutine, c.GoID = on.Image.Goroutines().Offsets()
	if err == nil {
		err = on.Kind.Configure(&c, on.Owner.Frozen)
	}
	if err == nil {
		on.Room.Floor, on.Room.Limit = c.Floor, c.Limit
	}
	return c, err
}

// population is how many threads the target has.
func (w *Within) population() (n int) {
	if all, ok := w.on.T.(target.Nursery); ok {
		w.on.Owner.On(func() { n = all.Population() })
	}
	return n
}

// tooLarge tells whether memory was refused that might be had if it were less: there are limits
// on a process's addresses, its locked memory and its files.
func tooLarge(err error) bool {
	return errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EFBIG)
}

// The shortest and the longest time until detours are looked at again that could be quicker.
const (
	shortest = 20 * time.Millisecond
	longest  = 10 * time.Second
)

// Reconsider makes memory for threads that may begin soon. Once the program has begun, detours find
// out quickly which thread runs there (inside.Trust); where they cannot yet, World.Doubted is told
// later on.
func (w *Within) Reconsider() error {
	if err := w.separateLate(); err != nil {
		return err
	}
	if w.on.Kind.OnCPUs() || !w.Careful() {
		return nil
	}
	trusted := false
	err := w.on.Owner.Frozen(func() (err error) {
		trusted, err = w.Trust(w.on.T, w.acquaintance(nil))
		return err
	})
	if w.doubt != nil {
		w.doubt.Stop()
	}
	if !trusted && err == nil {
		w.doubted = min(2*max(w.doubted, shortest), longest)
		w.doubt = time.AfterFunc(w.doubted, w.world.Doubted)
	} else {
		w.doubted = 0
	}
	return err
}

// Share is memory that the target and we have in common, besides that which all programs use.
type Share struct {
	inside.Memory
	arch *arch.Arch  // that has a use for it
	pool target.Pool // nil where it is this target's alone

	sizeFor func(threads int) uint64 // as far as so many write to it
	there   int                      // so much of it is
}

// Share maps some: zeros, to the first of which so many threads write. Errors: the target's, explained.
func (w *Within) Share(size int, sizeFor func(threads int) uint64) (*Share, error) {
	all := sizeFor(0)
	if err := w.on.Owner.Afford(target.Need{Bytes: int(all), Each: int(sizeFor(1) - all)}); err != nil {
		return nil, err
	}
	there := w.on.Room.Round(int(sizeFor(w.held())))
	addr, ours, err := w.share(size, there)
	if err != nil {
		return nil, err
	}
	s := &Share{inside.Memory{Addr: addr, Ours: ours}, w.on.Arch, nil, sizeFor, there}
	w.keep(s)
	return s, w.fill(w.held())
}

// SharePool maps a pool. Errors: the target's, explained; ENOTSUP where it can have none.
func (w *Within) SharePool(p target.Pool) (*Share, error) {
	t, ok := w.on.T.(target.Pooler)
	if !ok || w.on.Arch.PtrSize != 8 {
		return nil, errno.New(syscall.ENOTSUP, "this target has no maps in common with others")
	}
	addr, err := w.find(len(p.Ours()), func(addr arch.Addr) error { return t.SharePool(addr, p) })
	if err != nil {
		return nil, err
	}
	s := &Share{Memory: inside.Memory{Addr: addr, Ours: p.Ours()}, arch: w.on.Arch, pool: p}
	w.keep(s)
	return s, nil
}

func (w *Within) keep(s *Share) {
	w.shares = append(w.shares, s)
	w.growth.sharing(slices.Clone(w.shares))
}

// Unshare unmaps it; nil is none.
func (w *Within) Unshare(s *Share) error {
	if s == nil {
		return nil
	}
	w.lose(s)
	if s.pool != nil {
		return w.on.Owner.Frozen(func() error { return w.on.Alloc.Free(s.Addr, w.on.Room.Round(len(s.Ours))) })
	}
	return w.unshare(s.Addr, s.Ours)
}

// Reshare maps it in the program that the target has executed; nil is none. That of another machine waits
// for the next. Errors: the target's, and then it is of no use any more.
func (w *Within) Reshare(s *Share) error {
	if s == nil || s.arch != w.on.Arch {
		return nil
	}
	err := w.on.Owner.Frozen(func() error {
		if s.pool != nil {
			return w.on.T.(target.Pooler).SharePool(s.Addr, s.pool)
		}
		return w.sharer.Reshare(s.Addr, s.Ours)
	})
	if err != nil {
		w.lose(s)
	}
	return err
}

func (w *Within) lose(s *Share) {
	w.shares = slices.DeleteFunc(w.shares, func(o *Share) bool { return o == s })
	w.growth.sharing(slices.Clone(w.shares))
}

// share maps memory of which the first bytes are there, or all of it.
func (w *Within) share(size, there int) (addr arch.Addr, ours []byte, err error) {
	addr, err = w.find(size, func(addr arch.Addr) (err error) {
		if g, ok := w.sharer.(target.Grower); ok {
			ours, err = g.ShareSome(addr, w.on.Room.Round(size), w.on.Room.Round(there))
			return err
		}
		ours, err = w.sharer.Share(addr, w.on.Room.Round(size))
		return err
	})
	return addr, ours, err
}

// find has memory mapped where there is room for it.
func (w *Within) find(size int, share func(arch.Addr) error) (addr arch.Addr, err error) {
	on := w.on
	size = on.Room.Round(size)
	err = on.Owner.Insist(func(bool) (err error) {
		if on.Kind.Apart() {
			addr, err = on.Room.FindAbove(inside.Apart(on.Arch), size)
			if at := inside.Wide(on.Arch); err != nil && at != 0 {
				addr, err = on.Room.FindAbove(at, size)
			}
		} else {
			addr, err = on.Room.Find(arch.Range{Start: on.Room.Floor, End: on.Room.Floor + 1}, size)
		}
		if err != nil {
			return err
		}
		return on.Owner.Frozen(func() error { return share(addr) })
	})
	if err != nil {
		return 0, room.Explain(err)
	}
	return addr, nil
}

func (w *Within) unshare(addr arch.Addr, ours []byte) error {
	return errors.Join(w.on.Owner.Frozen(func() error { return w.on.Alloc.Free(addr, len(ours)) }), w.sharer.Unshare(ours))
}

// Held are the parts of memory that the target has for what runs inside.
func (w *Within) Held() []arch.Range {
	if !w.Some() {
		return nil
	}
	rs := append(slices.Clone(w.Ranges()), w.shared)
	for _, s := range w.shares {
		if s.arch == w.on.Arch {
			rs = append(rs, arch.Range{Start: s.Addr, End: s.Addr + arch.Addr(w.on.Room.Round(len(s.Ours)))})
		}
	}
	return rs
}

// leaveAtOnce bounds the pieces of code that one stop unmaps, of some tenths of a millisecond each.
const leaveAtOnce = 64

// Leave takes what the target has for programs out of it, which is frozen. It fails while a
// thread is in code of ours; anyhow leaves it its memory. Where there is much of that it goes with several calls,
// each of which but the last fails. Errors: target.ErrNotNow; the target's.
func (w *Within) Leave(anyhow bool) error {
	if !w.Some() {
		return nil
	}
	w.Collect()
	w.on.View.Lock()
	defer w.on.View.Unlock()
	w.DropVacant(w.fold)
	if len(w.Retired()) > 0 {
		if !anyhow {
			return target.ErrNotNow
		}
	} else {
		some := w.Ranges()
		if len(some) > leaveAtOnce && !anyhow {
			some = some[:leaveAtOnce]
			if err := w.free(some); err != nil {
				return err
			}
			w.Unmapped(len(some))
			return target.ErrNotNow
		}
		if err := w.free(w.Held()); err != nil {
			return err
		}
	}
	return w.Forget()
}

// free unmaps parts of memory in one go.
func (w *Within) free(rs []arch.Range) error {
	return w.on.Owner.Together(func() error {
		for _, r := range rs {
			if err := w.on.Alloc.Free(r.Start, int(r.End-r.Start)); err != nil && !errors.Is(err, target.ErrGone) {
				return err
			}
		}
		return nil
	})
}

// LeaveIn takes what a forked child has in common with its parent out of the child.
func (w *Within) LeaveIn(c target.Child) error {
	var r arch.Regs
	if !w.Some() || c.Regs(&r) != nil {
		return nil
	}
	moved, err := w.Inside.LeaveIn(&r, c)
	if moved {
		err = errors.Join(err, c.SetRegs(&r))
	}
	for _, r := range w.Held() {
		err = errors.Join(err, c.Free(r.Start, int(r.End-r.Start)))
	}
	return err
}

// Forget gives up our side of what was shared: the target has gone on without
// it, to another program perhaps. The counts are kept. Ground.View is held, and nobody plans.
func (w *Within) Forget() error {
	if !w.Some() {
		return nil
	}
	for _, pt := range w.on.Points.List {
		if pt.Detour != nil {
			w.fold(pt.Detour)
			pt.Detour = nil
		}
	}
	for _, d := range w.Retired() {
		w.fold(d)
	}
	for _, account := range w.Accounts() {
		w.Inside.Settle(account)
	}
	ours := w.ours
	w.Inside.Leave()
	w.Inside, w.ours, w.on.Beyond, w.on.Text.Gate = nil, nil, nil, nil
	return w.sharer.Unshare(ours)
}
