package event

import (
	"slices"

	"kprobe/arch"
	"kprobe/spec"
)

// Load is what one compiled argument reads, for who reads elsewhere: a program in
// the target. A word from a source, replaced by the word in memory at word + hop
// for every hop, is the value, or says where the value is.
type Load struct {
	Source LoadSource
	Reg    arch.Reg // LoadReg, LoadEntry
	N      uint64   // LoadConst
	Hops   []uint64 // negative ones wrap

	As    LoadAs
	Off   uint64 // from the word to what As reads
	Size  int    // bytes of a number; 0 for text
	Count int    // elements of an array, Size or (LoadTextPtr) a pointer apart; 0: none

	// How a number, once read, is compared: the field of a bit field, and signed.
	Shift  int
	Mask   uint64
	Signed bool
}

// LoadSource is where a Load starts.
type LoadSource uint8

const (
	LoadConst = LoadSource(fromConst)
	LoadReg   = LoadSource(fromReg)
	LoadEntry = LoadSource(fromEntry) // a register as it was at the function's entry
	LoadComm  = LoadSource(fromComm)
	LoadText  = LoadSource(fromText) // nothing is read: a constant text
	LoadData  = LoadSource(fromData) // where a watched access's data is
)

// LoadAs is what a Load makes of its word.
type LoadAs uint8

const (
	LoadWord    = LoadAs(asWord)
	LoadNumber  = LoadAs(inMem)   // the Size bytes at word + Off
	LoadTextAt  = LoadAs(textAt)  // the text at word + Off
	LoadTextPtr = LoadAs(textPtr) // the text at the pointer at word + Off
)

// Loads are the capture's arguments, in order.
func (c *Capture) Loads() []Load {
	loads := make([]Load, len(c.fetches))
	for i := range c.fetches {
		f := &c.fetches[i]
		loads[i] = Load{
			Source: LoadSource(f.src), Reg: f.reg, N: f.n, Hops: slices.Clone(f.hops),
			As: LoadAs(f.sink), Off: f.off, Size: f.typ.Size, Count: f.typ.Array,
			Shift: f.shift, Mask: f.mask, Signed: f.typ.Base == spec.Signed,
		}
	}
	return loads
}

// Names are the arguments' names, in order.
func (c *Capture) Names() []string {
	names := make([]string, len(c.fetches))
	for i := range c.fetches {
		names[i] = c.fetches[i].name
	}
	return names
}

// Raw is what a Load read.
type Raw struct {
	Fault bool
	Bits  uint64 // a number, as it was in memory or in the register
	Text  string
	Elems []Raw // of an array
}

// Values makes the values of a hit of what was read elsewhere, one Raw for each
// Load: as AppendTo does of what it reads itself.
func (c *Capture) Values(raw []Raw) []Value {
	values := make([]Value, len(c.fetches))
	for i := range values {
		f, v := &c.fetches[i], &values[i]
		*v = Value{Name: f.name, Base: f.typ.Base, Size: uint8(f.typ.Size)}
		if f.src == fromText {
			v.Text = f.text
			continue
		}
		if f.typ.Array == 0 {
			c.raw(v, f, raw[i])
			continue
		}
		v.Array, v.Elems = true, make([]Value, f.typ.Array)
		for k := range v.Elems {
			v.Elems[k] = Value{Base: v.Base, Size: v.Size}
			c.raw(&v.Elems[k], f, raw[i].Elems[k])
		}
	}
	return values
}

func (c *Capture) raw(v *Value, f *fetch, r Raw) {
	v.Text = r.Text
	if v.Fault = r.Fault; v.Fault || v.Size == 0 {
		return
	}
	v.Bits = r.Bits & (1<<(8*v.Size-1)<<1 - 1) >> f.shift & f.mask
	if f.typ.Base == spec.Symbol || f.typ.Base == spec.SymStr {
		c.symbol(v)
	}
}
