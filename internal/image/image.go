// Package image is a program as plans look at it: what the target has mapped, in which
// files and under which names, its own bytes, where its instructions begin, and what must
// not be probed. It reads, and changes nothing.
//
// A batch may have thousands of probes on some dozens of pages, so each fact is asked for
// once and holds from one Look to the next. Nothing relies on a fact that may be old:
// every write compares first.
//
//	image.go      what is mapped, and the files
//	find.go       places by name and by address
//	resolver.go   the functions that indirect functions stand for
//	code.go       where code is mapped
//	analyse.go    whether, and how, an instruction can be probed
//	forbidden.go  places that must not be probed
//
// All of it is for one goroutine at a time but Goroutines, Schedules, Files, Origin and Chosen,
// which answer any goroutine at any time.
package image

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/goabi"
	"kprobe/internal/isa"
	"kprobe/internal/jumps"
	"kprobe/internal/machine"
	"kprobe/internal/mem"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// Image is the program that a target executes.
type Image struct {
	t       target.Target
	filer   target.Filer // nil: nothing is mapped from files
	own     arch.Reader
	inPlace bool

	Machine *machine.Machine
	Arch    *arch.Arch // the machine's, as ISA is
	ISA     isa.ISA
	Space   *symbol.Space

	maps        []symbol.Mapping // in order of address
	pages       *mem.Pages       // the program's own bytes
	shadowStack func() bool
	program     func() *symbol.Module
	decoded     *patch.Bounds // of the function asked for last: probes on all of one come one after another
	flows       *jumps.Finder

	inUse     bool // guarded by known.mu
	forbidden atomic.Pointer[[]arch.Blocked]
	schedules atomic.Bool
	golang    atomic.Pointer[goabi.Runtime]
	codes     atomic.Pointer[codes]
	resolvers resolvers
}

// New makes the image of a target's program, which has not been looked at yet. own reads
// the program's own bytes, where the target's memory may have others; inPlace tells that
// instructions may be run where they stand. Errors: ENOTSUP for its machine.
func New(t target.Target, own arch.Reader, inPlace bool) (*Image, error) {
	im := &Image{t: t, own: own, inPlace: inPlace}
	if err := im.Become(t.Arch()); err != nil {
		return nil, err
	}
	im.filer, _ = t.(target.Filer)
	im.program = func() *symbol.Module { return nil } // before the first Look
	im.Space = symbol.NewSpace(im.open)
	if im.filer != nil {
		im.Space.Realpath = im.filer.Realpath
	}
	return im, nil
}

// Look looks at the present mappings. It answers which modules are not there any more. Errors:
// ESRCH.
func (im *Image) Look() (removed []*symbol.Module, err error) {
	maps, err := im.t.Maps()
	if err != nil {
		return nil, &errno.Error{Errno: syscall.ESRCH, Err: err}
	}
	im.use()
	im.decoded = nil // there may be other code, or foreign breakpoints
	im.maps, im.pages = maps, mem.NewPages(im.own)
	im.shadowStack = sync.OnceValue(im.hasShadowStack)
	_, removed = im.Space.Update(maps)
	im.resolvers.forget(removed)
	im.program = sync.OnceValue(im.findProgram)
	im.schedules.Store(returns.GoProgram(im.Space) != "")
	im.findGoroutines()
	im.lookAtCode()
	return removed, nil
}

// Outdated tells whether other files are mapped, or other code, than at the last Look.
func (im *Image) Outdated() bool {
	plain := func(m symbol.Mapping) bool { return m.Inode == 0 && !m.Exec }
	maps, err := im.t.Maps()
	return err == nil && !slices.Equal(slices.DeleteFunc(maps, plain), slices.DeleteFunc(slices.Clone(im.maps), plain))
}

// open opens the file of a mapping. The kernel's own module is in no file but wholly in memory.
func (im *Image) open(m symbol.Mapping) (*symbol.File, error) {
	if strings.HasPrefix(m.Path, "[") {
		image := make([]byte, m.End-m.Start)
		if err := im.t.ReadAt(m.Start, image); err != nil {
			return nil, err
		}
		return symbol.Open(bytes.NewReader(image), &symbol.Options{Path: m.Path})
	}
	if im.filer == nil {
		return nil, errors.ErrUnsupported
	}
	f, err := im.filer.OpenMapped(m)
	if err != nil {
		return nil, err
	}
	return readFile(f, m.Path, im.filer.Root())
}

// Text fills p with the program's own bytes, whole or with an error (EFAULT).
func (im *Image) Text(addr arch.Addr, p []byte) error {
	if err := im.pages.ReadAt(addr, p); err != nil {
		return &errno.Error{Errno: syscall.EFAULT, Reason: addr.String() + " cannot be read", Err: err}
	}
	return nil
}

// Program is the module of the program itself.
func (im *Image) Program() *symbol.Module { return im.program() }

func (im *Image) findProgram() *symbol.Module {
	for _, m := range im.Space.Modules() {
		if im.filer != nil && !m.Special && len(m.Mappings) > 0 && im.filer.IsProgram(m.Mappings[0]) {
			return m
		}
	}
	return nil
}

// hasShadowStack tells whether the kernel keeps a shadow stack for the target.
func (im *Image) hasShadowStack() bool {
	st, ok := im.t.(target.ShadowStacked)
	return ok && st.ShadowStack()
}

// Returns plans how returns are noticed; programs tells whether they are to run there.
func (im *Image) Returns(programs bool) *returns.Planner {
	pl := &returns.Planner{
		Space: im.Space, ISA: im.ISA, Text: im.Text, GoProgram: returns.GoProgram(im.Space),
		ShadowStack: im.shadowStack(), Untouched: im.inPlace && im.t.PID() != 0, Goroutines: im.golang.Load() != nil,
		Programs: programs,
	}
	if m, ok := im.t.(target.Machine); ok {
		pl.Kernel, pl.Unreturnable, pl.Rewritten = true, m.Unreturnable, func(at arch.Addr) string { return m.Owned(at, at+1) }
	}
	return pl
}

// Jump tells how a jump could stand at a place; nil where nothing is known of the code
// around it. insn are the bytes of the instruction.
func (im *Image) Jump(loc symbol.Loc, insn []byte) *patch.Jump { return im.flows.Jump(loc, insn) }

// Ahead tells how a jump could stand ahead of a place; taken, where other probes are.
func (im *Image) Ahead(loc symbol.Loc, taken func(arch.Addr) bool) *patch.Jump {
	return im.flows.Ahead(loc, taken)
}

// Schedules tells that calls change threads in the target, as a Go program's do.
func (im *Image) Schedules() bool { return im.schedules.Load() }

// Goroutines tells how they are found; nil where they cannot be.
func (im *Image) Goroutines() *goabi.Runtime { return im.golang.Load() }

// Replaced forgets the facts about a program that has executed another, until that has been looked
// at.
func (im *Image) Replaced() { im.golang.Store(nil) }

// findGoroutines learns how to find the goroutines of a Go program.
func (im *Image) findGoroutines() {
	if im.golang.Load() != nil || im.filer == nil || !im.schedules.Load() {
		return
	}
	for _, m := range im.Space.Modules() {
		if m.File == nil || !m.File.IsGo() {
			continue
		}
		f, err := im.filer.OpenMapped(m.Mappings[0])
		if err != nil {
			continue
		}
		if rt, err := goabi.Read(f, im.Arch, im.Machine.Go); err == nil {
			im.golang.Store(rt)
		}
		f.Close()
	}
}

// Become makes the image one of a machine. That may change: an i386 program may
// execute an x86-64 one, and the other way round. Errors: ENOTSUP.
func (im *Image) Become(a *arch.Arch) error {
	m, err := machine.Of(a)
	if err != nil {
		return err
	}
	im.Machine, im.Arch, im.ISA, im.flows = m, a, m.ISA, jumps.NewFinder(m.ISA)
	im.flows.Live, _ = im.t.(jumps.Live)
	return nil
}
