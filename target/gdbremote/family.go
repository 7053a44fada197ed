package gdbremote

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/target"
)

// Children of a program, and programs that it executes. gdbserver writes its
// breakpoints into the memory, and so into a child's copy of it: one that is not
// told about dies of the first. Of fork's children they are taken out, and the
// children let go. A child of vfork has its parent's memory, until it executes a
// program or ends: as long as one has, there are no breakpoints, and what other
// threads of the parent pass then is not seen.

// families are the features that make gdbserver tell.
const families = ";fork-events+;vfork-events+;exec-events+"

// related deals with a stop report that is about a child or another program. ok is
// false for any other.
func (t *Target) related(th target.Thread, report string) (ok bool, err error) {
	for _, field := range strings.Split(report[min(3, len(report)):], ";") {
		what, value, _ := strings.Cut(field, ":")
		switch what {
		case "fork":
			if t.sharesMemory(th) {
				return true, t.outgrown(value)
			}
			return true, t.forked(value)
		case "vfork":
			if err := t.lift(1); err != nil {
				return true, err
			}
			return true, t.letGo(value)
		case "vforkdone":
			return true, t.lift(-1)
		case "exec":
			// The program that is there now has no breakpoints.
			clear(t.breaks)
			t.sharers = 0
			t.ids = map[target.Thread]string{th: t.ids[th]}
			t.queue = append(t.queue, target.Stop{Kind: target.StopExec, Thread: th})
			return true, nil
		}
	}
	return false, nil
}

// forked takes the breakpoints out of a child's memory and lets it go.
func (t *Target) forked(child string) error {
	if err := t.c.command("Hg" + child); err != nil {
		return err
	}
	t.chosen = 0
	for _, a := range slices.Sorted(maps.Keys(t.breaks)) {
		if err := t.c.command(t.breakRequest('z', a)); err != nil {
			return fmt.Errorf("a forked child's breakpoints: %w", err)
		}
	}
	return t.letGo(child)
}

// sharesMemory tells a clone whose child has the very memory and is neither a
// thread nor vfork's: stubs tell of it as of a fork.
func (t *Target) sharesMemory(th target.Thread) bool {
	const vm = 0x100 // CLONE_VM
	by := cpu.Of(t.arch)
	g, err := t.registers(th)
	if err != nil || by.Clone == 0 {
		return false
	}
	reg := func(r arch.Reg) uint64 {
		v, _ := t.about.get(t.arch, g, t.row[r])
		return v
	}
	switch reg(t.arch.SyscallNo) {
	case by.Clone:
		return reg(t.arch.Args[0])&vm != 0
	case by.Clone3:
		b := make([]byte, 8)
		return t.read(arch.Addr(reg(t.arch.Args[0])), b) == nil && t.arch.Order.Uint64(b)&vm != 0
	}
	return false
}

// outgrown lets a program and such a child go, without breakpoints: in the memory that the two
// share they would end the one that is not watched.
func (t *Target) outgrown(child string) error {
	err := t.lift(1)
	if err == nil {
		err = t.letGo(child)
	}
	if err == nil {
		err = t.detach()
	}
	if err != nil {
		return err
	}
	return t.giveUp("it has made a process that shares its memory, where no breakpoints can be: it was let go")
}

func (t *Target) letGo(child string) error {
	pid, _, err := parseThread(child)
	if err != nil {
		return err
	}
	return t.c.command(fmt.Sprintf("D;%x", pid))
}

// lift counts the children that share the memory. With the first the breakpoints
// are taken out, and put back when the last is gone.
func (t *Target) lift(by int) error {
	was := t.sharers > 0
	t.sharers = max(0, t.sharers+by)
	if was == (t.sharers > 0) {
		return nil
	}
	if err := t.choose(t.current); err != nil {
		return err
	}
	verb := byte('z')
	if was {
		verb = 'Z'
	}
	for _, a := range slices.Sorted(maps.Keys(t.breaks)) {
		if err := t.c.command(t.breakRequest(verb, a)); err != nil {
			return err
		}
	}
	return nil
}

// putBreak does what Z and z do, unless there are to be none now.
func (t *Target) putBreak(verb byte, addr arch.Addr) error {
	if t.sharers > 0 {
		return nil
	}
	return t.c.command(t.breakRequest(verb, addr))
}
