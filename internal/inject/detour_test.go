package inject_test

import (
	"fmt"
	"slices"
	"testing"

	"kprobe/internal/jit"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/segment"
)

var testLayout = segment.Layout{Threads: 8, Counters: 32, Away: 1 << 11, Calls: 1 << 10, Extra: 1 << 20}

// probe and other are IDs of return probes: their counters of lost calls follow.
const (
	probe = 20
	other = probe + segment.Counters
)

func (h *host) expectSum(f string, threads, n int, a, b, want uint64) {
	h.Helper()
	if sum, _ := h.call(f, threads, n, a, b); sum != want {
		h.Fatalf("the program computes %d instead of %d", sum, want)
	}
}

func (h *host) expectCounter(n int, want uint64) {
	h.Helper()
	if got, lost := h.seg.Counter(n); got != want || lost != 0 {
		h.Errorf("counter %d is %d, %d lost; want %d", n, got, lost, want)
	}
}

// sums is the result of n calls of a function that adds.
func sums(n, b uint64) uint64 { return n*(n-1)/2 + n*b }

func TestCount(t *testing.T) {
	h := startHost(t, testLayout)
	d := h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter}))
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectSum("f_keep", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 2000)
	code, _ := d.Code()
	if n := len(code); n > 256-8 {
		t.Errorf("%d bytes for a probe that counts\n%s", n, disassemble(t, d.At, code))
	}
}

func TestProgram(t *testing.T) {
	h := startHost(t, testLayout)
	p := h.program(func(a *x86code.Asm) { // clobber everything, add the first argument to counter 5
		a.Load(arch.AX, arch.DI, 8*x86code.WordOf[arch.DI])
		a.Insn(8, x86.Add.ToRM(), x86.RAX, x86code.Mem(arch.R12, segment.Counter(5)))
		for _, r := range []arch.Reg{arch.AX, arch.BX, arch.CX, arch.DX, arch.SI, arch.DI, arch.BP, arch.R8, arch.R9, arch.R10, arch.R11, arch.R13, arch.R14, arch.R15} {
			a.MovConst(r, 0x6b6b6b6b6b6b6b6b)
		}
	})
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{p, p}}))
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectSum("f_keep", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 2000)
	h.expectCounter(4, 0)
	h.expectCounter(5, 2*2*sums(1000, 0))
}

// A program that changes whatever it may changes nothing of the function's.
func TestProgramKeepsRegisters(t *testing.T) {
	h := startHost(t, testLayout)
	p := h.program(clobber)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{p, p}, Return: &inject.Return{ID: probe, Max: 5, Missed: 7, Hits: 8, Entry: []inject.Program{p}}}))
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectSum("f_keep", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 2000)
	h.expectCounter(5, 3*2000)
	h.expectCounter(8, 2000)
	h.expectCalls(0)
}

func (h *host) expectCalls(want int) {
	h.Helper()
	left := func(c segment.Call) bool { return c.Left }
	if calls := slices.DeleteFunc(h.seg.Calls(), left); len(calls) != want {
		h.Errorf("%d calls in flight, not %d: %+v", len(calls), want, calls)
	}
}

func TestReturn(t *testing.T) {
	h := startHost(t, testLayout)
	add := h.program(func(a *x86code.Asm) { // what is returned to counter 9
		a.Load(arch.AX, arch.DI, 8*x86code.WordOf[arch.AX])
		a.Insn(8, x86.Add.ToRM(), x86.RAX, x86code.Mem(arch.R12, segment.Counter(9)))
	})
	for _, f := range []string{"f_lea", "f_push"} {
		h.arm(h.detour(f, inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{Max: 5, Missed: 7, Hits: 8, Programs: []inject.Program{add}}}))
	}
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectSum("f_keep", 0, 1000, 0, 5, sums(1000, 5))
	h.expectSum("f_push", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 3000)
	h.expectCounter(8, 3000)
	h.expectCounter(9, 3*sums(1000, 5))
	for _, n := range []int{4, 7} {
		h.expectCounter(n, 0)
	}
	h.expectCalls(0)
}

// Threads that have no memory have one place in common, where each hit is one.
func TestCountsOfManyWithoutMemory(t *testing.T) {
	const threads, times = 6, 200_000
	for name, d := range map[string]inject.Detour{
		"only counted": {Hits: 3, Missed: inject.NoCounter},
		"a program":    {Hits: 4, Missed: 3, Programs: make([]inject.Program, 1)},
	} {
		h := startHost(t, segment.Layout{Threads: 1, Counters: 32, Away: 1 << 11, Calls: 1 << 10, Extra: 1 << 20})
		h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid})
		for i := range d.Programs {
			d.Programs[i] = h.program(func(*x86code.Asm) {})
		}
		h.arm(h.detour("f_push", d))
		h.say("start %d", threads)
		h.expectSum("f_push", threads, times, 0, 5, threads*sums(times, 5))
		h.say("stop")
		if _, lost := h.seg.Counter(3); lost != threads*times {
			t.Errorf("%s: %d of %d hits are counted", name, lost, threads*times)
		}
	}
}

// Returns that are seen where the function returns: the addresses stay.
func TestExits(t *testing.T) {
	h := startHost(t, testLayout)
	h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: 1 << 47})
	value := h.program(func(a *x86code.Asm) { // what is returned to counter 9, how often where to 10
		a.Load(arch.AX, arch.DI, 8*x86code.WordOf[arch.AX])
		a.Insn(8, x86.Add.ToRM(), x86.RAX, x86code.Mem(arch.R12, segment.Counter(9)))
		same := inject.NewLabel()
		a.Load(arch.AX, arch.DI, 8*x86code.WordSP)
		a.Load(arch.AX, arch.AX, -8)
		a.CmpReg(arch.DI, 8*x86code.WordIP, arch.AX)
		a.Jcc(x86.CondNE, same)
		a.Inc(arch.R12, segment.Counter(10))
		a.Place(same)
	})
	enter := h.detour("f_exit", inject.Detour{Hits: 3, Missed: 4, Enters: []inject.Enter{{ID: probe, Max: 4, Missed: 7}}})
	h.arm(enter)
	h.expectSum("f_exit", 0, 1, 20, 0, 20*21/2) // before its exit is armed: 20 deep, 4 of them watched
	exit := h.detourAt(h.addr["f_exit_end"], inject.Detour{Hits: inject.NoCounter, Missed: 14, Exits: []inject.Exit{{ID: probe, Hits: 8, Programs: []inject.Program{value}}}})
	original := h.text(exit.Site, 8)
	h.arm(exit)
	h.expectActive(4)
	h.expectSum("f_exit", 0, 1, 20, 0, 20*21/2)
	h.expectCounter(3, 21+21)
	h.expectCounter(7, 17+17)
	h.expectCounter(8, 4)
	h.expectCounter(9, 20*21/2+19*20/2+18*19/2+17*18/2)
	h.expectCounter(10, 4)
	h.expectCounter(probe+segment.LostUnwound, 4)
	h.expectActive(0)
	h.expectSum("f_exit", 0, 3, 0, 5, 5+(5+1)+(5+3))
	h.expectCounter(8, 4+6)
	// Where nobody looks at the exits, calls are given up when their places are used again;
	// or with their thread.
	h.put(exit.Site, original)
	h.expectSum("f_exit", 0, 10, 0, 5, 10*5+165)
	h.expectCounter(probe+segment.LostUnwound, 4+(1+2+3+7*4)-4)
	h.expectActive(4)
	h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: 1 << 47})
	h.expectActive(0)
	h.expectCounter(probe+segment.LostExited, 4)
	h.expectCounter(14, 0)
	h.expectCounter(4, 0)
}

func (h *host) expectActive(want int) {
	h.Helper()
	if got := h.seg.Active(probe); got != want {
		h.Errorf("%d calls under way, not %d", got, want)
	}
}

// Calls inside calls, more than may be watched.
func TestReturnMaxActive(t *testing.T) {
	h := startHost(t, testLayout)
	h.arm(h.detour("f_nest", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{Max: 5, Missed: 7, Hits: 8}}))
	const depth, times = 20, 100
	h.expectSum("f_nest", 0, 1, depth, 0, depth*(depth+1)/2)
	h.expectCounter(3, depth+1)
	h.expectCounter(7, depth+1-5)
	h.expectCounter(8, 5)
	var want uint64
	for i := range uint64(times) {
		want += i * (i + 1) / 2
	}
	h.expectSum("f_nest", 0, times, 0, 0, want)
	h.expectCalls(0)
}

// Deeper than there is room for instances on the thread's own stack of them, and deeper than there is any.
func TestReturnRoom(t *testing.T) {
	for _, c := range []struct{ away, room int }{{1 << 11, 1001}, {segment.LeastAway, segment.MaxCalls - 2 + segment.LeastAway}} {
		l := testLayout
		l.Away = c.away
		h := startHost(t, l)
		h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: hostMachine.UserEnd})
		h.arm(h.detour("f_nest", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{ID: probe, Max: 1 << 20, Missed: 7, Hits: 8}}))
		const depth = 1000
		for round := range uint64(2) {
			h.expectSum("f_nest", 0, 1, depth, 0, depth*(depth+1)/2)
			h.expectCounter(7, (round+1)*uint64(depth+1-c.room))
			h.expectCounter(8, (round+1)*uint64(c.room))
			h.expectCalls(0)
		}
		h.expectCounter(probe+segment.Away, 0)
	}
}

// Calls that are left by longjmp: with the thread's stack known they are
// recognised at the next call from above. Else they may eat up the instances.
func TestReturnAbandoned(t *testing.T) {
	for _, known := range []bool{true, false} {
		h := startHost(t, testLayout)
		thread := segment.Thread{Key: h.key(0), TID: h.pid}
		if known {
			thread.StackHigh = hostMachine.UserEnd
		}
		h.seg.Assign(thread)
		h.arm(h.detour("f_jump", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{ID: probe, Max: 100, Missed: 7, Hits: 8}}))
		h.arm(h.detour("f_lea", inject.Detour{Hits: 13, Missed: 4, Return: &inject.Return{ID: other, Max: 100, Missed: 7, Hits: 15}}))
		// 0 to 9 deep, then out. The slots of one call are those of all before.
		const n = 1000
		h.expectSum("jump", 0, n, 0, 5, sums(n, 5))
		hits, _ := h.seg.Counter(3)
		if want := uint64(n / 10 * 55); hits != want {
			t.Errorf("%d calls, not %d", hits, want)
		}
		h.expectCounter(8, 0)
		missed, _ := h.seg.Counter(7)
		var left uint64
		for _, c := range h.seg.Calls() {
			if !c.Left {
				left++
			}
		}
		lost, _ := h.seg.Counter(probe + segment.LostUnwound)
		if lost != hits-left-missed || known && (missed != 0 || left > 10) {
			t.Errorf("%d abandoned of %d, %d not watched, and %d still thought alive", lost, hits, missed, left)
		}
		h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
		h.expectCounter(15, 1000)
		if known {
			h.expectCalls(0)
		}
	}
}

// A signal handler's stack is in the middle of the thread's, so that the call in progress
// looks as if it had been left. It returns all the same.
func TestReturnOnOwnStack(t *testing.T) {
	h := startHost(t, testLayout)
	h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: 1 << 47})
	h.arm(h.detour("f_call", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{ID: probe, Max: 100, Missed: 7, Hits: 8}}))
	h.arm(h.detour("f_lea", inject.Detour{Hits: 13, Missed: 4, Return: &inject.Return{ID: other, Max: 100, Missed: 7, Hits: 15}}))
	h.expectSum("on_own_stack", 0, 10, 0, 5, sums(10, 5))
	h.expectCounter(8, 10)
	h.expectCounter(15, 10)
	// The slots of the calls that were left are in the list until they are used again.
	for _, c := range h.seg.Calls() {
		if !c.Left || c.Ret == 0 || c.Probe != probe {
			t.Errorf("%+v", c)
		}
	}
	h.expectCounter(probe+segment.LostUnwound, 0) // they were taken for abandoned, and returned after all
	h.expectCalls(0)
}

// A call that returns without a controller leaves the private stack alone: a forked child may use the same one at the same time.
func TestReturnWithoutController(t *testing.T) {
	h := startHost(t, testLayout)
	h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: 1 << 47})
	const untouched = 0x1234567
	dies := h.program(func(a *x86code.Asm) {
		a.StoreConst(arch.R12, segment.StateRSP, untouched)
		a.MovConst(arch.AX, uint64(h.seg.StateAddr(0))-uint64(h.seg.State(0))+segment.HeadDead)
		a.SetByte(arch.AX, 0, 0x40)
	})
	none := h.program(func(*x86code.Asm) {})
	h.arm(h.detour("f_call", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{ID: probe, Max: 100, Missed: 7, Hits: 8, Data: 8, Programs: []inject.Program{none}}}))
	h.arm(h.detour("f_lea", inject.Detour{Hits: 13, Missed: 14, Programs: []inject.Program{dies}}))
	h.expectSum("on_own_stack", 0, 1, 0, 5, 5)
	h.expectCounter(8, 0)
	h.expectCounter(7, 1)
	if got := h.seg.Get(h.seg.State(0) + segment.StateRSP); got&0xffffffff != untouched {
		t.Errorf("%#x was left there", got)
	}
}

// Without a controller a forked child has its thread's memory in common with its parent. Which of the two returns first from a call that both
// are in, and is over for the other then, is told by what each has for itself: nothing is asked by way of that memory.
func TestReturnWhereChildWasFirst(t *testing.T) {
	for _, first := range []bool{true, false} {
		h := startHost(t, testLayout)
		h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: 1 << 47})
		const untouched = 0x1234567
		dies := h.program(func(a *x86code.Asm) {
			if first { // the other one has returned from both calls
				a.Load(arch.AX, arch.R12, segment.StateCalls)
				a.Lea(arch.AX, arch.AX, -2*segment.CallSize)
				a.Store(arch.R12, segment.StateCalls, arch.AX)
			}
			a.StoreConst(arch.R12, segment.StateAsked, untouched)
			a.MovConst(arch.AX, uint64(h.seg.StateAddr(0))-uint64(h.seg.State(0))+segment.HeadDead)
			a.SetByte(arch.AX, 0, 0x40)
		})
		h.arm(h.detour("f_call", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{ID: probe, Max: 100, Missed: 7, Hits: 8}}))
		h.arm(h.detour("f_lea", inject.Detour{Hits: 13, Missed: 14, Programs: []inject.Program{dies}, Return: &inject.Return{ID: other, Max: 100, Missed: 7, Hits: 15}}))
		h.expectSum("on_own_stack", 0, 1, 0, 5, 5)
		if got := h.seg.Get(h.seg.State(0) + segment.StateAsked); got&0xffffffff != untouched {
			t.Errorf("first %v: %#x was asked for", first, got)
		}
	}
}

// The entry's programs may say that the return is of no interest, and the
// probe's may return at once.
func TestVetoAndOverride(t *testing.T) {
	h := startHost(t, testLayout)
	odd := h.program(func(a *x86code.Asm) { // 1 for odd arguments
		a.Load(arch.AX, arch.DI, 8*x86code.WordOf[arch.DI])
		a.Put(0x83, 0xe0, 1) // and eax, 1
	})
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{Max: 5, Missed: 7, Hits: 8, Entry: []inject.Program{odd}, Veto: true}}))
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 1000)
	h.expectCounter(8, 500)

	thousand := h.program(func(a *x86code.Asm) {
		a.SetByte(arch.R12, segment.StateOverride, 1)
		a.StoreConst(arch.R12, segment.StateValue, 1000)
	})
	thousand.Override = true
	for _, ret := range []*inject.Return{nil, {Max: 5, Missed: 7, Hits: 8}} {
		h.arm(h.detour("f_push", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{thousand}, Return: ret}))
		h.expectSum("f_push", 0, 1000, 0, 5, 1000*1000)
		h.expectCounter(8, 500)
		h.expectCalls(0)
	}
}

// Threads count apart; those that no state is left for are counted as lost.
func TestThreads(t *testing.T) {
	h := startHost(t, testLayout)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter}))
	h.arm(h.detour("f_push", inject.Detour{Hits: 5, Missed: 4, Programs: []inject.Program{h.program(clobber)}, Return: &inject.Return{Max: 5, Missed: 7, Hits: 8}}))
	const n = 20000
	for round := range 4 {
		h.say("start %d", 4)
		for i := range 4 {
			if round%2 == 0 { // else they find their own way
				h.seg.Assign(segment.Thread{Key: h.key(i + 1), TID: 100 + i})
			}
		}
		h.expectSum("f_lea", 4, n, 0, 5, 4*sums(n, 5))
		h.expectSum("f_push", 4, n, 0, 5, 4*sums(n, 5))
		keys := []uint64{h.key(1), h.key(2), h.key(3), h.key(4)}
		h.say("stop")
		for i, k := range keys {
			tid := 100 + uint64(i)
			if round%2 != 0 {
				tid = h.tid(i + 1)
			}
			if got := h.seg.Get(h.seg.State(h.seg.Find(k)) + jit.StatePidTgid); got != uint64(h.pid)<<32|tid {
				t.Errorf("thread %d is %#x", tid, got)
			}
			h.seg.Release(k)
		}
		h.expectCounter(3, uint64(round+1)*4*n)
		h.expectCounter(8, uint64(round+1)*4*n)
	}
	// The states of the dead were used again.
	if given := h.seg.Given(); given > 8 {
		t.Errorf("%d states for 4 threads at a time", given)
	}

	h.say("start %d", 12)
	for i := range 8 {
		if n := h.seg.Assign(segment.Thread{Key: h.key(i + 1), TID: 100 + i}); n < 0 {
			t.Errorf("no state for thread %d of 8", i)
		}
	}
	before, _ := h.seg.Counter(3)
	h.expectSum("f_lea", 12, n, 0, 5, 12*sums(n, 5))
	h.expectSum("f_push", 12, n, 0, 5, 12*sums(n, 5))
	if sum, lost := h.seg.Counter(3); sum != before+8*n || lost != 4*n {
		t.Errorf("%d counted, %d lost, of %d", sum-before, lost, 12*n)
	}
	h.say("stop")
}

// A signal handler calls the probed function wherever the thread is. Nobody moves the
// thread out of the detour first, as the controller would.
func TestSignals(t *testing.T) {
	h := startHost(t, testLayout)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{h.program(clobber)},
		Return: &inject.Return{Max: 50, Missed: 7, Hits: 8, Programs: []inject.Program{h.program(clobber)}}}))
	const n = 300000
	fmt.Fprintf(h.in, "storm f_lea %d %d\n", n, 300)
	var sum, storms uint64
	h.read("%d %d", &sum, &storms)
	if sum != sums(n, 2) {
		t.Errorf("the program computes %d instead of %d", sum, sums(n, 2))
	}
	// Each hit is served or counted as missed.
	hits, _ := h.seg.Counter(3)
	missed, _ := h.seg.Counter(4)
	if hits+missed != n+storms {
		t.Errorf("%d hits and %d missed of %d", hits, missed, n+storms)
	}
	returns, _ := h.seg.Counter(8)
	unwatched, _ := h.seg.Counter(7)
	if returns+unwatched != n+storms {
		t.Errorf("%d returns and %d missed of %d", returns, unwatched, n+storms)
	}
	h.expectCalls(0)
	t.Logf("%d signals, %d hits missed", storms, missed)
}

// When the controller is dead, no program runs, and no call is remembered.
func TestDeadController(t *testing.T) {
	h := startHost(t, testLayout)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{h.program(clobber)},
		Return: &inject.Return{Max: 50, Missed: 7, Hits: 8}}))
	// A thread plays the controller's. It is of this process, so that when it is joined
	// the kernel has marked the word.
	h.say("own %x", uint64(h.seg.Addr)+uint64(h.seg.Alive()))
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 1000)
	h.say("disown")
	h.expectSum("f_lea", 0, 1000, 0, 5, sums(1000, 5))
	h.expectCounter(3, 1000)
	h.expectCounter(4, 1000)
	h.expectCounter(5, 1000)
	h.expectCounter(7, 1000)
	h.expectCounter(8, 1000)
}
