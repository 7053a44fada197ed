package kernel

import (
	"bytes"

	"kprobe/arch"
	"kprobe/target"
)

// notices are breakpoints of our own, on functions that the kernel passes when
// something happens that the engine must know: a stop there is told by its kind.
type notices struct {
	begun  bool // those that there are in any case
	kinds  map[arch.Addr]target.StopKind
	theirs map[arch.Addr]bool          // the engine's breakpoints at the same places
	held   map[target.Thread]arch.Addr // who was told of, and stands there
	told   map[target.Thread]bool      // who is to be told of again, as a trap
}

// turns are functions that a module passes when it is loaded, with its symbols in
// place and before any of its code runs, and when it is unloaded, after the last of
// it. The kernel tells its own kprobes at the same moments (kprobes_module_callback).
var turns = []string{"do_init_module", "free_module"}

// notice puts a breakpoint of ours on a function, if the kernel has it.
func (t *Target) notice(name string, kind target.StopKind) error {
	addr, ok := t.kernel.Table().Addr(name)
	if !ok {
		return nil
	}
	n := &t.notices
	if n.kinds == nil {
		n.kinds, n.theirs = make(map[arch.Addr]target.StopKind), make(map[arch.Addr]bool)
		n.held, n.told = make(map[target.Thread]arch.Addr), make(map[target.Thread]bool)
	}
	err := t.Target.SetBreak(addr)
	if err == nil {
		n.kinds[addr] = kind
	}
	return err
}

// Wait lets the machine go on until a CPU comes to a breakpoint.
func (t *Target) Wait() (target.Stop, error) {
	for _, name := range turns {
		if t.notices.begun {
			break
		}
		if err := t.notice(name, target.StopLoad); err != nil {
			return target.Stop{}, err
		}
	}
	t.notices.begun = true
	st, err := t.Target.Wait()
	if err == nil {
		st, err = t.noticed(st)
	}
	return st, err
}

// Freeze stops the machine.
func (t *Target) Freeze() ([]target.Stop, error) {
	stops, err := t.Target.Freeze()
	for i := range stops {
		if err == nil {
			stops[i], err = t.noticed(stops[i])
		}
	}
	return stops, err
}

// noticed tells a stop at a breakpoint of ours as what it means.
func (t *Target) noticed(st target.Stop) (target.Stop, error) {
	n := &t.notices
	if st.Kind != target.StopTrap || len(n.kinds) == 0 {
		return st, nil
	}
	if n.told[st.Thread] {
		delete(n.told, st.Thread)
		return st, nil
	}
	var r arch.Regs
	if err := t.Regs(st.Thread, &r); err != nil {
		return st, err
	}
	at := arch.Addr(r[t.Arch().PC])
	if kind, ours := n.kinds[at]; ours {
		n.held[st.Thread] = at
		st.Kind = kind
	}
	return st, nil
}

// Resume lets a reported CPU go on: over the breakpoint of ours where it stands.
// If there is a probe there as well it is reported for that first.
func (t *Target) Resume(th target.Thread, signal int) error {
	n := &t.notices
	at, held := n.held[th]
	if !held {
		return t.Target.Resume(th, signal)
	}
	delete(n.held, th)
	if n.theirs[at] {
		n.told[th] = true
		return t.Requeue(target.Stop{Kind: target.StopTrap, Thread: th, Back: true})
	}
	if err := t.Step(th); err != nil {
		return err
	}
	return t.Target.Resume(th, signal)
}

// SetBreak puts a breakpoint of the engine's at addr.
func (t *Target) SetBreak(addr arch.Addr) error {
	if _, ours := t.notices.kinds[addr]; ours {
		t.notices.theirs[addr] = true
		return nil
	}
	trap := make([]byte, len(t.Arch().Break))
	if t.ReadAt(addr, trap) == nil && bytes.Equal(trap, t.Arch().Break) {
		t.padding[addr] = true
	}
	return t.Target.SetBreak(addr)
}

// ClearBreak takes one out.
func (t *Target) ClearBreak(addr arch.Addr) error {
	if _, ours := t.notices.kinds[addr]; ours {
		delete(t.notices.theirs, addr)
		return nil
	}
	return t.Target.ClearBreak(addr)
}
