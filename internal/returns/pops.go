package returns

import (
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/symbol"
)

// plainReturn is the length of ret, with a prefix; with a number it is longer.
const plainReturn = 2

// PopsArguments tells whether a function returns by an instruction that moves the
// stack pointer by more than a return address, or cannot be read to its end. A detour
// that calls the function would miss its place on the stack then.
func (p *Planner) PopsArguments(loc symbol.Loc) bool {
	start := loc.Start()
	code := make([]byte, loc.Func.Size)
	if p.Text(start, code) != nil {
		return true
	}
	for off := 0; off < len(code); {
		in, err := p.ISA.Decode(code[off:], start+arch.Addr(off))
		if err != nil {
			return true
		}
		if in.Flow == isa.Return && in.Len > plainReturn {
			return true
		}
		off += in.Len
	}
	return false
}

// Where all arguments are on the stack, it is a matter of course that functions take
// some off: what returns a struct does (i386's ret 4), and what is declared so. The
// stack slot of a swapped return address cannot be told then by where the stack
// pointer is after the return, since one nearby may belong to a call that is over
// and was not seen to end.

// pops tells why a function's return may leave the stack pointer elsewhere than
// behind the return address, "" if it does not: by a return or a tail call to a
// function of which that is so, or may be. Those of seen are asked about already.
func (pl *Planner) pops(fn symbol.Loc, seen []arch.Addr) string {
	x, err := pl.exits(fn)
	if err != nil {
		return "it may take arguments off the stack"
	}
	for _, site := range x.Sites {
		in, err := pl.ISA.Decode(x.Code(site.Addr), site.Addr)
		switch {
		case err != nil:
			return "it may take arguments off the stack"
		case site.Kind == patch.Ret && in.Len > plainReturn:
			return "it takes arguments off the stack"
		case site.Kind == patch.IndirectJump:
			return fmt.Sprintf("at %v it jumps to what may take arguments off the stack", site.Addr)
		case site.Kind == patch.TailJump:
			to, ok := pl.Space.At(in.Target)
			if ok && slices.Contains(seen, to.Start()) {
				continue
			}
			if !ok || to.Off != 0 || to.Func.Size == 0 || pl.pops(to, append(seen, fn.Start())) != "" {
				return fmt.Sprintf("at %v it jumps to what may take arguments off the stack", site.Addr)
			}
		}
	}
	return ""
}
