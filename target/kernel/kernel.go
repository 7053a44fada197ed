// Package kernel is a live Linux kernel as a target: a machine behind a GDB stub (target/gdbremote)
// that its own tables describe (symbol/kernel). The kernel and its modules are the mappings, their
// symbols the files, CPUs the threads. No help of the guest is needed. Breakpoints are the stub's:
// they change none of its bytes. A machine that is reset is not the target any more (boot.go).
//
// Where the guest has a device whose memory we share, code of ours can run in it, next to
// the kernel's:
//
//	window.go    the memory, and how it comes next to the kernel
//	rewrite.go   the others that write text, and how they are let
//	resting.go   where tasks rest, so that nothing is changed under them
//	traps.go     where trap instructions come to
//	journal.go   notes by which the next controller restores the text if we are killed
//	settle.go    letting it run until something holds
//	clock.go     the kernel's time
//	ask.go       things that the kernel does itself when we ask for them
package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/symbol"
	"kprobe/symbol/kernel"
	"kprobe/target/gdbremote"
)

// Target is a machine with a kernel.
type Target struct {
	*gdbremote.Target
	place  string
	kernel *kernel.Kernel
	memory arch.Reader // of the kernel, without asking a CPU where that can be
	ram    *os.File    // nil where the guest's memory is not shared

	boot        boot
	current     current
	notices     notices
	asks        asks
	swaps       swaps
	guard       *guarded           // nil in a guardian itself
	overrideAny bool               // see Options
	padding     map[arch.Addr]bool // where the engine has a breakpoint that nothing runs into but returns

	// For code of ours in the guest: see window.go, resting.go, rewrite.go.
	window    *window
	stacks    *stacks
	rewriting []arch.Range
	rdtsc     arch.Addr // see Time

	mu    sync.Mutex
	files map[string]image // by the path of the mapping
	// blocked is the kernel's list of places that must not be probed, as last asked for.
	blocked []arch.Blocked
}

// Dial connects to the stub of a machine and finds the kernel in its memory: in the file that holds
// it (Options.RAM), else through the stub, which takes seconds. Options.Symbols are taken instead,
// if they prove to be this kernel's. The guest stands meanwhile, until Wait is called first.
//
// From here to Close a guardian process watches: should this one be killed, it
// puts back what is left and lets the machine go.
//
// Errors: as gdbremote.Dial, the machine goes on unless they are gdbremote.ErrStands; no kernel is
// found; EBUSY, another process of this user probes it.
func Dial(address string, o *gdbremote.Options) (*Target, error) {
	if o == nil {
		o = &gdbremote.Options{}
	}
	g, err := guardMachine(address, o)
	if err != nil {
		return nil, fmt.Errorf("kernel behind %s: %w", address, err)
	}
	t, err := dial(address, o)
	if err != nil {
		g.notDialed(err)
		return nil, err
	}
	t.guard = g
	return t, nil
}

// dial is Dial without a guardian. Where it fails the machine goes on, if it can (mayGoOn).
func dial(address string, o *gdbremote.Options) (*Target, error) {
	fail := func(err error) error { return fmt.Errorf("kernel behind %s: %w", address, err) }
	w, err := openWindow(o.Window) // the named files are looked at before the machine is stopped
	if err == nil {
		err = readable(o.Symbols)
	}
	if err != nil {
		return nil, fail(err)
	}
	t := &Target{window: w, place: Place(address), overrideAny: o.OverrideAny, files: make(map[string]image), padding: make(map[arch.Addr]bool),
		notices: notices{theirs: make(map[arch.Addr]bool)}}
	t.swaps.path, _ = machineFile(address, "returns")
	to := *o
	to.Hold = !t.mayGoOn()
	if t.Target, err = gdbremote.Dial(address, &to); err != nil {
		return nil, errors.Join(t.held(err), t.closeWindow())
	}
	if err = t.find(o); err == nil && w != nil {
		err = t.recover()
	}
	if err == nil {
		return t, nil
	}
	if err = fail(err); !t.mayGoOn() {
		t.HangUp()
		err = t.held(fmt.Errorf("%w; %w", err, gdbremote.ErrStands))
	}
	return nil, errors.Join(err, t.Close())
}

// mayGoOn tells whether a machine may go on when Dial fails: not one with return addresses that
// another controller has swapped, whose breakpoints are no more. Where its memory was searched and
// no kernel runs, a reset took them all.
func (t *Target) mayGoOn() bool {
	_, err := os.Stat(t.swaps.path)
	return err != nil || t.ram != nil && t.kernel == nil
}

// held says of an error why the machine was left standing, if it was for that.
func (t *Target) held(err error) error {
	if errors.Is(err, gdbremote.ErrStands) && !t.mayGoOn() {
		err = fmt.Errorf("%w: return addresses that a controller which was killed has left in it must be put back first", err)
	}
	return err
}

// readable tells whether a file can be read, if one is named.
func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err == nil {
		err = f.Close()
	}
	return err
}

func (t *Target) find(o *gdbremote.Options) error {
	if !t.IsMachine() {
		return errors.New("it is a program, not a machine")
	}
	if err := cpu.Of(t.Arch()).Walks(); err != nil {
		return err
	}
	table, err := t.table(o)
	if err != nil {
		return err
	}
	if t.kernel, err = kernel.Open(table, t.memory, t.Arch()); err != nil {
		return err
	}
	t.findCurrent()
	if err := t.identify(); err != nil {
		return err
	}
	if err := t.swapBack(); err != nil {
		return fmt.Errorf("what a controller that was killed has left: %w", err)
	}
	return nil
}

// table finds the kernel's symbols, and sets t.memory, from which the rest is read.
func (t *Target) table(o *gdbremote.Options) (*kernel.Table, error) {
	t.memory = t.Target
	if o.Symbols != "" {
		f, err := kernel.OpenFile(o.Symbols, t.Arch())
		if err != nil {
			return nil, err
		}
		return f.Place(t.Target, t.Arch(), (*kernel.Moves)(t.on().Moves))
	}
	var running *kernel.Found // memory may hold one that ran before a reset: it is the CPUs that tell
	var err error
	if o.RAM != "" {
		running, err = t.findInRAM(o.RAM)
	} else {
		m := t.on().Moves
		if m == nil {
			return nil, fmt.Errorf("it is not known where a kernel of %s lies; a file with its memory would help", t.Arch().Name)
		}
		r := kernel.Piece{Mem: t.Target, Range: arch.Range{Start: m.Start, End: m.End}}
		running, err = kernel.FindRunning(r, r.Size(), t.Arch(), t.Target)
	}
	if err != nil {
		return nil, err
	}
	if t.ram != nil {
		if paged, err := kernel.NewPaged(running, t.ram); err == nil { // else the stub knows
			t.memory = paged
		}
	}
	return running.Table, nil
}

// findInRAM finds it in physical memory.
func (t *Target) findInRAM(path string) (running *kernel.Found, err error) {
	if t.ram, err = os.Open(path); err != nil {
		return nil, err
	}
	st, err := t.ram.Stat()
	if err != nil {
		return nil, err
	}
	return kernel.FindRunning(t.ram, st.Size(), t.Arch(), t.Target)
}

// Place is the target's address.
func (t *Target) Place() string { return t.place }

// Kernel has the facts about the kernel. The guest runs on: ask Update for changes.
func (t *Target) Kernel() *kernel.Kernel { return t.kernel }

// ReadAt fills p from addr, whole or with an error. The kernel's own memory is
// read without stopping the guest, where its memory is shared.
func (t *Target) ReadAt(addr arch.Addr, p []byte) error {
	if w := t.window; w != nil && w.at.Contains(addr) && addr+arch.Addr(len(p)) <= w.at.End {
		copy(p, w.mem[addr-w.at.Start:])
		return nil
	}
	if t.memory != t.Target && addr >= kernelHalf && t.memory.ReadAt(addr, p) == nil {
		return nil
	}
	return t.Target.ReadAt(addr, p)
}

// kernelHalf is the lowest address that can be a kernel's.
const kernelHalf = arch.Addr(1 << 63)

// Close takes all probes out and lets the guest go on.
func (t *Target) Close() error {
	left := t.closeWindow()
	err := t.Target.Close()
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	if t.LetGo() {
		err = errors.Join(err, t.swaps.end())
	} else { // there may be something to put back
		err = errors.Join(err, t.swaps.leave())
	}
	if t.ram != nil {
		err = errors.Join(err, t.ram.Close())
	}
	err = errors.Join(left, err)
	if t.guard != nil {
		t.guard.end(err)
	}
	return err
}

// BlackList is the kernel's own list of places that must not be probed.
func (t *Target) BlackList() ([]arch.Blocked, error) {
	list, err := t.kernel.Blacklist()
	if err == nil {
		t.mu.Lock()
		t.blocked = list
		t.mu.Unlock()
	}
	return list, err
}

// Unreturnable says why the return of the function at an address must not be probed.
func (t *Target) Unreturnable(at arch.Addr) string {
	list, err := t.kernel.ReturnBlacklist()
	if err != nil {
		return err.Error()
	}
	if slices.ContainsFunc(list, func(s kernel.Symbol) bool { return s.Addr == at }) {
		return "it is on the kernel's own list of functions that return on another stack (kretprobe_blacklist)"
	}
	return ""
}

// Unreplaceable says why the function at an address must not be given a result without being run:
// as the kernel has it for its own programs, unless the caller wants to be asked nothing
// (Options.OverrideAny).
func (t *Target) Unreplaceable(at arch.Addr) string {
	if t.overrideAny {
		return ""
	}
	list, err := t.kernel.Injectable()
	if err != nil {
		return err.Error()
	}
	if !slices.ContainsFunc(list, func(r arch.Range) bool { return r.Contains(at) }) {
		return "it is not on the kernel's list of functions that may be made to fail (ALLOW_ERROR_INJECTION)"
	}
	return ""
}

// Maps lists the kernel and the modules that are loaded now.
func (t *Target) Maps() ([]symbol.Mapping, error) {
	if _, _, err := t.kernel.Update(); err != nil && !errors.Is(err, kernel.ErrNoModules) {
		return nil, err
	}
	images := append([]image{kernelImage(t.kernel)}, t.cpuImages()...)
	t.mu.Lock()
	defer t.mu.Unlock()
	modules := t.kernel.Modules()
	for _, m := range modules {
		if m.Text.Start < m.Text.End && !t.leaving(m) {
			images = append(images, t.moduleImage(m))
		}
	}
	maps.DeleteFunc(t.notices.turned, func(at arch.Addr, _ string) bool { // another may have its struct there later
		return !slices.ContainsFunc(modules, func(m *kernel.Module) bool { return m.Struct() == at })
	})
	clear(t.files)
	var all []symbol.Mapping
	for _, im := range images {
		t.files[im.path] = im
		all = append(all, im.mappings()...)
	}
	slices.SortFunc(all, func(a, b symbol.Mapping) int { return cmp.Compare(a.Start, b.Start) })
	return all, nil
}
