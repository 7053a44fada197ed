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
	USym       // an address of the process: a word
	KSym       // an address of the kernel
	UStack     // id of a trace, a word; 1 more than the map's
	KStack     // the same, of the kernel's stack
	User       // a user's id, shown by name
	Probe      // an attach point's number, shown by its name
	Error      // an errno, shown in words; of Name "signal" or "syscall" the number of one, shown by its name
	Time       // Name is the format of a word of nanoseconds since boot
	Mac        // 6 bytes in a word
	CgroupPath // a group's id, shown by its path
	String     // Size bytes
	Buffer     // a word with the length, then Size-8 bytes
	Inet       // a word with the family, then 16 bytes
	Array      // Len of Elem
	Tuple      // Fields, each where Offset says
	Record     // the same with names: a structure
	Float      // of a structure's member alone: scripts do not reckon with it
	Count      // words: n
	Sum        // n
	Avg        // n, total
	Stats      // n, total
	Min        // set, value
	Max        // set, value
	Hist       // buckets, of 2^Bits a power of two
	LHist      // buckets of Step from Low to High
	TSeries    // Len slots of: epoch, n, value
)

// Stack tells whether values are stacks.
func (k Kind) Stack() bool { return k == UStack || k == KStack }

// Type is a value's type. Types are not changed once made.
type Type struct {
	Kind   Kind
	Size   int  // bytes of its own: of a scalar in C, of others in all
	Signed bool // an Int, an Enum that has negative constants, and what counts Ints
	Lit    bool // made of literals alone that are not negative: goes with any sign
	Chars  bool // a String that may fill its bytes, with no NUL behind it
	Filled bool // a String that was cut where it fills its bytes but for its NUL
	Elem   *Type
	Len    int
	Fields []Field
	Name   string // of a Record or Enum: "struct foo"; of a Time its format; of a Pointer what it is known to point to

	Bits            int               // of a Hist
	Low, High, Step int64             // of an LHist; Step of a TSeries in nanoseconds
	Names           map[uint64]string // of an Enum
}

// Field is a part of a Tuple or Record.
type Field struct {
	Name            string
	Type            *Type
	Offset          int
	BitOff, BitSize int // of a bit-field: it begins BitOff bits, fewer than 8, behind Offset
}

// BitField is a member of so many bits, that begins so many behind its record: it may cross words of its type, or lie in one byte of them.
func BitField(name string, t *Type, bit, size int) Field {
	return Field{Name: name, Type: t, Offset: bit / 8, BitOff: bit % 8, BitSize: size}
}

// Bytes is the number of bytes that a bit-field lies in: 9 at most.
func (f *Field) Bytes() int { return (f.BitOff + f.BitSize + 7) / 8 }

// Common types.
var (
	NoType = &Type{}
	VoidT  = &Type{Kind: Void}
	Int64  = &Type{Kind: Int, Size: 8, Signed: true}
	Uint64 = &Type{Kind: Int, Size: 8}
	Int32  = &Type{Kind: Int, Size: 4, Signed: true}
	Uint32 = &Type{Kind: Int, Size: 4}
	Uint8  = &Type{Kind: Int, Size: 1}
	Int8   = &Type{Kind: Int, Size: 1, Signed: true}
	Int16  = &Type{Kind: Int, Size: 2, Signed: true}
	Uint16 = &Type{Kind: Int, Size: 2}
	BoolT  = &Type{Kind: Bool, Size: 1}
)

// IntOf is the integer type of that many bytes: 1, 2, 4 or 8.
func IntOf(size int, signed bool) *Type {
	for _, t := range []*Type{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64} {
		if t.Size == size && t.Signed == signed {
			return t
		}
	}
	return Int64
}

var literals = map[int]*Type{}

func init() {
	for _, n := range []int{1, 2, 4, 8} {
		literals[n] = &Type{Kind: Int, Size: n, Signed: true, Lit: true}
	}
}

// LiteralOf is the type of a number that is written in a script: the smallest signed one
// that holds it. One that is not negative goes with unsigned numbers too.
func LiteralOf(n uint64, negative bool) *Type {
	for _, size := range []int{1, 2, 4} {
		shift := 64 - 8*size
		if uint64(int64(n<<shift)>>shift) == n && (negative || int64(n) >= 0) {
			if negative {
				return IntOf(size, true)
			}
			return literals[size]
		}
	}
	switch {
	case negative:
		return Int64
	case n > 1<<63-1:
		return Uint64
	}
	return literals[8]
}

// Plain is a number's type without the freedom of a literal.
func (t *Type) Plain() *Type {
	if t.Kind == Int && t.Lit {
		return IntOf(t.Size, true)
	}
	return t
}

// CharsOf is the type of an array of so many characters, as it lies in memory: no NUL need follow them.
func CharsOf(n int) *Type { return &Type{Kind: String, Size: n, Chars: true} }

// Value is the type of a value that lies in memory as t: of characters a string, which has a NUL.
func (t *Type) Value() *Type {
	if t.Chars {
		return StringOf(t.Size + 1)
	}
	return t
}

// Stride is how far one step of a type's value goes: a pointer's as far as what it points to is long.
func (t *Type) Stride() int32 {
	if t.Kind == Pointer && t.Elem != nil {
		return int32(max(t.Elem.Size, 1))
	}
	return 1
}

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
func (t *Type) Scalar() bool { return t.Kind >= Int && t.Kind <= CgroupPath }

// Number tells whether it can be reckoned with.
func (t *Type) Number() bool {
	return t.Kind == Int || t.Kind == Bool || t.Kind == Pointer || t.Kind == Enum
}

// Aggregate tells of what maps gather.
func (t *Type) Aggregate() bool { return t.Kind >= Count }

// Sizeof is the bytes of a value as sizeof tells them: a tuple's parts lie as a structure's members do in C, however a
// script keeps them.
func (t *Type) Sizeof() int {
	if t.Kind != Tuple && (t.Kind != Record || t.Name != "") {
		return t.Size
	}
	size, _ := t.layoutInC()
	return size
}

// layoutInC is the size and the alignment of a tuple as a structure in C.
func (t *Type) layoutInC() (size, align int) {
	if t.Kind != Tuple && (t.Kind != Record || t.Name != "") {
		return t.Size, t.Align()
	}
	align = 1
	for _, f := range t.Fields {
		n, to := f.Type.layoutInC()
		size = (size+to-1)/to*to + n
		align = max(align, to)
	}
	return (size + align - 1) / align * align, align
}

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

// Align is what a value's address in C is a multiple of.
func (t *Type) Align() int {
	switch t.Kind {
	case String:
		return 1
	case Array:
		return t.Elem.Align()
	case Record:
		return max(t.Len, 1)
	}
	return max(t.Size, 1)
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

// ArrayOf is an array of n.
func ArrayOf(elem *Type, n int) *Type {
	return &Type{Kind: Array, Elem: elem, Len: n, Size: elem.Size * n}
}

// NewTSeries is the type of tseries(n, step, slots, how): each slot has its epoch, a count,
// and a value.
func NewTSeries(slots int, step int64, how string, signed bool) *Type {
	return &Type{Kind: TSeries, Len: slots, Step: step, Name: how, Signed: signed, Size: 24 * slots}
}

// Declared is the type as a script would write it.
func (t *Type) Declared() string {
	if t.Kind == String {
		return "string"
	}
	return t.String()
}

// Family is the kind of a type in one word, as messages name it.
func (t *Type) Family() string {
	switch t.Kind {
	case Int, Enum:
		return "int"
	case Pointer:
		return "pointer"
	case String:
		return "string"
	case Buffer:
		return "buffer"
	case Array:
		return "array"
	case Tuple:
		return "tuple"
	case Record:
		if t.Name != "" {
			return "c_struct"
		}
		return "record"
	case UStack, KStack:
		return kindNames[t.Kind]
	}
	return t.String()
}

// String is the type as messages name it.
func (t *Type) String() string {
	switch t.Kind {
	case None, Float:
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
			all = append(all, "."+f.Name+" = "+f.Type.String())
		}
		return "record { " + strings.Join(all, ", ") + " }"
	case UStack, KStack:
		n := t.Len
		if n == 0 {
			n = 127
		}
		return fmt.Sprintf("%s_%s_%d", kindNames[t.Kind], t.Name, n)
	case Sum, Avg, Stats, Min, Max:
		if !t.Signed {
			return "u" + kindNames[t.Kind]
		}
	}
	return kindNames[t.Kind]
}

var kindNames = map[Kind]string{
	USym: "usym_t", KSym: "ksym_t", UStack: "ustack", KStack: "kstack", User: "username", Probe: "string", Error: "strerror_t",
	Inet: "inet", CgroupPath: "cgroup_path_t", Mac: "mac_address", Time: "timestamp", Count: "count_t", Sum: "sum_t", Avg: "avg_t", Stats: "stats_t",
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
		if a.Kind == Pointer || b.Kind == Pointer {
			return nil
		}
		return Int64 // a bool or enum beside a plain number
	case a.Kind != b.Kind:
		return nil
	}
	switch a.Kind {
	case Int:
		return joinInts(a, b)
	case String:
		if a.Size > b.Size || a.Size == b.Size && !b.Filled {
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
		if b.Elem != nil && !Same(a.Elem, b.Elem) {
			return nil
		}
		if a.Name != b.Name { // not of one variable
			return PointerTo(a.Elem)
		}
		return a
	case Tuple, Record:
		return joinFields(a, b)
	case Array:
		if a.Len != b.Len || !Same(a.Elem, b.Elem) {
			return nil
		}
	case UStack, KStack:
		if a.Len != b.Len || a.Name != b.Name {
			return nil
		}
	case Enum:
		if a.Name != b.Name || a.Name == "" {
			return Int64
		}
	case Error, Time:
		if a.Name != b.Name {
			return nil
		}
	case TSeries:
		if a.Len != b.Len || a.Step != b.Step || a.Name != b.Name {
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

// joinInts: the wider one; of both signs a signed one that holds both, as far as there is one.
func joinInts(a, b *Type) *Type {
	size := max(a.Size, b.Size)
	switch {
	case a.Lit && b.Lit:
		return literals[size]
	case a.Lit:
		return IntOf(size, b.Signed)
	case b.Lit:
		return IntOf(size, a.Signed)
	case a.Signed == b.Signed:
		return IntOf(size, a.Signed)
	}
	if b.Signed {
		a, b = b, a // a is the signed one
	}
	if b.Size >= a.Size {
		return IntOf(min(2*b.Size, 8), true)
	}
	return a
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
		if a.Kind == Record { // in any order
			at := b.Field(f.Name)
			if at < 0 {
				return nil
			}
			g = b.Fields[at]
			names = append(names, f.Name)
		}
		j := Join(f.Type, g.Type)
		if j == nil {
			return nil
		}
		same = same && Same(j, f.Type)
		elems = append(elems, j)
	}
	if same {
		return a
	}
	return TupleOf(names, elems...)
}

// Field is the index of a field by its name, -1 for none.
func (t *Type) Field(name string) int {
	for i, f := range t.Fields {
		if f.Name == name {
			return i
		}
	}
	return -1
}

// Same tells whether two types are alike in all that is kept of them.
func Same(a, b *Type) bool {
	if a == b {
		return true
	}
	if a.Kind != b.Kind || a.Size != b.Size || a.Signed != b.Signed || a.Lit != b.Lit || len(a.Fields) != len(b.Fields) || a.Name != b.Name {
		return false
	}
	if a.Len != b.Len && a.Kind != Record || (a.Elem == nil) != (b.Elem == nil) {
		return false
	}
	if a.Elem != nil && a.Elem != b.Elem && !(a.Elem.Name != "" && a.Elem.Name == b.Elem.Name) && !Same(a.Elem, b.Elem) {
		return false
	}
	if a.Kind == Record && a.Name != "" {
		return true // of one name
	}
	for i := range a.Fields {
		if a.Fields[i].Name != b.Fields[i].Name || !Same(a.Fields[i].Type, b.Fields[i].Type) {
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

// Add adds a member to a record. The members of one without a name are the record's own.
func (t *Type) Add(f Field) {
	if f.Name != "" {
		t.Fields = append(t.Fields, f)
		return
	}
	for _, in := range f.Type.Fields {
		in.Offset += f.Offset
		t.Fields = append(t.Fields, in)
	}
}
