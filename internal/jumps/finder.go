package jumps

import (
	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// Finder plans jumps in mapped files. Facts about a file are kept: to find them out takes some 20
// ms a MiB. So is the function decoded last.
type Finder struct {
	Live  Live // nil: code is in files
	isa   isa.ISA
	files map[*symbol.File]*Code
	of    *symbol.Module // the body's: others are mapped at its addresses later
	start arch.Addr
	body  *patch.Body
}

// NewFinder starts with nothing known.
func NewFinder(m isa.ISA) *Finder { return &Finder{isa: m, files: make(map[*symbol.File]*Code)} }

// Jump tells how the instruction at a place can be replaced by a jump; nil where nothing is known
// of the code around it. insn are its bytes. Of a kernel they come first: most entries have a NOP
// with room for a jump there, and then that is all that need be known.
func (f *Finder) Jump(loc symbol.Loc, insn []byte) *patch.Jump {
	if f.Live != nil {
		if alone := patch.PlanAlone(f.isa, insn, loc.Addr); len(alone.Ways) > 0 {
			return alone
		}
	}
	b := f.bodyOf(loc)
	if b == nil {
		return nil
	}
	return b.PlanJump(loc.Addr)
}

// Ahead tells how a jump can stand ahead of the instruction at a place for which Jump has an
// answer; taken, where other probes are.
func (f *Finder) Ahead(loc symbol.Loc, taken func(arch.Addr) bool) *patch.Jump {
	b := f.bodyOf(loc)
	if b == nil {
		return &patch.Jump{Addr: loc.Addr} // Jump has looked at the instruction alone
	}
	return b.PlanAhead(loc.Addr, taken)
}

// shared has the facts about a file, for all callers that look at it.
func (f *Finder) shared(file *symbol.File) *Code {
	type key struct{ machine *arch.Arch }
	return file.Memo(key{f.isa.Arch()}, func() any {
		code, _ := Open(f.isa, file)
		return code
	}).(*Code)
}

// bodyOf is the function that a place is in; nil where nothing is known of it.
func (f *Finder) bodyOf(loc symbol.Loc) *patch.Body {
	m := loc.Module
	if m == nil || m.File == nil || loc.Func.Size == 0 {
		return nil
	}
	code, seen := f.files[m.File]
	if !seen {
		if f.Live != nil {
			code, _ = OpenLive(f.isa, m.File, f.Live)
		} else {
			code = f.shared(m.File)
		}
		f.files[m.File] = code
	}
	if code == nil {
		return nil
	}
	if start := loc.Start(); f.of != m || f.start != start || f.body == nil {
		f.of, f.start, f.body = m, start, code.At(m.Bias).Body(loc.Func)
	}
	return f.body
}
