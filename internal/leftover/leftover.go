// Package leftover takes memory out of a process that a dead controller had in common with it, once nobody can come to it.
//
// When the text is restored nothing leads to the programs that worked on that memory any more, but for who is in them already, or
// comes back: a thread that stands there; one in a signal's handler that came meanwhile; a function whose return address
// leads there; whatever switches stacks. All of those have an address of that code, or of that memory, in a register or
// in memory that has been written. So all of it is looked through while every thread stands, and if there is no such word, no
// thread can ever come there. A word that only looks like an address keeps the memory: nothing is lost by that but addresses.
//
// The code itself is given back under the same condition (FreeCode), if not now then by the next controller.
package leftover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kprobe/arch"
	"kprobe/internal/proc"
	"kprobe/symbol"
	"kprobe/target"
)

// Process is what is asked of one that stands still.
type Process interface {
	arch.Memory
	PID() int
	Arch() *arch.Arch
	Maps() ([]symbol.Mapping, error)
	Threads() []target.Thread
	Stuck() int
	Regs(target.Thread, *arch.Regs) error
	Free(arch.Addr, int) error
	Together(func() error) error
	Thaw() error
}

// ErrInUse is answered where a thread is in that memory, or may come back to it.
var ErrInUse = errors.New("a thread of it may be there, or come back")

// most is how much memory is looked through: the process stands meanwhile, a few tenths of a second.
const most = 256 << 20

// GiveBack is Free that lets the process run for a while, and again, where a thread is in that memory: freeze stops it once more. It answers what
// stays, and why; "" for nothing that is known of.
func GiveBack(p Process, file string, harmless []arch.Range, freeze func() error) string {
	const longest = 200 * time.Millisecond
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		var stays uint64
		err := p.Together(func() (err error) {
			stays, err = Free(p, file, harmless)
			return err
		})
		switch {
		case err == nil || stays == 0:
			return ""
		case !errors.Is(err, ErrInUse) || pause > longest:
			return fmt.Sprintf("%d MiB of addresses stay mapped: %v", stays>>20, err)
		}
		p.Thaw()
		time.Sleep(pause)
		if freeze() != nil {
			return "" // it has ended
		}
	}
}

// Free unmaps what a frozen process has of a memory file. harmless is code of ours that does not work on that memory: who is there may
// stay, and may come back. It answers how much stays mapped. Errors: why; ErrInUse may pass, when threads have run.
func Free(p Process, file string, harmless []arch.Range) (stays uint64, err error) {
	maps, err := p.Maps()
	if err != nil {
		return 0, err
	}
	var data []arch.Range
	led := leads{harmless: harmless}
	for _, m := range maps {
		r := m.Range()
		switch {
		case m.Path == file:
			data = append(data, r)
			stays += r.Size()
			led.to = append(led.to, r)
		case m.Exec && (m.Inode == 0 && m.Path == "" || m.Path == file):
			led.to = append(led.to, r) // ours, or code that the program has made
		}
	}
	if len(data) == 0 {
		return 0, nil
	}
	if err := unused(p, maps, file, led); err != nil {
		return stays, err
	}
	for _, r := range data {
		if err := p.Free(r.Start, int(r.Size())); err != nil {
			return stays, err
		}
		stays -= r.Size()
	}
	return 0, nil
}

// FreeCode unmaps the code that dead controllers have left in a frozen process, each controller's by itself. Code stays where a thread is in it or
// may come back to it: a register or a word leads there. Other code that is in no file may lead to all of it, so all stays where a thread may be
// in that. fresh is this controller's own code, which leads nowhere yet. Errors: why code stays; ErrInUse may pass when threads have run.
func FreeCode(p Process, controllers [][]arch.Range, fresh []arch.Range) error {
	maps, err := p.Maps()
	if err != nil {
		return err
	}
	var all leads
	known := slices.Concat(controllers...)
	for _, m := range maps {
		if r := m.Range(); IsCode(m) && !slices.Contains(fresh, r) {
			all.to = append(all.to, r)
		}
	}
	if !slices.ContainsFunc(all.to, func(r arch.Range) bool { return slices.Contains(known, r) }) {
		return nil
	}
	used := make(map[arch.Range]bool)
	all.found = func(to arch.Range, where string) error {
		if !slices.Contains(known, to) {
			return fmt.Errorf("%w: %s", ErrInUse, where)
		}
		used[to] = true
		return nil
	}
	if err := unused(p, maps, "", all); err != nil {
		return err
	}
	for _, code := range controllers {
		if slices.ContainsFunc(code, func(r arch.Range) bool { return used[r] }) {
			err = ErrInUse
			continue
		}
		for _, r := range code {
			if !slices.Contains(all.to, r) {
				continue
			}
			if err := p.Free(r.Start, int(r.Size())); err != nil {
				return err
			}
		}
	}
	return err
}

// IsCode tells whether a mapping may be code of ours: it can be executed, and is no file's.
func IsCode(m symbol.Mapping) bool { return m.Exec && m.Inode == 0 && m.Path == "" }

// unused tells whether nothing in a process leads to any of some ranges.
func unused(p Process, maps []symbol.Mapping, file string, led leads) error {
	if p.Stuck() > 0 {
		return fmt.Errorf("%w: not all threads stand", ErrInUse)
	}
	for _, th := range p.Threads() {
		var r arch.Regs
		if err := p.Regs(th, &r); err != nil {
			return err
		}
		for _, v := range r {
			if err := led.look(arch.Addr(v), func() string { return fmt.Sprintf("thread %d", th) }); err != nil {
				return err
			}
		}
	}
	left, end := uint64(most), time.Now().Add(time.Second)
	for _, m := range maps {
		if file != "" && m.Path == file || strings.HasPrefix(m.Path, "[v") || !m.Write && m.Exec && m.Inode == 0 {
			continue
		}
		err := proc.Process(p.PID()).Present(uint64(m.Start), uint64(m.End), !m.Write, func(from, to uint64) error {
			if to-from > left || time.Now().After(end) {
				return fmt.Errorf("the process has more memory than is looked through (%d MiB)", most>>20)
			}
			left -= to - from
			return search(p, arch.Range{Start: arch.Addr(from), End: arch.Addr(to)}, led)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// search looks for a word that leads to one of some ranges.
func search(p Process, in arch.Range, led leads) error {
	a, buf := p.Arch(), make([]byte, 64<<10)
	for at := in.Start; at < in.End; at += arch.Addr(len(buf)) {
		b := buf[:min(uint64(len(buf)), uint64(in.End-at))]
		if err := p.ReadAt(at, b); err != nil {
			return fmt.Errorf("memory that cannot be looked through: %w", err)
		}
		for off := 0; off+a.PtrSize <= len(b); off += a.PtrSize {
			v := arch.Addr(a.Word(b[off:]))
			if v == 0 {
				continue
			}
			if err := led.look(v, func() string { return fmt.Sprintf("the word at %v leads to %v", at+arch.Addr(off), v) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// leads is where no word may lead to, but to what is harmless. found is asked about a word that does; nil takes none.
type leads struct {
	to, harmless []arch.Range
	found        func(to arch.Range, where string) error
}

// look looks where a word leads. What is right behind a range counts, too: a stack that is empty begins there.
func (l leads) look(v arch.Addr, where func() string) error {
	i := slices.IndexFunc(l.to, func(r arch.Range) bool { return r.Start <= v && v <= r.End })
	switch {
	case i < 0 || slices.ContainsFunc(l.harmless, func(r arch.Range) bool { return r.Contains(v) }):
		return nil
	case l.found == nil:
		return fmt.Errorf("%w: %s", ErrInUse, where())
	}
	return l.found(l.to[i], where())
}
