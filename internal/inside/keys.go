package inside

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/isa"
	"kprobe/internal/jit"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
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
	if last := slices.Max(t.Numbers); last >= inject.MaxCPUs {
		return fmt.Errorf("there may be a CPU %d; there is room for the first %d", last, inject.MaxCPUs)
	}
	c.cpus, c.traced, c.readers = t.Numbers, m.Traced, inject.Readers(t.Readers)
	c.Room, c.carriers = Room{Threads: len(t.Numbers), Counters: 4 << 10, Calls: 1 << 10, Slots: true, Gate: true}, t.Carriers
	c.Key = inject.ThreadKey{Kind: inject.CPU, Offset: t.Number,
		Task: inject.Task{Current: t.Current, TID: t.TID, TGID: t.TGID, Comm: t.Comm}}
	return nil
}

// What a target may know that programs ask for.
type (
	userFSBase   interface{ UserFSBase() bool }
	counterClock interface {
		CounterClock() (base, mult uint64, shift uint8, boot uint64, err error)
	}
	owned interface{ Owner() (uid, gid uint32) }
	locks interface{ LocksMemory() bool }
)

// Configure says what a process is like, or a machine before its CPUs are known, as far as it tells that
// itself. Errors: where nothing tells its threads apart.
func Configure(t target.Target, m isa.ISA, golang bool) (Config, error) {
	c := Config{ISA: m, TGID: t.PID(), Key: inject.ThreadKey{Kind: inject.FSSelf}, RedZone: m.Arch().RedZone, Room: Processes}
	if _, machine := t.(target.Machine); machine {
		c.RedZone = 0
	}
	if t, ok := t.(counterClock); ok {
		if base, mult, shift, boot, err := t.CounterClock(); err == nil {
			c.Clock, c.Boot = &jit.Clock{Base: base, Mult: mult, Shift: shift}, boot
		}
	}
	if t, ok := t.(owned); ok {
		c.UID, c.GID = t.Owner()
	}
	if m.Arch().PtrSize == 4 {
		c.Room = narrow
	}
	if t, ok := t.(locks); ok && t.LocksMemory() {
		c.Room = least
	}
	if golang && m.Arch().PtrSize == 4 {
		return c, errors.New("what runs in a Go program of 32 bits is not known")
	}
	if golang {
		c.Key, c.RedZone = inject.ThreadKey{Kind: inject.FSBase}, 0
		if u, ok := t.(userFSBase); !ok || !u.UserFSBase() {
			return c, errors.New("nothing tells a Go program's threads apart on this processor")
		}
	}
	return c, nil
}

// Welcome gives a stopped thread its memory for programs. stacks is memory that its
// stack may be a range of, where that is known.
func (in *Inside) Welcome(t target.Target, th target.Thread, comm string, stacks []patch.Range) {
	var r arch.Regs
	if t.Regs(th, &r) != nil {
		return
	}
	known := inject.Thread{Key: in.arch.ThreadPointer(&r), TID: int(th), Comm: comm}
	sp := arch.Addr(r[in.arch.SP])
	if i := slices.IndexFunc(stacks, func(m patch.Range) bool { return sp >= m.Start && sp < m.End }); i >= 0 {
		known.StackLow, known.StackHigh = stacks[i].Start, stacks[i].End
	}
	in.Seg.Assign(known)
}

// Born welcomes a new thread. One that has its parent's thread pointer is not known from it
// yet: Go's runtime sets another before anything else, and the thread enters itself then;
// in other programs nobody does, and no program can run for either.
func (in *Inside) Born(t target.Target, th, parent target.Thread, comm string, golang bool) {
	var r, p arch.Regs
	if t.Regs(th, &r) != nil || t.Regs(parent, &p) != nil {
		return
	}
	key := in.arch.ThreadPointer(&r)
	switch {
	case key != in.arch.ThreadPointer(&p):
		var stacks []patch.Range
		if len(in.Accounts()) > 0 { // calls that an exception ends are told by it
			maps, _ := t.Maps()
			stacks = []patch.Range{returns.NativeStack(maps, false, key)}
		}
		in.Welcome(t, th, comm, stacks)
	case !golang:
		in.Seg.Share(key)
	}
}
