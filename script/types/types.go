// Package types has the types of values in scripts, and how values lie in memory:
// in variables, maps, and the records that programs send. All words are little-endian.
//
// A scalar takes a word of 8 bytes, extended by its signedness, wherever a script
// keeps it; in a C structure it has its own size. A string takes its size, zeros
// behind its NUL, so that two strings are equal where their bytes are.
package types

import (
	"fmt"
	"strings"
)

// Kind is what a value is.
type Kind uint8

const (
	None Kind = iota // not known yet
	Void
	Int
	Bool
	Pointer
	Enum
	USym    // an address of the process: a word
	KSym    // an address of the kernel
	UStack  // id of a trace, a word; 1 more than the map's
	KStack  // the same, of the kernel's stack
	User    // a user's id, shown by name
	Probe   // an attach point's number, shown by its name
	Error   // an errno, shown in words
	Time    // Name is the format of a word of nanoseconds since boot
	Mac     // 6 bytes in a word
	String  // Size bytes
	Buffer  // a word with the length, then Size-8 bytes
	Inet    // a word with the family, then 16 bytes
	Array   // Len of Elem
	Tuple   // Fields, each where Offset says
	Record  // the same with names: a structure
	Count   // words: n
	Sum     // n
	Avg     // n, total
	Stats   // n, total
	Min     // set, value
	Max     // set, value
	Hist    // buckets, of 2^Bits a power of two
	LHist   // buckets of Step from Low to High
	TSeries // Len slots of: epoch, n, value
)

// Type is a value's type. Types are not changed once made.
type Type struct {
	Kind   Kind
	Size   int  // bytes of its own: of a scalar in C, of others in all
	Signed bool // an Int, and what counts Ints
	Lit    bool // made of literals alone that are not negative: goes with any sign
	Elem   *Type
	Len    int
	Fields []Field
	Name   string // of a Record or Enum: "struct foo"; of a Time its format

	Bits            int               // of a Hist
	Low, High, Step int64             // of an LHist; Step of a TSeries in nanoseconds
	Names           map[uint64]string // of an Enum
}

// Field is a part of a Tuple or Record.
type Field struct {
	Name            string
	Type            *Type
	Offset          int
	BitOff, BitSize int // of a bit-field: within the word of Type at Offset
}

// Common types.
var (
	NoType  = &Type{}
	VoidT   = &Type{Kind: Void}
	Int64   = &Type{Kind: Int, Size: 8, Signed: true}
	Uint64  = &Type{Kind: Int, Size: 8}
	Int32   = &Type{Kind: Int, Size: 4, Signed: true}
	Uint32  = &Type{Kind: Int, Size: 4}
	Uint8   = &Type{Kind: Int, Size: 1}
	Literal = &Type{Kind: Int, Size: 8, Signed: true, Lit: true}
	BoolT   = &Type{Kind: Bool, Size: 1}
)

// StringOf is the type of strings of that many bytes, the NUL included.
func StringOf(n int) *Type { return &Type{Kind: String, Size: n} }

// PointerTo is a pointer; to nil is void *.
func PointerTo(t *Type) *Type { return &Type{Kind: Pointer, Size: 8, Elem: t} }

// TupleOf lays out a tuple; names make it a record.
func TupleOf(names []string, elems ...*Type) *Type {
	t := &Type{Kind: Tuple}
	if names != nil {
		t.Kind = Record
	}
	for i, e := range elems {
		f := Field{Type: e, Offset: t.Size}
		if names != nil {
			f.Name = names[i]
		}
		t.Fields = append(t.Fields, f)
		t.Size += e.Slot()
	}
	return t
}

// Scalar tells whether a value is one word.
func (t *Type) Scalar() bool { return t.Kind >= Int && t.Kind <= Mac }

// Number tells whether it can be reckoned with.
func (t *Type) Number() bool {
	return t.Kind == Int || t.Kind == Bool || t.Kind == Pointer || t.Kind == Enum
}

// Aggregate tells of what maps gather.
func (t *Type) Aggregate() bool { return t.Kind >= Count }

// Slot is the bytes that a script keeps a value in.
func (t *Type) Slot() int {
	switch {
	case t.Scalar():
		return 8
	case t.Kind == String: // a NUL fits behind what was cut, too
		return (t.Size + 8) &^ 7
	}
	return (t.Size + 7) &^ 7
}

// Buckets of histograms.

// HistBuckets is how many buckets a hist of 2^bits a power has.
func HistBuckets(bits int) int { return 1 + (65-bits)<<bits }

// NewHist is the type of hist(n, bits).
func NewHist(bits int) *Type { return &Type{Kind: Hist, Bits: bits, Size: 8 * HistBuckets(bits)} }

// NewLHist is the type of lhist(n, low, high, step).
func NewLHist(low, high, step int64) *Type {
	return &Type{Kind: LHist, Low: low, High: high, Step: step, Size: 8 * int((high-low)/step+2)}
}

// String is the type as messages name it.
func (t *Type) String() string {
	switch t.Kind {
	case None:
		return "none"
	case Void:
		return "void"
	case Int:
		if t.Signed {
			return fmt.Sprintf("int%d", 8*t.Size)
		}
		return fmt.Sprintf("uint%d", 8*t.Size)
	case Bool:
		return "bool"
	case Pointer:
		if t.Elem == nil {
			return "void *"
		}
		return t.Elem.String() + " *"
	case Enum:
		return t.Name
	case String:
		return fmt.Sprintf("string[%d]", t.Size)
	case Buffer:
		return fmt.Sprintf("buffer[%d]", t.Size-8)
	case Array:
		return fmt.Sprintf("%s[%d]", t.Elem, t.Len)
	case Tuple:
		var all []string
		for _, f := range t.Fields {
			all = append(all, f.Type.String())
		}
		return "(" + strings.Join(all, ",") + ")"
	case Record:
		if t.Name != "" {
			return t.Name
		}
		var all []string
		for _, f := range t.Fields {
			all = append(all, f.Name+"="+f.Type.String())
		}
		return "record(" + strings.Join(all, ",") + ")"
	}
	return kindNames[t.Kind]
}

var kindNames = map[Kind]string{
	USym: "usym_t", KSym: "ksym_t", UStack: "ustack", KStack: "kstack", User: "username", Probe: "string", Error: "strerror_t",
	Inet: "inet", Mac: "mac_address", Time: "timestamp", Count: "count_t", Sum: "sum_t", Avg: "avg_t", Stats: "stats_t",
	Min: "min_t", Max: "max_t", Hist: "hist_t", LHist: "lhist_t", TSeries: "tseries_t",
}

// Join is the type that holds values of both; nil where there is none.
func Join(a, b *Type) *Type {
	switch {
	case a.Kind == None:
		return b
	case b.Kind == None || a == b:
		return a
	case a.Number() && b.Number() && a.Kind != b.Kind && (a.Kind == Int || b.Kind == Int):
		// A pointer, bool or enum beside a plain number stays what it is.
		if a.Kind == Int && (b.Kind == Enum || b.Kind == Bool) || b.Kind == Int && (a.Kind == Enum || a.Kind == Bool) {
			return Int64
		}
		if a.Kind == Int {
			return b
		}
		return a
	case a.Kind != b.Kind:
		return nil
	}
	switch a.Kind {
	case Int:
		return joinInts(a, b)
	case String:
		if a.Size >= b.Size {
			return a
		}
		return b
	case Buffer:
		if a.Size >= b.Size {
			return a
		}
		return b
	case Pointer:
		if a.Elem == nil {
			return b
		}
		return a
	case Tuple, Record:
		return joinFields(a, b)
	case Array:
		if a.Len != b.Len || a.Elem.Kind != b.Elem.Kind || a.Elem.Size != b.Elem.Size {
			return nil
		}
	case Hist, LHist:
		if a.Bits != b.Bits || a.Low != b.Low || a.High != b.High || a.Step != b.Step {
			return nil
		}
	case Sum, Avg, Stats, Min, Max:
		if b.Signed {
			return b
		}
	}
	return a
}

func joinInts(a, b *Type) *Type {
	switch {
	case a.Lit && b.Lit:
		return a
	case a.Signed == b.Signed:
		if a.Size > b.Size || a.Size == b.Size && !a.Lit {
			return a
		}
		return b
	case a.Lit:
		return Uint64
	case b.Lit:
		return Uint64
	}
	return Int64
}

func joinFields(a, b *Type) *Type {
	if a.Name != b.Name || len(a.Fields) != len(b.Fields) {
		return nil
	}
	if a.Name != "" {
		return a
	}
	var names []string
	var elems []*Type
	same := true
	for i, f := range a.Fields {
		g := b.Fields[i]
		j := Join(f.Type, g.Type)
		if j == nil || f.Name != g.Name {
			return nil
		}
		same = same && j == f.Type
		elems = append(elems, j)
		if a.Kind == Record {
			names = append(names, f.Name)
		}
	}
	if same {
		return a
	}
	return TupleOf(names, elems...)
}

// Same tells whether two types are alike in all that is kept of them.
func Same(a, b *Type) bool {
	if a == b {
		return true
	}
	if a.Kind != b.Kind || a.Size != b.Size || a.Signed != b.Signed || a.Lit != b.Lit || len(a.Fields) != len(b.Fields) || a.Name != b.Name {
		return false
	}
	for i := range a.Fields {
		if !Same(a.Fields[i].Type, b.Fields[i].Type) {
			return false
		}
	}
	return true
}

// Mask is what a Min's or Max's word is kept xored with, so that a word of 0 stands for
// the value that every other is better than.
func (t *Type) Mask() uint64 {
	switch {
	case t.Kind == Max && t.Signed:
		return 1 << 63
	case t.Kind == Min && t.Signed:
		return 1<<63 - 1
	case t.Kind == Min:
		return 1<<64 - 1
	}
	return 0
}
