package calls

import (
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/patch"
	"kprobe/symbol"
	"kprobe/target"
)

// What a program, the owners of its probes and other engines do.

// call has a task call a function.
func (m *model) call(t *task) {
	if t.back != nil || t.walks || t.sp < t.home-stackSize/2 {
		return
	}
	fn := m.n(goFunction)
	switch {
	case t.kind == goroutine:
		fn = goFunction + m.n(2)
	case m.n(5) == 0:
		fn = theirs
	}
	c := m.w.push(t, fn, arch.Addr(m.n(4)), arch.Addr(8*(2+m.n(6))))
	m.logf("%v %v calls f%d at %v", t.kind, t.thread, fn, c.slot)
	m.enter(t, c)
}

// tail ends a call in a jump to another function.
func (m *model) tail(t *task) {
	if t.back != nil || t.walks || len(t.calls) == 0 || t.kind == goroutine || m.failed != "" {
		return
	}
	c := t.calls[len(t.calls)-1]
	if t.sp != c.slot {
		return
	}
	from := c.fn
	c2 := m.n(goFunction + 2)
	if c2 >= goFunction {
		c2 = theirs
	}
	if c2 == theirs && c.foreign {
		return
	}
	m.leave(t, c, patch.TailJump)
	c.fn = c2
	m.logf("%v %v jumps from f%d to f%d at %v", t.kind, t.thread, from, c.fn, c.slot)
	m.enter(t, c)
	if m.n(2) == 0 {
		m.tail(t) // chains, of which two are ours and one between them is theirs
	}
}

// enter is what the engines do at a function's first instruction.
func (m *model) enter(t *task, c *call) {
	for _, p := range m.probes {
		if p.fn != c.fn {
			continue
		}
		if p.disabled || p.leaving || m.off {
			c.blind = true
			continue
		}
		m.entered(p, t, c)
	}
	if m.inside[c.fn] {
		m.w.detoured(t, c)
	}
	if c.fn == theirs && !c.foreign && m.guest {
		m.w.foreignly(c)
	}
}

// stale is what a slot held that somebody has read without the lock: nothing may rest on it.
const stale = arch.Addr(0x5741)

func (m *model) entered(p *probe, t *task, c *call) {
	e := &entry{p: p, call: c, task: t, threads: []target.Thread{t.thread}}
	vetoed := m.n(12) == 0
	wanted := func(real *Call[*entry]) bool {
		if !c.comesBackTo(real.RetAddr) {
			m.failf("the entry handler is told that f%d comes back to %v, and it does to %v", c.fn, real.RetAddr, c.real)
		}
		real.Instance = e
		// The lock is not held: a detour may go meanwhile that the call comes back through.
		if fn := m.n(4 * functions); m.inside[fn] && !m.inDetours() {
			m.retire(fn)
			m.reached["retired while an entry handler runs"]++
		}
		return !vetoed
	}
	var o Outcome
	if p.exits {
		o = m.u.Enter(&p.Probe, m.w.spot(t), stale, wanted)
	} else {
		o = m.u.Swap(&p.Probe, m.w.spot(t), wanted)
	}
	switch {
	case o == Watched && !vetoed:
		e.state = watched
		for _, o := range c.entries {
			o.threads = append(o.threads, t.thread)
		}
		p.entries = append(p.entries, e)
		c.entries = append(c.entries, e)
	case o == NotWanted && vetoed:
		e.state = refused
	case o == Missed:
		e.state = refused
		if held := m.held(p); held < p.MaxActive && !m.w.noteFails {
			m.failf("probe %d misses a call of f%d with %d of %d instances in use", p.id, c.fn, held, p.MaxActive)
		}
		for _, e := range p.entries {
			if m.held(p) >= p.MaxActive && m.holds(e) && e.over && e.task == t && t.kind == native && e.call.slot < t.sp && !p.exits {
				m.failf("probe %d misses a call although this is over: %v", p.id, e)
			}
		}
	default:
		m.failf("the outcome of an entry of f%d is %d (vetoed: %v)", c.fn, o, vetoed)
	}
	m.logf("  probe %d (%s): %v", p.id, p.how(), [...]string{"watched", "missed", "not wanted"}[o])
}

// leave is what the engine of exits does at an instruction that leaves a function.
func (m *model) leave(t *task, c *call, how patch.ExitKind) {
	for _, p := range m.probes {
		if p.fn != c.fn || !p.exits || !p.standing || m.off {
			continue
		}
		x := Exit{Spot: m.w.spot(t), Kind: how, Leads: true, Next: stale}
		real, tail, ok := m.u.Leave(&p.Probe, x)
		e := m.entryOf(p, c)
		switch {
		case ok && e == nil && c.blind && real.Instance.over && real.Instance.p == p && (how == patch.TailJump || c.comesBackTo(real.RetAddr)):
			// It was entered with the probe off, and looks like a call before it that never returned: same
			// place, same caller (which a tail jump does not even show). Nothing tells the two apart.
			real.Instance.state = reported
			m.u.Done(real)
			m.reached["taken for an earlier one"]++
		case ok && (e == nil || real.Instance != e):
			m.failf("probe %d reports at an exit of f%d what is not its call: %v", p.id, c.fn, real.Instance)
		case ok && tail != (how == patch.TailJump):
			m.failf("probe %d takes an exit of f%d for a tail jump: %v", p.id, c.fn, tail)
		case ok && p.leaving:
			m.failf("probe %d is leaving, and reports", p.id)
		case ok:
			m.report(real, c)
		case e != nil && !p.leaving:
			m.failf("probe %d does not report the return of f%d: %v", p.id, c.fn, e)
		}
	}
}

// entryOf is the call that a probe watches there, the newest one.
func (m *model) entryOf(p *probe, c *call) *entry {
	for _, e := range slices.Backward(c.entries) {
		if e.p == p && e.state == watched {
			return e
		}
	}
	return nil
}

func (m *model) report(real *Call[*entry], c *call) {
	e := real.Instance
	if e.state != watched || e.call != c || !c.comesBackTo(real.RetAddr) {
		m.failf("reported: %v, in the return of f%d at %v to %v", e, c.fn, c.slot, c.real)
		return
	}
	if m.n(6) == 0 && e.p.leaving {
		m.u.Lose(real, Unregistered)
		e.state = lost
		e.p.counted[Unregistered]++
		return
	}
	e.state = reported
	m.u.Done(real)
	m.reached["reported"]++
}

// goBack has a task's innermost call return, or goes one step further on its way.
func (m *model) goBack(t *task) {
	if t.walks {
		m.walked(t)
		return
	}
	if t.back == nil {
		if len(t.calls) == 0 || t.sp != t.calls[len(t.calls)-1].slot {
			return
		}
		c := t.calls[len(t.calls)-1]
		m.logf("%v %v returns from f%d at %v", t.kind, t.thread, c.fn, c.slot)
		m.leave(t, c, patch.Ret)
		t.calls = t.calls[:len(t.calls)-1]
		t.back, t.next = c, m.w.mem[t.sp]
		t.sp += 8
		m.arrive(t)
	} else {
		m.onward(t)
	}
	for t.back != nil && m.n(4) != 0 && m.failed == "" {
		m.onward(t)
	}
	m.carrying()
}

// arrive is what runs at once where a thread has come to: a detour takes its account off.
func (m *model) arrive(t *task) {
	switch c := t.back; {
	case t.next == foreignAt:
		at := m.w.kept[c.slot]
		if len(at) == 0 {
			m.failf("somebody else does not know a call at %v", c.slot)
			return
		}
		t.next = m.w.mem[at[0]] | carriedBit
		m.w.kept[c.slot] = at[1:]
	case m.w.Returns(t.next):
		fn := int(t.next-detoursAt) / 16
		i := slices.IndexFunc(m.w.accounts, func(a account) bool { return a.call == c && a.fn == fn })
		if i < 0 {
			m.failf("a detour does not know a call at %v", c.slot)
			return
		}
		t.next = m.w.accounts[i].ret | detourBit
		m.w.accounts = slices.Delete(m.w.accounts, i, i+1)
	case t.next != trampolineAt:
		if t.next != c.real {
			m.failf("f%d comes back to %v, and its caller is at %v", c.fn, t.next, c.real)
		}
		for _, e := range c.entries {
			if e.state != watched || e.p.leaving {
				continue
			}
			if !m.baredElsewhere(e) {
				m.failf("its return was not reported: %v", e)
			}
		}
		t.back, t.next = nil, 0
	}
}

// baredElsewhere tells whether the thread that made a call, a coroutine's that another thread has now, walks another
// stack: the return address is put back meanwhile, since it might have been its own. The call may go unreported.
func (m *model) baredElsewhere(e *entry) bool {
	yes := slices.ContainsFunc(m.w.tasks, func(w *task) bool { return w.walks && slices.Contains(e.threads, w.thread) })
	if yes {
		m.reached["bared elsewhere"]++
		e.over, e.ended = true, Longjmp
	}
	return yes
}

// Where a thread is between two addresses of ours.
const (
	carriedBit = arch.Addr(1) << 62
	detourBit  = arch.Addr(1) << 61
)

// onward is the next step of a return.
func (m *model) onward(t *task) {
	c := t.back
	switch {
	case t.next&carriedBit != 0:
		t.next &^= carriedBit
		m.w.mem[c.slot] = t.next // as the kernel's trampoline does: it returns through the slot, too
		m.arrive(t)
	case t.next&detourBit != 0:
		t.next &^= detourBit
		m.w.mem[c.slot] = t.next // the detour returns, and that pairs with its call
		m.arrive(t)
	case t.next == trampolineAt:
		r, ok := m.u.Returned(t.sp)
		if !ok {
			m.failf("a thread has come to the trampoline from f%d at %v, and nothing is known of its call", c.fn, c.slot)
			return
		}
		if !c.comesBackTo(r.Back) {
			m.failf("the handler of f%d's return is told that it comes back to %v, and it does to %v", c.fn, r.Back, c.real)
		}
		m.logf("  %v %v at the trampoline, goes to %v", t.kind, t.thread, r.Next)
		for _, real := range slices.Backward(r.Calls) {
			m.report(real, c)
		}
		t.next = r.Next
		m.arrive(t)
	}
	m.carrying()
}

// carrying says whether a thread is on its way with a return address that nobody else has.
func (m *model) carrying() {
	m.w.carried = slices.ContainsFunc(m.w.tasks, func(t *task) bool { return t.next&carriedBit != 0 })
}

// end entries of calls that will not return.
func (m *model) over(c *call, why Loss) {
	c.over = true
	for _, e := range c.entries {
		e.over, e.ended = true, why
	}
}

// longjmp drops some of a task's calls.
func (m *model) longjmp(t *task, why Loss) {
	if t.back != nil || t.walks || len(t.calls) == 0 {
		return
	}
	keep := m.n(len(t.calls))
	m.logf("%v %v: longjmp over %d calls", t.kind, t.thread, len(t.calls)-keep)
	m.cut(t, keep, why)
}

func (m *model) cut(t *task, keep int, why Loss) {
	for _, c := range t.calls[keep:] {
		m.over(c, why)
	}
	t.calls = t.calls[:keep]
	t.sp = t.home - 64
	if keep > 0 {
		t.sp = t.calls[keep-1].slot
	}
	m.w.forgetKept(t, t.sp)
}

// unwind is an exception: the walk begins, what it finds is taken off, and some calls are over.
func (m *model) unwind(t *task) {
	if t.back != nil || t.walks || t.kind == goroutine {
		return
	}
	m.logf("%v %v: an exception", t.kind, t.thread)
	d := &walker{w: m.w, t: t}
	us := Unswap(m.u, m.w.spot(t), d)
	m.bare(t)
	End(m.u, us, d)
	m.mayLose(func(e *entry) bool {
		if e.task == t && !slices.Contains(e.threads, t.thread) {
			m.baredElsewhere(e)
		}
		return (slices.Contains(e.threads, t.thread) || e.task == t) && !e.p.exits
	}, Unwound)
	if len(t.calls) > 0 {
		m.cut(t, m.n(len(t.calls)+1), Unwound)
	}
}

// backtrace begins a walk that ends later.
func (m *model) backtrace(t *task) {
	if t.back != nil || t.kind == goroutine {
		return
	}
	if t.walks {
		m.walked(t)
		return
	}
	m.logf("%v %v walks its stack", t.kind, t.thread)
	t.walker = &walker{w: m.w, t: t}
	t.walk, t.walks = Unswap(m.u, m.w.spot(t), t.walker), true
	m.bare(t)
}

// bare holds that a thread which walks its stack finds its own return addresses.
func (m *model) bare(t *task) {
	for _, c := range t.calls {
		if !c.foreign && m.w.mem[c.slot] != c.real {
			m.failf("a walk finds %v at %v, and f%d comes back to %v", m.w.mem[c.slot], c.slot, c.fn, c.real)
		}
	}
}

func (m *model) walked(t *task) {
	m.logf("%v %v has walked its stack", t.kind, t.thread)
	SwapAgain(m.u, t.walk, t.walker)
	t.walk, t.walks, t.walker = nil, false, nil
}

// begin is a new thread, coroutine or goroutine.
func (m *model) begin() {
	if len(m.w.tasks) < 7 {
		t := m.newTask([]kind{native, coroutine, goroutine}[m.n(3)])
		m.logf("%v %v begins", t.kind, t.thread)
		m.w.tasks = append(m.w.tasks, t)
	}
}

// end is a task's.
func (m *model) end(t *task) {
	if t.back != nil || t.walks {
		return
	}
	why := [...]Loss{Exited, Longjmp, Goexit}[t.kind]
	if t.kind == native {
		busy := slices.ContainsFunc(m.w.tasks, func(o *task) bool { return o != t && (o.thread == t.thread || o.kind == native) })
		others := slices.ContainsFunc(m.w.tasks, func(o *task) bool { return o != t && o.thread == t.thread })
		if !busy || others {
			return // the last thread, or one that has a coroutine
		}
	}
	m.logf("%v %v ends", t.kind, t.thread)
	for _, c := range t.calls {
		m.over(c, why)
	}
	t.calls = nil
	m.w.tasks = slices.DeleteFunc(m.w.tasks, func(o *task) bool { return o == t })
	if t.kind == native {
		// A coroutine that it ran and another thread has now is not given up with it; one it made a
		// call on may be, for all that anybody can tell.
		m.mayLose(func(e *entry) bool { return slices.Contains(e.threads, t.thread) && !e.p.exits }, Exited)
		m.u.ThreadExited(t.thread)
		for _, p := range m.probes {
			for _, e := range p.entries {
				if e.task == t && m.holds(e) {
					m.failf("its thread has ended, and it is still watched: %v", e)
				}
			}
		}
	}
	m.w.maps = slices.DeleteFunc(m.w.maps, func(x symbol.Mapping) bool { return x.End == t.home })
	for a := t.home - stackSize; a < t.home; a += 8 {
		delete(m.w.mem, a)
	}
}

// move has a coroutine or goroutine go on on another thread, and the stack of a goroutine grow.
func (m *model) move(t *task) {
	if t.kind == native || t.back != nil || t.walks {
		return
	}
	to := m.someThread()
	if slices.ContainsFunc(m.w.tasks, func(o *task) bool { return o.thread == to && (o.back != nil || o.walks) }) {
		return
	}
	t.thread = to
	m.logf("%v goes on on %v", t.kind, t.thread)
	if t.kind != goroutine {
		return
	}
	m.stacks++
	home := stackEnd(m.stacks)
	m.w.maps = append(m.w.maps, symbol.Mapping{Start: home - stackSize, End: home})
	for a := arch.Addr(8); a < stackSize; a += 8 {
		if v, ok := m.w.mem[t.home-a]; ok {
			m.w.mem[home-a] = v
			delete(m.w.mem, t.home-a)
		}
	}
	for _, c := range t.calls {
		c.slot += home - t.home
	}
	t.sp += home - t.home
	t.home = home
}

// register makes a new probe.
func (m *model) register() {
	if len(m.probes) == maxProbes {
		return
	}
	m.nprobes++
	p := &probe{id: m.nprobes, fn: m.n(goFunction + 2)}
	p.exits = p.fn >= goFunction || m.n(2) == 0
	p.standing = p.exits
	p.Reset(1+m.n(4), func() bool { return p.leaving })
	p.Unwinds.Store(m.n(2) == 0)
	if !p.exits && m.u.Trampoline() == 0 {
		m.u.SetTrampoline(trampolineAt)
	}
	m.logf("probe %d on f%d: %s, at most %d", p.id, p.fn, p.how(), p.MaxActive)
	m.probes = append(m.probes, p)
}

// unregister begins to take a probe off, or ends it; others' operations come in between.
func (m *model) unregister() {
	if len(m.probes) == 0 {
		return
	}
	p := m.probes[m.n(len(m.probes))]
	for _, q := range m.probes {
		if q.leaving && m.n(2) == 0 {
			p = q
		}
	}
	if !p.leaving {
		m.logf("probe %d is leaving", p.id)
		p.leaving = true
		m.countEnded(p)
		return
	}
	m.orphan(p)
}

func (m *model) orphan(p *probe) {
	m.logf("probe %d is gone", p.id)
	m.settle(p)
	held := uint64(m.held(p))
	before := p.Lost(Unregistered)
	m.u.Orphan(&p.Probe)
	if n := p.Lost(Unregistered) - before; n != held {
		m.failf("%d calls of probe %d are under way when it goes, and it counts %d", held, p.id, n)
	}
	for _, e := range p.entries {
		e.state = orphaned
	}
	p.counted[Unregistered] += held
	p.entries = nil
	m.gone = append(m.gone, p)
	m.probes = slices.DeleteFunc(m.probes, func(q *probe) bool { return q == p })
	m.reached["orphaned"] += int(held)
}

// countEnded is what is asked of the stacks of the frozen target.
func (m *model) countEnded(leaving *probe) {
	running := map[target.Thread]*task{} // a thread stands on one of its stacks
	for _, t := range m.w.tasks {
		if o := running[t.thread]; o == nil || o.back == nil && !o.walks && (t.back != nil || t.walks || m.n(2) == 0) {
			running[t.thread] = t
		}
	}
	m.u.CountEnded(func(yield func(Stand) bool) {
		for _, t := range m.w.tasks {
			if running[t.thread] == t && !yield(Stand{m.w.spot(t), t.back != nil}) {
				return
			}
		}
	})
	if leaving != nil {
		m.u.TakenOff(&leaving.Probe)
	}
	for _, p := range m.probes {
		for _, e := range p.entries {
			if t := e.task; m.holds(e) && e.over && t.kind == native && running[t.thread] == t && e.call.slot+8 < t.sp {
				m.failf("the stacks show that it is over, and it is still watched: %v", e)
			}
		}
	}
}

// toggle switches a probe off or on.
func (m *model) toggle() {
	if len(m.probes) == 0 {
		return
	}
	p := m.probes[m.n(len(m.probes))]
	if !p.disabled && m.n(3) != 0 {
		return
	}
	p.disabled = !p.disabled
	switch {
	case !p.disabled:
		m.u.Sighted(&p.Probe)
		p.standing = p.exits
	case m.u.Blind(&p.Probe):
		p.standing = false
	}
	m.logf("probe %d off: %v, its exits stand: %v", p.id, p.disabled, p.standing)
}

// all switches all probes off or on.
func (m *model) all() {
	if !m.off && m.n(6) != 0 {
		return
	}
	m.off = !m.off
	m.logf("all off: %v", m.off)
	m.u.See(!m.off)
	if m.off {
		m.mayLose(func(e *entry) bool { return e.p.exits }, Unregistered)
	}
}

// flipInside gives a function a detour that swaps return addresses, or retires it.
func (m *model) flipInside() {
	if m.guest {
		return
	}
	fn := m.n(goFunction)
	if !m.inside[fn] {
		m.logf("f%d has a detour", fn)
		m.inside[fn] = true
		return
	}
	if m.inDetours() {
		return
	}
	m.retire(fn)
}

func (m *model) retire(fn int) {
	m.logf("f%d's detour is retired", fn)
	delete(m.inside, fn)
	m.u.Retire(func(redirect func(slot, from, to arch.Addr) error) {
		m.w.retire(fn, func(slot, from, to arch.Addr) {
			if err := redirect(slot, from, to); err != nil && !m.w.noteFails {
				m.failf("redirect: %v", err)
			}
		})
	})
}

// inDetours tells whether a thread is in a detour or carries the address of one, or walks its stack, and has put
// one aside. A detour is not retired then.
func (m *model) inDetours() bool {
	return slices.ContainsFunc(m.w.tasks, func(t *task) bool {
		return t.walks || t.next&detourBit != 0 || m.w.Returns(t.next&^carriedBit)
	})
}

// fork copies memory, and the copy has to be the program's own.
func (m *model) fork() {
	m.logf("fork")
	child := image{}
	for a, v := range m.w.mem {
		child[a] = v
	}
	if err := m.u.Restore(child); err != nil {
		m.failf("restore: %v", err)
	}
	for _, a := range slices.Backward(m.w.accounts) { // what is the detours' own
		if child[a.slot] == detour(a.fn) {
			child[a.slot] = m.w.Way(a.slot)(child[a.slot])
		}
	}
	for _, t := range m.w.tasks {
		for _, c := range t.calls {
			if !c.foreign && child[c.slot] != c.real {
				m.failf("in a child f%d comes back from %v to %v, and its caller is at %v", c.fn, c.slot, child[c.slot], c.real)
			}
		}
	}
}

// exec begins another program.
func (m *model) exec() {
	m.logf("exec")
	for _, t := range m.w.tasks {
		t.back = nil
		for _, c := range t.calls {
			m.over(c, Exited)
		}
	}
	m.u.Replaced()
	for _, p := range m.probes {
		for _, e := range p.entries {
			e.over, e.ended = true, Exited
			e.mayFor = append(e.mayFor, Longjmp)
		}
		if n := m.held(p); n != 0 || p.active != 0 {
			m.failf("another program runs, and probe %d watches %d calls, %d active", p.id, n, p.active)
		}
	}
	*m.w = *newWorld()
	m.inside = map[int]bool{}
	m.w.tasks = append(m.w.tasks, m.newTask(native))
	if slices.ContainsFunc(m.probes, func(p *probe) bool { return !p.exits }) {
		m.u.SetTrampoline(trampolineAt)
	}
}

// detach takes everything away that can be.
func (m *model) detach() {
	if m.inDetours() {
		return
	}
	m.logf("detach")
	for _, p := range slices.Clone(m.probes) {
		p.leaving = true
		m.orphan(p)
	}
	for fn := range m.inside {
		m.retire(fn)
	}
	m.inside = map[int]bool{}
	anyhow := m.n(4) == 0
	err := m.u.GiveBack(anyhow, func(slot, from, to arch.Addr) {
		m.failf("a detour has to send the call at %v elsewhere, and there is none", slot)
	})
	switch {
	case errors.Is(err, target.ErrNotNow):
		// What is left in the slot of a call that is over looks like that of a thread on its way.
		stale := false
		for slot := range m.u.at {
			stale = stale || m.w.Returns(m.w.mem[slot])
		}
		if anyhow || !m.w.carried && !stale {
			m.failf("nothing is in the way, and the return addresses are not given back")
		}
		return
	case err != nil:
		m.failf("give back: %v", err)
	}
	if m.w.carried {
		// Who carries an address of ours comes to a trampoline that is gone: that is what
		// anyhow means. It is not tried here.
		for _, t := range m.w.tasks {
			if t.next&^carriedBit == trampolineAt {
				t.next = t.back.real | carriedBit
			}
		}
	}
	for _, t := range m.w.tasks {
		if t.back != nil && t.next == trampolineAt {
			next, ok := m.u.Popped(t.sp)
			if !ok {
				m.failf("a thread stands on the trampoline, and nothing is known of its call")
			}
			t.next = next
			m.arrive(t)
		}
		for _, c := range t.calls {
			word := m.w.mem[c.slot]
			for i := 0; word == foreignAt && i < len(m.w.kept[c.slot]); i++ {
				word = m.w.mem[m.w.kept[c.slot][i]]
			}
			if word != c.real {
				m.failf("given back: f%d comes back from %v to %v, and its caller is at %v", c.fn, c.slot, word, c.real)
			}
		}
	}
	m.u.Forget()
}
