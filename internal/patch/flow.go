package patch

import (
	"cmp"
	"math/bits"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Image is the part of a module that tells where control can go in it. Addresses are of one kind
// throughout: the file's, or a process's.
type Image struct {
	Text   []Part      // all executable sections
	Data   []Part      // data that is read only or initialised, for the jump tables in it
	Funcs  []arch.Addr // where functions start
	Points []arch.Addr // other places that data, relocations, or exception tables know
}

// Flow knows where control goes in a module's code: a bit for every address that a direct branch,
// an operand, a jump table, a symbol, a word of data or an exception table refers to. It is built
// once for a module and does not change. It does not know the addresses that a program computes,
// nor those at which threads are interrupted: guards are for these.
type Flow struct {
	// Unguarded tells that a trap under a jump would not be served, so that none are put there: in
	// a kernel.
	Unguarded bool

	// Unpadded tells that indirect branches may lead to anything, not to landing pads only: these
	// need not stay then.
	Unpadded bool

	text []flowText
}

type flowText struct {
	Part
	known []uint64 // a bit for each address
	insn  []uint64 // and whether the sweep met an instruction's start there
}

// NewFlow reads all code of a module. Data between functions may be taken for code: that adds
// places to which control never goes, and costs no more than a jump.
func NewFlow(m isa.ISA, im *Image) *Flow { return NewSweep(m, im.Text, im.Funcs).Flow(im) }

// Sweep is the part of a flow that the code itself tells. All of the code is decoded for it, which
// is most of the work.
type Sweep struct {
	Text  []Part
	Funcs []arch.Addr // sorted

	facts *arch.Arch
	text  []flowText  // sorted
	bases []arch.Addr // where jump tables may start
}

// NewSweep decodes the code of a module, whose functions begin at funcs.
func NewSweep(m isa.ISA, text []Part, funcs []arch.Addr) *Sweep {
	s := &Sweep{Text: text, Funcs: slices.Sorted(slices.Values(funcs)), facts: m.Arch()}
	for _, p := range text {
		words := (len(p.Code) + 63) / 64
		s.text = append(s.text, flowText{p, make([]uint64, words), make([]uint64, words)})
	}
	slices.SortFunc(s.text, func(a, b flowText) int { return cmp.Compare(a.Addr, b.Addr) })
	f := &Flow{text: s.text}
	for _, a := range s.Funcs {
		f.mark(a)
	}
	for i := range s.text {
		s.bases = append(s.bases, f.sweep(m, &s.text[i], s.Funcs)...)
	}
	slices.Sort(s.bases)
	s.bases = slices.Compact(s.bases)
	return s
}

// Flow adds the other places to which control can go: an image's data and points.
func (s *Sweep) Flow(im *Image) *Flow {
	f := &Flow{text: slices.Clone(s.text)}
	for i := range f.text {
		f.text[i].known = slices.Clone(f.text[i].known)
	}
	for _, a := range im.Points {
		f.mark(a)
	}
	f.readTables(s.facts, im.Data, s.bases)
	return f
}

// Moved is the same flow for the module mapped by bytes higher.
func (f *Flow) Moved(by arch.Addr) *Flow {
	g := &Flow{f.Unguarded, f.Unpadded, slices.Clone(f.text)}
	for i := range g.text {
		g.text[i].Addr += by
	}
	return g
}

// at finds the text that holds an address, and the address's bit in it.
func (f *Flow) at(a arch.Addr) (*flowText, int) {
	for i := range f.text {
		if t := &f.text[i]; t.contains(a) {
			return t, int(a - t.Addr)
		}
	}
	return nil, 0
}

func (f *Flow) mark(a arch.Addr) {
	if t, i := f.at(a); t != nil {
		t.known[i/64] |= 1 << (i % 64)
	}
}

// Known finds the first address from start on, and before end, that something
// is known to lead or refer to.
func (f *Flow) Known(start, end arch.Addr) (arch.Addr, bool) {
	for a := start; a < end; a++ {
		t, i := f.at(a)
		if t == nil {
			continue
		}
		// The rest of the word at once.
		if w := t.known[i/64] >> (i % 64); w != 0 {
			a += arch.Addr(bits.TrailingZeros64(w))
			return a, a < end
		}
		a += arch.Addr(63 - i%64)
	}
	return 0, false
}

// IsInsn tells whether the sweep met an instruction's start at an address.
func (f *Flow) IsInsn(a arch.Addr) bool {
	t, i := f.at(a)
	return t != nil && t.insn[i/64]>>(i%64)&1 != 0
}

// sweep decodes a text from function to function and marks the addresses that its instructions
// refer to. It gives the operands outside of text of functions that jump to computed addresses:
// jump tables are among them.
func (f *Flow) sweep(m isa.ISA, t *flowText, funcs []arch.Addr) (bases []arch.Addr) {
	i, _ := slices.BinarySearch(funcs, t.Addr)
	funcs = funcs[i:]
	var operands []arch.Addr // of this function
	computed := false
	for off := 0; off < len(t.Code); {
		at := t.Addr + arch.Addr(off)
		if len(funcs) > 0 && at >= funcs[0] {
			// A new function. Whatever stood before it may have been no code.
			at = funcs[0]
			off = int(at - t.Addr)
			for len(funcs) > 0 && funcs[0] <= at {
				funcs = funcs[1:]
			}
			if computed {
				bases = append(bases, operands...)
			}
			operands, computed = operands[:0], false
			if off >= len(t.Code) {
				break
			}
		}
		in, err := m.Decode(t.Code[off:], at)
		if err != nil {
			off += m.Arch().MinInsn
			continue
		}
		t.insn[off/64] |= 1 << (off % 64)
		if in.Landing {
			t.known[off/64] |= 1 << (off % 64)
		}
		computed = computed || in.Flow == isa.IndirectJump
		if in.PCRel {
			if i := in.Target - t.Addr; i < arch.Addr(len(t.Code)) {
				t.known[i/64] |= 1 << (i % 64)
			} else if other, i := f.at(in.Target); other != nil {
				other.known[i/64] |= 1 << (i % 64)
			} else {
				operands = append(operands, in.Target)
			}
		}
		off += in.Len
	}
	if computed {
		bases = append(bases, operands...)
	}
	return bases
}

// entrySize is the size of the distances in jump tables of position-independent code. Tables of
// addresses need no search: Image.Points has all words of data that are addresses of code.
const entrySize = 4

// readTables marks what jump tables lead to: lists of distances from the list's
// own start. bases are where such lists may start, sorted. How long one is, the code
// says in too many ways; here it ends at the first distance that does not lead
// to an instruction, or where the next one may start. That takes in too much
// rather than too little.
func (f *Flow) readTables(a *arch.Arch, data []Part, bases []arch.Addr) {
	for n, base := range bases {
		i := slices.IndexFunc(data, func(p Part) bool { return p.contains(base) })
		if i < 0 {
			continue
		}
		list := data[i].Code[base-data[i].Addr:]
		if n+1 < len(bases) && bases[n+1]-base < arch.Addr(len(list)) {
			list = list[:bases[n+1]-base]
		}
		for ; len(list) >= entrySize; list = list[entrySize:] {
			to := base + arch.Addr(int64(int32(a.Order.Uint32(list))))
			if !f.IsInsn(to) {
				break
			}
			f.mark(to)
		}
	}
}
