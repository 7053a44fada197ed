package kernel

import (
	"bytes"

	"kprobe/arch"
	"kprobe/symbol/kernel"
	"kprobe/target"
)

// notices are breakpoints of our own, on functions that the kernel passes when
// something happens that the engine must know: a stop there is told by its kind.
type notices struct {
	begun  bool // the breakpoints that there are in any case
	kinds  map[arch.Addr]target.StopKind
	theirs map[arch.Addr]bool          // the engine's breakpoints, at the same places and at others
	turned map[arch.Addr]string        // modules by their struct: the last of turns that they came to while we were there
	held   map[target.Thread]arch.Addr // threads that were reported, and where they stand
	asTrap map[target.Thread]bool      // threads whose next report is the engine's: Resume has queued it for its breakpoint at the same place
}

// begins and frees are the two of turns. Their argument is the struct module.
const begins, frees = "do_init_module", "free_module"

// turns are functions that a module passes when it is loaded, with its symbols in
// place and before any of its code runs, and when it is unloaded, after the last of
// it. The kernel tells its own kprobes at the same moments (kprobes_module_callback).
var turns = []string{begins, frees}

// notice puts a breakpoint of ours on a function, if the kernel has it.
func (t *Target) notice(name string, kind target.StopKind) error {
	addr, ok := t.kernel.Table().Addr(name)
	if !ok {
		return nil
	}
	n := &t.notices
	if n.kinds == nil {
		n.kinds = make(map[arch.Addr]target.StopKind)
		n.held, n.asTrap = make(map[target.Thread]arch.Addr), make(map[target.Thread]bool)
	}
	if !n.theirs[addr] {
		if err := t.Target.SetBreak(addr); err != nil {
			return err
		}
	}
	n.kinds[addr] = kind
	return nil
}

// unnotice takes it out again.
func (t *Target) unnotice(addr arch.Addr) error {
	delete(t.notices.kinds, addr)
	if t.notices.theirs[addr] {
		return nil
	}
	return t.Target.ClearBreak(addr)
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
	for {
		if err := t.lookForAsks(); err != nil {
			return target.Stop{}, err
		}
		st, err := t.Target.Wait()
		served := false
		if err == nil {
			st, served, err = t.noticed(st)
		}
		if !served || err != nil {
			return st, err
		}
	}
}

// Freeze stops the machine.
func (t *Target) Freeze() ([]target.Stop, error) {
	all, err := t.Target.Freeze()
	stops := all[:0]
	for _, st := range all {
		served := false
		if err == nil {
			st, served, err = t.noticed(st)
		}
		if !served {
			stops = append(stops, st)
		}
	}
	return stops, err
}

// noticed gives a stop at a breakpoint of ours its meaning. served tells that the thread goes on already, and is not reported.
func (t *Target) noticed(st target.Stop) (_ target.Stop, served bool, err error) {
	n := &t.notices
	if st.Kind != target.StopTrap || len(n.kinds) == 0 {
		return st, false, nil
	}
	if n.asTrap[st.Thread] {
		delete(n.asTrap, st.Thread)
		return st, false, nil
	}
	var r arch.Regs
	if err := t.Regs(st.Thread, &r); err != nil {
		return st, false, err
	}
	at := r.Addr(t.Arch().PC)
	kind, ours := n.kinds[at]
	if !ours {
		return st, false, nil
	}
	n.held[st.Thread] = at
	if kind == stopAsk {
		return t.asked(st)
	}
	if kind == target.StopLoad {
		t.turn(at, arch.Addr(r[t.Arch().Args[0]]))
	}
	st.Kind = kind
	return st, false, nil
}

// turn notes which module has come to which of turns.
func (t *Target) turn(at, module arch.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range turns {
		if addr, ok := t.kernel.Table().Addr(name); ok && addr == at {
			if t.notices.turned == nil {
				t.notices.turned = make(map[arch.Addr]string)
			}
			t.notices.turned[module] = name
		}
	}
}

// leaving tells whether a module is about to be freed. Its code may run until then, though it is
// being unloaded. mu is held.
func (t *Target) leaving(m *kernel.Module) bool {
	if _, told := t.kernel.Table().Addr(frees); !told {
		return m.State == kernel.Going
	}
	return m.State == kernel.Going && t.notices.turned[m.Struct()] == frees
}

// settled says why a module's text must not be overwritten; "" where it may be.
func (t *Target) settled(at arch.Addr) string {
	for _, m := range t.kernel.Modules() {
		if !m.Text.Contains(at) {
			continue
		}
		t.mu.Lock()
		turned := t.notices.turned[m.Struct()]
		t.mu.Unlock()
		_, told := t.kernel.Table().Addr(frees)
		uni, ok := t.kernel.Table().Addr("uniproc_patched")
		switch {
		case !told:
			return "the code is a module's, which may be unloaded, and the kernel has no " + frees + " to tell of it"
		case m.State == kernel.Going || turned == frees:
			return "the code is a module's that is being unloaded"
		case m.State == kernel.Coming && turned != begins:
			return "the code is a module's that is being loaded"
		case ok && t.number(uni, 4)&0xff != 0:
			return "the code is a module's, and the kernel may change its lock prefixes when it gets another CPU"
		}
		return ""
	}
	return "the code is no longer there"
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
		n.asTrap[th] = true
		return t.Requeue(target.Stop{Kind: target.StopTrap, Thread: th, Back: true})
	}
	if err := t.Step(th); err != nil {
		return err
	}
	return t.Target.Resume(th, signal)
}

// SetBreak puts a breakpoint of the engine's at addr.
func (t *Target) SetBreak(addr arch.Addr) error {
	if _, ours := t.notices.kinds[addr]; !ours {
		trap := make([]byte, len(t.Arch().Break))
		if t.ReadAt(addr, trap) == nil && bytes.Equal(trap, t.Arch().Break) {
			t.padding[addr] = true
		}
		if err := t.Target.SetBreak(addr); err != nil {
			return err
		}
	}
	t.notices.theirs[addr] = true
	return nil
}

// ClearBreak takes one out.
func (t *Target) ClearBreak(addr arch.Addr) error {
	_, ours := t.notices.kinds[addr]
	if !ours {
		if err := t.Target.ClearBreak(addr); err != nil {
			return err
		}
	}
	delete(t.notices.theirs, addr)
	return nil
}
