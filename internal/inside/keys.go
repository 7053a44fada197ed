package inside

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/machine"
	"kprobe/internal/segment"
	"kprobe/target"
)

// ForMachine completes the configuration for a kernel, whose threads are CPUs. Memory there
// is not taken as it is used: all of it is there. The target is frozen. Errors: in words.
func (c *Config) ForMachine(m target.Machine) (err error) {
	if c.Floor, c.Limit, err = m.Window(); err != nil {
		return err
	}
	t, err := m.CPUs()
	if err != nil {
		return err
	}
	if last := slices.Max(t.Numbers); last >= segment.MaxCPUs {
		return fmt.Errorf("there may be a CPU %d; there is room for the first %d", last, segment.MaxCPUs)
	}
	c.cpus, c.traced, c.readers = t.Numbers, m.Traced, inject.Readers(t.Readers)
	c.Room, c.carriers = Room{Threads: len(t.Numbers), Counters: 4 << 10, Calls: 1 << 10, Slots: true, Gate: true}, t.Carriers
	c.Key = segment.ThreadKey{Kind: segment.CPU, Offset: t.Number,
		Task: segment.Task{Current: t.Current, TID: t.TID, TGID: t.TGID, Comm: t.Comm, Cred: t.Cred, UID: t.UID, GID: t.GID}}
	return nil
}

// Configure says what a process is like that has so many threads, or a machine before its CPUs are known, as far as it tells that
// itself. Errors: where nothing tells its threads apart.
func Configure(t target.Target, m *machine.Machine, golang bool, threads int) (Config, error) {
	c := Config{Machine: m, TGID: t.PID(), Key: segment.ThreadKey{Kind: segment.FSSelf}, RedZone: m.Arch.RedZone, Room: Processes}
	if _, machine := t.(target.Machine); machine {
		c.RedZone = 0
	}
	if t, ok := t.(target.Clocked); ok {
		if base, mult, shift, boot, err := t.CounterClock(); err == nil {
			c.Clock, c.Boot = &jit.Clock{Base: base, Mult: mult, Shift: shift}, boot
		}
	}
	if t, ok := t.(target.Owned); ok {
		c.UID, c.GID = t.Owner()
	}
	if m.Arch.PtrSize == 4 {
		c.Room = narrow.For(threads)
	}
	if t, ok := t.(target.Locker); ok && t.LocksMemory() {
		c.Room = least.For(threads)
	}
	if golang && m.Arch.PtrSize == 4 {
		return c, errors.New("what runs in a Go program of 32 bits is not known")
	}
	if t, ok := t.(target.Counting); ok {
		c.counter = t.Counter
	}
	if u, ok := t.(target.BaseReader); ok {
		c.readsBase = u.UserFSBase()
	}
	if c.pointer = threadPointer(t, m.Arch); c.pointer != nil {
		c.readsBase = true
		if golang {
			c.GoRedZone = goBelow
			c.refuses = fmt.Errorf("in a Go program on %s probes only count inside, and run no programs: a thread there would be known by a system call at each hit", m.Arch.Name)
		}
		return c, nil
	}
	if golang { // its threads have no word that tells their thread pointer, and no room for a routine that asks the kernel
		c.Key = segment.ThreadKey{Kind: segment.FSBase}
		if !c.readsBase {
			return c, errors.New("nothing tells a Go program's threads apart on this processor")
		}
	}
	return c, nil
}

// PointerOf is a stopped thread's thread pointer, be it among its general registers or not; 0 where nothing tells.
func PointerOf(t target.Target, th target.Thread, r *arch.Regs) uint64 {
	p, ok := t.(target.ThreadPointed)
	if !ok || t.Arch().ThreadPtr != arch.NoReg {
		return t.Arch().ThreadPointer(r)
	}
	pointer, err := p.ThreadPointer(th)
	if err != nil {
		return 0
	}
	return pointer
}

// threadPointer asks for the thread pointers of a target's threads, where they are in a register that is not among
// the general ones, and that any program may read; nil where it is not so.
func threadPointer(t target.Target, a *arch.Arch) func(target.Thread) (uint64, error) {
	p, ok := t.(target.ThreadPointed)
	if !ok || a.ThreadPtr != arch.NoReg {
		return nil
	}
	return p.ThreadPointer
}

// goBelow is how much below the stack pointer Go's code uses where calls leave the return address in a
// register: a function keeps its caller's frame pointer there.
const goBelow = 16
