// Package calls has the calls under way of functions with return probes (kprobes.txt 1.3): which
// probe watches which call, where a call comes back to, and which calls are over although they
// never returned. It knows no session, no handlers and no process: World is all that it needs of
// the target, so it is tried without one (model_test.go).
//
//	a call       is named by               its return is noticed by          its file
//	swapped      the stack slot of its     a breakpoint that its return      swap.go
//	             return address            address was exchanged for
//	by exits     its place on its stack    a probe on each instruction       exits.go
//	                                       that leaves the function
//
// Both can be on one call, of different probes, and detours inside the target may have swapped
// the same return address before or after us. So nothing here takes a return address for what it
// seems to be: comesBackTo follows it to the program's own.
//
// The states of a call, for one probe:
//
//	entered --> watched --> reported                        it returned
//	   |           |------> lost, by a cause (Loss)         it is over, and did not return
//	   |           `------> orphan --> gone                 its probe was unregistered first
//	   |------> missed                                      MaxActive calls are watched
//	   `------> not wanted                                  the entry handler said so
package calls

import (
	"sync"
	"sync/atomic"

	"kprobe/arch"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"

	"iter"
)

// World is the target, and what else keeps return addresses there. Its methods are called with
// the lock of the calls held: they may take no lock that is taken before that one.
type World interface {
	// Word and PutWord reach the program's memory.
	Word(at arch.Addr) (arch.Addr, error)
	PutWord(at, v arch.Addr) error

	// Note tells, before a slot's return address is swapped, which one it was: who cleans up
	// when we are dead must know. all are the calls under way, and how many they are.
	Note(slot, real arch.Addr, all func() (int, iter.Seq2[arch.Addr, arch.Addr])) error

	// Returns tells whether calls with this return address come back into a detour, and Way
	// where a call with a slot goes in the end that would return to an address, when the returns that
	// run in detours are over. Asked again, the function goes on from there: it passes no call twice.
	Returns(ret arch.Addr) bool
	Way(slot arch.Addr) func(ret arch.Addr) arch.Addr

	// Called tells whether a word may be the return address of a call (returns.Origin).
	Called(word arch.Addr) bool

	// Keeps, Kept and Carried are target.Keeper's; of other targets nothing and false.
	Keeps(word arch.Addr) bool
	Kept(slot, ret arch.Addr) []arch.Addr
	Carried() bool

	// Ended tells whether a goroutine has: its descriptor is another's now.
	Ended(g arch.Addr, id uint64) bool

	Maps() ([]symbol.Mapping, error)
	PID() int
}

// Spot is where a thread stands.
type Spot struct {
	Thread target.Thread
	SP     arch.Addr
	TP     uint64 // the thread pointer: it tells the stack that the thread was born with

	// Of a goroutine: its descriptor, its number and the upper end of its stack. G is 0 elsewhere.
	G, Hi     arch.Addr
	Goroutine uint64
}

// Loss is why a watched call never returned.
type Loss uint8

const (
	Unwound      Loss = iota // by an exception or a panic
	Longjmp                  // by a longjmp, or its coroutine was dropped
	Goexit                   // its goroutine ended
	Exited                   // its thread ended
	Unregistered             // it was under way when its probe was unregistered

	Losses = iota // how many reasons there are
)

// Probe is a return probe's part in this. The zero value becomes ready by Reset.
type Probe[I any] struct {
	MaxActive int         // so many calls are watched at once
	Unwinds   atomic.Bool // its function's language unwinds stacks: a call that is over was unwound
	Leaving   func() bool // whether it is being unregistered: nothing is reported any more

	lost   [Losses]atomic.Uint64
	unseen bool // nothing stands at its function's exits
	active int
	free   []*Call[I]
	again  map[returns.Place]bool // where the function begins anew: not a call of it
}

// Reset has a probe count from zero, for at most max calls at once.
func (p *Probe[I]) Reset(most int, leaving func() bool) {
	p.MaxActive, p.Leaving = most, leaving
	for i := range p.lost {
		p.lost[i].Store(0)
	}
	p.again = make(map[returns.Place]bool)
	p.unseen = false
}

// Lose counts calls that somebody else has found to be over.
func (p *Probe[I]) Lose(why Loss, n uint64) { p.lost[why].Add(n) }

// Lost counts the calls that were lost for a reason.
func (p *Probe[I]) Lost(why Loss) uint64 { return p.lost[why].Load() }

// Call is one call that a probe watches: an instance (kprobes.txt 1.3.1).
type Call[I any] struct {
	Probe     *Probe[I]
	RetAddr   arch.Addr // where it comes back to, in the program's own code
	Goroutine uint64
	Instance  I // its owner's; that of an earlier call of the probe, perhaps, or zero

	orphan bool
}

// take gives out a call.
func (p *Probe[I]) take() *Call[I] {
	p.active++
	if n := len(p.free); n > 0 {
		c := p.free[n-1]
		p.free = p.free[:n-1]
		return c
	}
	return &Call[I]{Probe: p}
}

// give takes it back.
func (c *Call[I]) give() {
	if c.orphan {
		return
	}
	c.Probe.active--
	c.Probe.free = append(c.Probe.free, c)
}

// lose gives up a call.
func (c *Call[I]) lose(why Loss) {
	c.Probe.lost[why].Add(1)
	c.give()
}

// over gives up a call that has not returned, and on whose place the stack shows that it will not.
func (c *Call[I]) over() {
	if c.Probe.Unwinds.Load() {
		c.lose(Unwound)
	} else {
		c.lose(Longjmp)
	}
}

// Outcome is what became of an entry.
type Outcome uint8

const (
	Watched   Outcome = iota
	Missed            // MaxActive calls are watched, or there is no return address that could be swapped
	NotWanted         // its owner says so
)

// UnderWay are the calls under way in one target. It is safe for concurrent use; the target does
// not run where a method says so.
type UnderWay[I any] struct {
	mu         sync.Mutex
	world      World
	arch       *arch.Arch
	trampoline atomic.Uint64 // a breakpoint in the target; 0 until one is needed

	at     map[arch.Addr]*frame[I]            // swapped, by slot
	exits  returns.Calls[*Probe[I], *Call[I]] // noticed by exits, by place
	native returns.Stacks
	unseen bool // nothing stands at any exit
	strays int  // see Stray
}

// New is that of a target in which no call is watched yet.
func New[I any](w World, a *arch.Arch) *UnderWay[I] {
	return &UnderWay[I]{world: w, arch: a, at: make(map[arch.Addr]*frame[I])}
}

// Become takes over what the machine is: another program's may be another, after exec.
func (u *UnderWay[I]) Become(a *arch.Arch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.arch = a
}

// Trampoline is the breakpoint that swapped return addresses lead to, 0 where there is none yet.
func (u *UnderWay[I]) Trampoline() arch.Addr { return arch.Addr(u.trampoline.Load()) }

// SetTrampoline says where it is.
func (u *UnderWay[I]) SetTrampoline(at arch.Addr) { u.trampoline.Store(uint64(at)) }

// IsTrampoline tells whether a thread has come to it.
func (u *UnderWay[I]) IsTrampoline(pc arch.Addr) bool { return pc != 0 && pc == u.Trampoline() }

// Done ends a call whose return was reported.
func (u *UnderWay[I]) Done(c *Call[I]) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.give()
}

// Lose gives up a call that was taken off to be reported, and is not.
func (u *UnderWay[I]) Lose(c *Call[I], why Loss) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.lose(why)
}

// begin takes an instance for a call that comes back to ret, and asks its owner, without the lock,
// whether the call is wanted. Whoever gets a call begins to watch it.
func (u *UnderWay[I]) begin(p *Probe[I], at Spot, ret arch.Addr, wanted func(*Call[I]) bool) (*Call[I], Outcome) {
	if p.active >= p.MaxActive {
		return nil, Missed
	}
	c := p.take()
	c.RetAddr, c.Goroutine = ret, at.Goroutine
	u.mu.Unlock()
	yes := wanted(c)
	u.mu.Lock()
	if !yes {
		c.give()
		return nil, NotWanted
	}
	return c, Watched
}

// place names a call's place on its stack: a goroutine's, which may move, or that which its thread
// was given; else nothing but its address tells it from others.
func (u *UnderWay[I]) place(at Spot) returns.Place {
	if at.G != 0 {
		return returns.Place{Stack: uint64(at.G), At: int64(at.SP - at.Hi)}
	}
	return returns.Place{Stack: u.native.Of(int(at.Thread), u.world.PID(), at.SP, at.TP, u.world.Maps), At: int64(at.SP)}
}
