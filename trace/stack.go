package trace

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/source"
	"kprobe/source/bind"
	"kprobe/symbol"
)

// MaxStack limits the frames of a stack in an event, inlined ones not counted, unless Tracer.Depth does.
const MaxStack = 64

// stackNames names the addresses of stacks. What it has named it remembers, and the module that it was in: a
// library may be gone, and the process with it, when a stack is shown that was recorded before.
type stackNames struct {
	space *symbol.Space
	jit   *symbol.JIT

	mu    sync.Mutex
	known map[arch.Addr]namedPC
	made  map[[2]arch.Addr]namedPC // way between two frames, by a call's return address and an address in the inner function
}

func newStackNames(s *kprobe.Session) stackNames {
	return stackNames{space: s.Symbols(), jit: symbol.NewJIT(local(s))}
}

// local is the number of a session's process on this system; 0 where it is behind a stub, or a machine.
func local(s *kprobe.Session) int {
	if _, stub := s.Target().(interface{ IsMachine() bool }); stub {
		return 0
	}
	return s.Target().PID()
}

type namedPC struct {
	module *symbol.Module
	frames []event.Frame
}

// ofSignal is the name of the code that a signal's handler returns to.
const ofSignal = "<signal handler called>"

// maxNamed bounds what is remembered.
const maxNamed = 1 << 16

// frames names a stack. Of all frames but the first the call is what is named, which comes before the address where
// it goes on; at a function's return the first is such an address, too. What a signal has interrupted has made no call.
func (n *stackNames) frames(stack []event.Frame, returned bool) (named []event.Frame) {
	n.mu.Lock()
	defer n.mu.Unlock()
	inner := arch.Addr(0)
	for i, f := range stack {
		back := arch.Addr(0)
		if (i > 0 || returned) && (len(named) == 0 || named[len(named)-1].Func != ofSignal) {
			back = 1
		}
		own := n.at(f.Addr, back)
		if i > 0 && back > 0 && own[0].Func != ofSignal {
			named = append(named, n.between(f.Addr, inner)...)
		}
		named = append(named, own...)
		inner = f.Addr - back
	}
	return named
}

// caller is the code that called a function, by the address that a call returns to.
func (n *stackNames) caller(ret, of arch.Addr) []event.Frame {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.between(ret, of), n.at(ret, 1))
}

// between are the functions that have made way for the one that has an address in it, and that a call was to.
func (n *stackNames) between(ret, inner arch.Addr) []event.Frame {
	key, m := [2]arch.Addr{ret, inner}, n.space.ModuleAt(ret-1)
	if m == nil || m.File == nil {
		return nil
	}
	known, ok := n.made[key]
	if ok && m == known.module {
		return known.frames
	}
	known = namedPC{module: m}
	if data, err := bind.Of(m.File); err == nil && n.space.ModuleAt(inner) == m {
		for _, made := range data.MadeWay(m.InFile(ret), m.InFile(inner)) {
			known.frames = append(known.frames, n.gone(m, made)...)
		}
	}
	if n.made == nil || len(n.made) >= maxNamed {
		n.made = map[[2]arch.Addr]namedPC{}
	}
	n.made[key] = known
	return known.frames
}

// gone is a function that has made way, with the copies that are inlined around its jump. Which one that was may not be known.
func (n *stackNames) gone(m *symbol.Module, made source.MadeWay) (frames []event.Frame) {
	if made.Addr != 0 {
		back := arch.Addr(0)
		if made.Behind {
			back = 1
		}
		frames = slices.Clone(n.at(m.InProcess(made.Addr), back))
	} else {
		frames = []event.Frame{{Addr: m.InProcess(made.Entry), File: m.Path}}
		if s, ok := m.File.FuncAt(made.Entry); ok {
			frames[0].Func = shown(&s)
		}
	}
	for i := range frames {
		frames[i].Tail = true
	}
	return frames
}

// at is the functions that an address is in: one, and where inlined copies are around it more.
func (n *stackNames) at(pc, back arch.Addr) []event.Frame {
	key := pc<<1 | back
	m := n.space.ModuleAt(pc - back)
	known, ok := n.known[key]
	if ok && (m == nil || m == known.module) {
		return known.frames
	}
	known = namedPC{m, n.name(m, pc, back)}
	if n.known == nil || len(n.known) >= maxNamed {
		n.known = make(map[arch.Addr]namedPC)
	}
	if m != nil {
		n.known[key] = known
	}
	return known.frames
}

func (n *stackNames) name(m *symbol.Module, pc, back arch.Addr) []event.Frame {
	f := event.Frame{Addr: pc}
	if m == nil || m.File == nil {
		if name, off, file, ok := n.jit.At(pc - back); ok {
			f.Func, f.File = fmt.Sprintf("%s+%#x", name, off+uint64(back)), file
		}
		return []event.Frame{f}
	}
	f.File = m.Path
	at, place := m.InFile(pc), m.InFile(pc-back)
	if back > 0 && m.File.ReturnsFromSignal(at) {
		f.Func = ofSignal
		return []event.Frame{f}
	}
	switch s, ok := m.File.FuncAt(place); {
	case ok:
		f.Func = fmt.Sprintf("%s+%#x", shown(&s), at-s.Addr)
	default:
		f.Func = fmt.Sprintf("%s+%#x", m.Name, at)
	}
	data, err := bind.Of(m.File)
	if err != nil {
		return []event.Frame{f}
	}
	var all []event.Frame
	lines := data.Frames(place)
	for i, l := range lines {
		g := f
		if l.Inlined && i < len(lines)-1 {
			g = event.Frame{Addr: f.Addr, Func: l.Func, File: f.File, Inlined: true}
		}
		if l.Line > 0 {
			g.Source = fmt.Sprintf("%s:%d", filepath.Base(l.File), l.Line)
		}
		all = append(all, g)
	}
	if len(all) == 0 {
		all = append(all, f)
		if file, line := data.LineOf(place); line > 0 {
			all[0].Source = fmt.Sprintf("%s:%d", filepath.Base(file), line)
		}
	}
	return all
}
