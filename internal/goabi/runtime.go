// Package goabi knows Go programs: where the current goroutine is found, what
// its stack is (runtime.go), and where Go functions have their arguments and
// results (place.go). It reads a program's file and is given its registers and
// memory; it touches no target.
//
// It imports arch, and cabi for the places of arguments.
package goabi

import (
	"debug/buildinfo"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kprobe/arch"
)

// Runtime holds the facts about a program's runtime that lead to its goroutines.
type Runtime struct {
	Version string // of Go, as the build info has it: "go1.26.8"

	tls  uint64 // from the thread pointer to the word that holds the current g, modulo 2^64; 0 where none is known to
	goid uint64 // offset of runtime.g's goid; 0 where it is not known
	g    arch.Reg
	a    *arch.Arch
}

// Offsets are the offset of a thread's current goroutine from the thread pointer, and that of the
// id in a goroutine's descriptor; 0 where it is not known, and for a nil Runtime.
func (rt *Runtime) Offsets() (current int32, id int) {
	if rt == nil {
		return 0, 0
	}
	return int32(rt.tls), int(rt.goid)
}

// Goroutine is one goroutine, at one moment.
type Goroutine struct {
	G      arch.Addr // its descriptor, which other goroutines use after it
	Lo, Hi arch.Addr // its stack; the whole of it moves, Hi-SP stays
	ID     uint64    // as tracebacks show it; 0 where it is not known, and on system stacks
	Dead   bool      // it has ended

	status uint32
}

// On tells whether an address is on the goroutine's stack.
func (g *Goroutine) On(sp arch.Addr) bool { return g.Lo < sp && sp <= g.Hi }

// Layout of runtime.g (runtime2.go): the stack's bounds are its first fields,
// which linkers and debuggers rely on. Further back things have moved between
// releases; but just in front of the goid there have always been the status and
// a 4-byte lock, which tells whether an offset is right.
const (
	lowOff         = 0
	highOff        = 8
	statusFromGoid = -8
)

// goidOffsets has the offset of goid since a minor release of Go 1, on 64-bit machines. 1.23
// brought syscallbp, 1.25 dropped gobuf.ret.
var goidOffsets = []struct {
	since  int
	offset uint64
}{{9, 152}, {23, 160}, {25, 152}}

// newestKnown is the last release that goidOffsets is known to be right for.
const newestKnown = 26

// The statuses of a goroutine (runtime2.go): those it has while it runs, and
// while it will again. A bit says that it is being scanned.
const (
	statusRunnable  = 1
	statusRunning   = 2
	statusSyscall   = 3
	statusWaiting   = 4
	statusDead      = 6
	statusPreempted = 9
	statusScan      = 0x1000
)

// ErrNoTLS is why the goroutines of some programs cannot be found.
var ErrNoTLS = errors.New("where the program keeps its current goroutine is not known")

// Read reads a program's file; m is nil where Go's conventions are not known. Errors: that of a file that is no Go program for this machine;
// ErrNoTLS on x86-64, where code of C and assembly has no register for it. Elsewhere memory has it
// in programs with C code only, and it is taken from the register alone.
func Read(r io.ReaderAt, a *arch.Arch, m *Machine) (*Runtime, error) {
	if m == nil {
		return nil, fmt.Errorf("goroutines of %s programs: %w", a.Name, errors.ErrUnsupported)
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	rt := &Runtime{a: a, g: m.G}
	if info, err := buildinfo.Read(r); err == nil {
		rt.Version = info.GoVersion
	}
	if m.Apart {
		if rt.tls, err = tlsOffset(f); err != nil {
			return nil, err
		}
	}
	if minor := minorOf(rt.Version); minor > 0 && minor <= newestKnown {
		for _, row := range goidOffsets {
			if minor >= row.since {
				rt.goid = row.offset
			}
		}
	} else {
		rt.goid = goidInDWARF(f)
	}
	return rt, nil
}

// minorOf is 26 for "go1.26.8" and for "go1.26rc1", 0 for a text that is no release.
func minorOf(version string) int {
	rest, ok := strings.CutPrefix(version, "go1.")
	if !ok {
		return 0
	}
	end := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	n, _ := strconv.Atoi(rest)
	return n
}

// tlsOffset finds the thread-local variable that holds the current g. A program
// that the Go linker made by itself has it just below the thread pointer;
// one linked with C code has it among the C library's (ELF Handling For
// Thread-Local Storage, variant II: the program's block ends at the pointer).
func tlsOffset(f *elf.File) (uint64, error) {
	const word = 8
	for _, p := range f.Progs {
		if p.Type != elf.PT_TLS {
			continue
		}
		block := (p.Memsz + p.Align - 1) &^ (max(p.Align, 1) - 1)
		syms, _ := f.Symbols()
		for _, s := range syms {
			if s.Name == "runtime.tlsg" && elf.ST_TYPE(s.Info) == elf.STT_TLS {
				return s.Value - block, nil
			}
		}
		if p.Memsz == word {
			return -block, nil
		}
		return 0, ErrNoTLS
	}
	return ^uint64(word - 1), nil
}

// goidInDWARF asks the debugging information, which may not be there.
func goidInDWARF(f *elf.File) uint64 {
	d, err := f.DWARF()
	if err != nil {
		return 0
	}
	inG := false
	for r := d.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			return 0
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch {
		case e.Tag == dwarf.TagCompileUnit:
			if name != "runtime" { // there are several: the compiler's and the assembler's
				r.SkipChildren()
			}
		case e.Tag == dwarf.TagStructType:
			inG = name == "runtime.g"
		case inG && e.Tag == dwarf.TagMember && name == "goid":
			off, _ := e.Val(dwarf.AttrDataMemberLoc).(int64)
			return uint64(off)
		case e.Children:
			r.SkipChildren()
		}
	}
}

// Current finds the goroutine that a thread runs, or the thread's own system
// stack, which has the ID 0. False where the registers are not those of code
// that runs on a stack of Go's: of C code, or of the runtime between two stacks.
func (rt *Runtime) Current(r *arch.Regs, m arch.Reader) (Goroutine, bool) {
	// Compiled code has it in a register. That it is the one is told by the
	// stack, which no other goroutine has; assembly may have anything there.
	if g, ok := rt.running(r.Addr(rt.g), r, m); ok && g.ID != 0 {
		return g, true
	}
	b := make([]byte, rt.a.PtrSize)
	if rt.tls == 0 || m.ReadAt(arch.Addr(r[rt.a.ThreadPtr]+rt.tls), b) != nil {
		return Goroutine{}, false
	}
	return rt.running(arch.Addr(rt.a.Order.Uint64(b)), r, m)
}

// running is At for the goroutine that a thread with these registers runs.
func (rt *Runtime) running(addr arch.Addr, r *arch.Regs, m arch.Reader) (Goroutine, bool) {
	g, ok := rt.At(addr, m)
	if g.status != statusRunning && g.status != statusSyscall {
		g.ID = 0 // so says the status of code that runs, or the offset is not right
	}
	return g, ok && g.On(r.Addr(rt.a.SP))
}

// Ended tells whether the goroutine with an id, which had the descriptor, has ended for certain.
func (rt *Runtime) Ended(addr arch.Addr, id uint64, m arch.Reader) bool {
	if rt == nil || id == 0 {
		return false
	}
	g, ok := rt.At(addr, m)
	return ok && (g.Dead || g.ID != 0 && g.ID != id)
}

// At looks at the goroutine that a descriptor has now.
func (rt *Runtime) At(addr arch.Addr, m arch.Reader) (Goroutine, bool) {
	if addr == 0 {
		return Goroutine{}, false
	}
	b := make([]byte, max(highOff, int(rt.goid))+8)
	if m.ReadAt(addr, b) != nil {
		return Goroutine{}, false
	}
	word := rt.a.Order.Uint64
	g := Goroutine{G: addr, Lo: arch.Addr(word(b[lowOff:])), Hi: arch.Addr(word(b[highOff:]))}
	if rt.goid == 0 {
		return g, true
	}
	g.status = rt.a.Order.Uint32(b[int(rt.goid)+statusFromGoid:]) &^ statusScan
	switch g.status {
	case statusRunnable, statusRunning, statusSyscall, statusWaiting, statusPreempted:
		g.ID = word(b[rt.goid:])
	case statusDead:
		g.Dead = true
	}
	return g, true
}
