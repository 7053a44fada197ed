package event

import (
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// Load describes the reading of one compiled argument, for a reader elsewhere: a program in the
// target. A word from a source is replaced by the word in memory at word + hop, for every hop. The
// result is the value, or says where the value is.
type Load struct {
	Source LoadSource
	Reg    arch.Reg // LoadReg, LoadEntry, LoadEntered
	N      uint64   // LoadConst
	Hops   []uint64 // negative ones wrap
	Op     string   // LoadComputed: as DWARF names operations ...
	A, B   *Load    // ... the numbers that it is of; B is nil where it is of one

	As    LoadAs
	Off   uint64 // from the word to what As reads
	Nil   bool   // where the word is 0, so is the number, or there are none
	Nulls uint32 // bit i: where the word is 0, hop i gives 0 as well

	Guards []LoadGuard // in the order of their hops

	Size  int // bytes of a number; 0 for text
	Count int // elements of an array, Size or (LoadTextPtr) a pointer apart; 0: none

	Length *Load // LoadCounted: how many elements of Size, bytes of text where Size is 0, there are ...
	End    bool  // ... or where they end
	Most   int   // ... of which so many are read; of LoadTextAt, how many bytes a text has that no NUL ends, 0: 4095

	// How a number, once read, is compared: the field of a bit field, and signed.
	Shift  int
	Mask   uint64
	Signed bool
	Float  bool // it is a floating-point number

	SignBits int // of a bit field that has a sign: how many bits; else 0
}

// LoadGuard is a condition for a hop, the one behind the last being the reading of the value: where
// it does not hold, the word is 0 there.
type LoadGuard struct {
	Hop   int
	Of    *Load // a number
	Minus *Load // taken off it; nil: nothing
	Equal bool  // it is N; else it is more than N, both with a sign
	Not   bool  // with Equal: it is not N
	N     int64
}

// LoadSource is the place where a Load starts.
type LoadSource uint8

const (
	LoadConst    LoadSource = iota // Load.N
	LoadReg                        // a register at the hit
	LoadEntry                      // a register as it was at the function's entry
	LoadComm                       // the thread's name
	LoadText                       // nothing is read: a constant text
	LoadData                       // where a watched access's data is
	LoadStack                      // the addresses of the callers
	LoadVector                     // half of a vector register at the hit: Load.N/2, the upper half where that is odd
	LoadComputed                   // Load.Op of Load.A and Load.B
	LoadEntered                    // a register as it was when the function was entered that the hit is in the middle of: what its call tells
	LoadThread                     // the ids of process and thread: tgid << 32 | tid. No definition has it; filters do
)

// LoadAs says how a Load turns its word into the value.
type LoadAs uint8

const (
	LoadWord    LoadAs = iota // the word itself, cut to the type's size
	LoadNumber                // the Size bytes at word + Off, or elements of them
	LoadTextAt                // the text at word + Off
	LoadTextPtr               // the text at the pointer at word + Off, or at several
	LoadCounted               // the bytes at word + Off, as many as Length says
)

// Loads are the capture's arguments, in order.
func (c *Capture) Loads() []Load {
	loads := make([]Load, len(c.fetches))
	for i := range c.fetches {
		loads[i] = c.fetches[i].load()
	}
	return loads
}

func (f *fetch) load() Load {
	l := Load{
		Source: f.src, Reg: f.reg, N: f.n, Hops: slices.Clone(f.hops),
		As: f.sink, Off: f.off, Nil: f.null, Nulls: f.nulls & (1<<len(f.hops) - 1), Size: f.typ.Size, Count: f.typ.Array,
		Shift: f.shift, Mask: f.mask, Signed: f.typ.Base == spec.Signed || f.typ.Base == spec.Enumeration,
		Float: f.typ.Base == spec.Float,
	}
	if f.typ.Base == spec.Bitfield && f.typ.BitSign || f.typ.Base == spec.Enumeration {
		l.SignBits = f.typ.BitW
	}
	for i := range f.guards {
		g := &f.guards[i]
		of := g.of.load()
		out := LoadGuard{Hop: g.hop, Of: &of, Equal: g.equal, Not: g.not, N: g.n}
		if g.minus != nil {
			minus := g.minus.load()
			out.Minus = &minus
		}
		l.Guards = append(l.Guards, out)
	}
	if k := f.computed; k != nil {
		a := k.a.load()
		l.Op, l.A = k.op, &a
		if k.b != nil {
			b := k.b.load()
			l.B = &b
		}
	}
	if f.sink == LoadTextAt {
		l.Most = f.typ.Most
	}
	if f.sink == LoadCounted {
		length := f.count.load()
		l.Length, l.End, l.Most = &length, f.end, most(&f.typ)
	}
	return l
}

// Names are the arguments' names, in order.
func (c *Capture) Names() []string {
	names := make([]string, len(c.fetches))
	for i := range c.fetches {
		names[i] = c.fetches[i].name
	}
	return names
}

// Raw is a value that a Load has read.
type Raw struct {
	Fault bool
	Bits  uint64 // a number, as it was in memory or in the register
	Text  string
	Elems []Raw // of an array

	// Of what is counted, Bits are how many there are, and Text is the memory of those that were
	// read.
}
