package script

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"kprobe"
	"kprobe/arch"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/symbol"
)

// Programs that the controller runs while the thread that they are about stands: see interpreted.go.

// watch makes the watchpoint of an attach point.
func (t *target) watch(pt *point.Point, p *plan.Probe) error {
	program, err := t.r.interpreted(pt, p)
	if err != nil {
		return err
	}
	if pt.Watch.Called {
		fn, err := t.function(pt.Function)
		if err != nil {
			return t.missing(pt, sentence(fmt.Sprintf("Could not resolve symbol: %s: %v", pt.Function, err)))
		}
		if fn.Passing() != symbol.ByC {
			return t.missing(pt, sentence(fmt.Sprintf("What %s is called with cannot be watched: it is no function of C", pt.Function)))
		}
		c := &called{t: t, pt: pt, program: program, at: map[uint64]bool{}}
		t.calls = append(t.calls, c)
		probe := &kprobe.Kprobe{PreHandler: c.enters}
		probe.SymbolName = pt.Function
		t.add(probe)
		return nil
	}
	w := t.watchpoint(pt, program)
	w.Kp.SymbolName, w.Kp.Addr, w.Later = pt.Function, arch.Addr(pt.Address), true
	t.add(w)
	return nil
}

// watchpoint is one of an attach point's, nowhere yet.
func (t *target) watchpoint(pt *point.Point, program *interpreted) *kprobe.Watchpoint {
	access := kprobe.ReadWrite
	switch {
	case !pt.Watch.Write:
		access = kprobe.Read
	case !pt.Watch.Read:
		access = kprobe.Write
	}
	w := &kprobe.Watchpoint{Len: pt.Watch.Len, Access: access}
	w.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) { t.standing(program, regs) }
	return w
}

// called watches what a function is called with.
type called struct {
	t       *target
	pt      *point.Point
	program *interpreted

	mu   sync.Mutex
	at   map[uint64]bool // addresses: true where it is known whether they are watched
	full bool            // no more can be watched
}

// enters runs where the function is entered. A handler may not place a probe: another goroutine does, and the thread comes here again
// and again until that has been done, so that no access is missed.
func (c *called) enters(p *kprobe.Kprobe, regs *kprobe.Regs) int {
	addr, err := regs.Arg(c.pt.Watch.Arg)
	if err != nil || addr == 0 {
		return 0 // bpftrace watches no such address either
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, asked := c.at[addr]
	if !asked && !c.full {
		c.at[addr] = false
		go c.watch(addr)
	}
	if known || !asked && c.full || c.pt.Watch.Async {
		return 0
	}
	regs.SetPC(p.Addr)
	return 1
}

// watch watches an address from now on.
func (c *called) watch(addr uint64) {
	t, full := c.t, false
	t.arming.Lock()
	defer t.arming.Unlock()
	if !t.left {
		w := t.watchpoint(c.pt, c.program)
		w.Kp.Addr = arch.Addr(addr)
		err := t.settled(func() error { return t.session.RegisterWatchpoint(w) })
		switch {
		case err == nil:
			t.probes = append(t.probes, w)
		case !t.over():
			full = errors.Is(err, syscall.ENOSPC)
			fmt.Fprintf(t.r.s.opts.Errors, "WARNING: %s: %#x is not watched: %v\n", c.pt.Text, addr, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = c.full || full
	if _, wanted := c.at[addr]; wanted {
		c.at[addr] = true
	}
}

// standing runs a program for a thread that stands. A program that goes wrong, which no proved one does, is a handler's
// panic: the engine counts it and the thread goes on.
func (t *target) standing(program *interpreted, regs *kprobe.Regs) {
	if err := t.r.runOn(program, t.standsAs(regs)); err != nil {
		panic(err)
	}
}

// standsAs is a thread or a CPU that stands as a program sees it.
func (t *target) standsAs(regs *kprobe.Regs) *seen {
	task := regs.Task()
	return &seen{
		of: t, pid: task.PID, tid: task.TID, task: uint64(task.Addr), comm: regs.Comm(), cpu: uint32(max(regs.CPU(), 0)), pc: uint64(regs.PC()),
		reg: func(name string) uint64 {
			v, err := regs.Reg(name)
			if err != nil {
				return 0 // orig_rax is none of a thread's registers
			}
			return v
		},
		read: func(addr uint64, p []byte) error { return regs.ReadMem(arch.Addr(addr), p) },
	}
}

// unwatch takes the watchpoints at an address out. Who calls a function with it has it watched again.
func (t *target) unwatch(addr uint64) error {
	t.arming.Lock()
	defer t.arming.Unlock()
	at := func(p kprobe.Probe) bool {
		w, ok := p.(*kprobe.Watchpoint)
		return ok && uint64(w.Kp.Addr) == addr
	}
	for _, p := range t.probes {
		if !at(p) {
			continue
		}
		if err := t.session.Unregister(p); err != nil && !t.over() {
			return err
		}
	}
	t.probes = slices.DeleteFunc(t.probes, at)
	for _, c := range t.calls {
		c.mu.Lock()
		delete(c.at, addr)
		c.full = false
		c.mu.Unlock()
	}
	return nil
}
