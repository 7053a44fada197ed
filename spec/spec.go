// Package spec is the probe definition language: the kernel's kprobe_events
// and uprobe_events lines (kprobetrace.txt, uprobetracer.txt), and places in
// mapped files by symbol beyond them. Text goes to a Spec and back. It is plain
// and deterministic: nothing here looks at a running system. Standard library
// only.
//
// One line is one definition, words are separated by blanks:
//
//	line    = [ define | delete ] [ "#" comment ]
//	define  = verb [ ":" name ] place { arg } [ "if" EXPRESSION ]
//	        | verb ":" place { arg }                  (place holds a colon or a quote)
//	        | "w" [ ":" name ] data { arg }
//	verb    = "p" | "r" [ MAXACTIVE ]
//	name    = [ GROUP ( "/" | "." ) ] [ EVENT ]
//	delete  = "-:" name [ ( place | data ) { arg } ]
//
//	place   = ADDR [ "%return" ]
//	        | [ MODULE ":" ] SYMBOL [ "@" VERSION ] [ "+" OFFS ] [ "%return" ]
//	        | PATH ":" OFFSET [ "%return" ] | PATH ":" OFFSET "(" REFCTR ")"
//
//	data    = [ "r" | "w" | "rw" ] "@" ( ADDR | [ MODULE ":" ] SYMBOL [ "@" VERSION ] )
//	          [ ( "+" | "-" ) OFFS ] [ ":" LENGTH ]
//
//	arg     = [ NAME "=" ] fetch [ ":" type [ "[" N "]" ] ] | "$arg*" | "$locals"
//	fetch   = "%" REG
//	        | "$stack" [ N ] | "$retval" { field } | "$comm" | "$arg" N
//	        | "$addr"                                 (of a data definition)
//	        | "@" ADDR | "@" SYMBOL [ ( "+" | "-" ) OFFS ] | "@+" FILEOFFS
//	        | ( "+" | "-" ) [ "u" ] OFFS "(" fetch ")"
//	        | "\" NUMBER | "\" '"' text '"'
//	        | VARIABLE { field } | EXPRESSION          (of a program's source: see Expr)
//	field   = ( "->" | "." ) NAME
//	type    = ( "u" | "s" | "x" ) ( "8" | "16" | "32" | "64" ) | "char"
//	        | "string" | "ustring" | "symbol" | "symstr" | "%pd" | "%pD"
//	        | "b" WIDTH "@" OFFSET "/" CONTAINER
//
// Numbers are decimal, 0x and hexadecimal, or 0 and octal. A Dialect tells
// which of this is allowed: the kernel's two have no quotes, no VERSION, and
// each only its own places; processes have no %pd and %pD.
//
// Read parse.go for lines, place.go, glob.go and watch.go for places, fetch.go and types.go for
// arguments, expr.go and source.go for expressions, errors.go for what can be wrong, print.go for
// the way back, siblings.go for several definitions of one name.
package spec

import (
	"slices"
	"strings"
)

// Kind is a definition's verb.
type Kind byte

const (
	Probe  Kind = 'p' // fires before the instruction at the place
	Return Kind = 'r' // fires when the function at the place returns
	Watch  Kind = 'w' // fires after an access to the data at the place
	Delete Kind = '-' // removes the definition of that name
)

// Spec is one definition.
type Spec struct {
	Kind      Kind
	MaxActive int    // of "r<N>"; 0 where none was given
	Group     string // "" where none was given
	Event     string // "" where none was given; see Names
	Place     Place
	Args      []Arg
	If        *Condition // nil: every hit

	src *source // where it was read from; nil for one made by hand
}

// Text is the definition as it was written; as String has it, where it was not.
func (s *Spec) Text() string {
	if s.src == nil {
		return s.String()
	}
	return s.src.line
}

// Equal tells whether two definitions say the same. The text that they were
// read from does not count: blanks, and how a number or a type is spelled.
func (s *Spec) Equal(o *Spec) bool {
	return s.Kind == o.Kind && s.MaxActive == o.MaxActive &&
		s.Group == o.Group && s.Event == o.Event && s.Place == o.Place && s.If.equal(o.If) &&
		slices.EqualFunc(s.Args, o.Args, func(a, b Arg) bool {
			return a.Name == b.Name && a.Named == b.Named && a.Type == b.Type && a.Fetch.Equal(&b.Fetch)
		})
}

// Place says where a probe goes. Exactly one of Symbol, HasAddr and HasFileOff says so.
type Place struct {
	// Module is the part before the colon: a path, a mapped file's base name, or (kernel) a
	// module's name. "" where none was given.
	Module string

	Symbol  string // may be a glob: see IsGlob
	Exact   bool   // written in quotes: Symbol has no wildcards
	Version string // of SYMBOL@VERSION (a version of the symbol, or "plt"); "" where none was given
	Offset  uint64 // added to Symbol, bytes; a Watch's may be negative, and wraps

	HasAddr bool   // an absolute address
	Addr    uint64 //

	HasFileOff bool   // PATH:OFFSET of uprobe_events: an offset in the file
	FileOff    uint64 //

	HasRefCtr bool   // PATH:OFFSET(REFCTR): file offset of the reference counter
	RefCtr    uint64 //

	Access string // of a Watch: "r", "w" or "rw"; else ""
	Length int    // of a Watch: 1, 2, 4 or 8 bytes

	PctReturn bool // written with "%return"; Kind is Return then
}

// Arg is one fetch argument: NAME=FETCH:TYPE.
type Arg struct {
	Name  string // as given or generated ("arg1")
	Named bool   // whether the name was given
	Fetch Fetch
	Type  Type

	Result bool // it is, or is part of, what the function returns
}

// Op is the kind of thing that a Fetch reads.
type Op uint8

const (
	Reg        Op = iota // %REG: Name
	Stack                // $stack: the stack pointer
	StackN               // $stackN: word N of the stack
	Retval               // $retval
	Comm                 // $comm
	ArgN                 // $argN: the function's Nth argument, N >= 1, as C has it; with a Name, what that register had at the entry
	AllArgs              // $arg*
	Abs                  // @ADDR: the word at an address; N holds it
	Sym                  // @SYM+N: the word at a symbol; Name, N
	FileOff              // @+N: the word at an offset of the same file
	Deref                // +N(Inner), -N(Inner), +uN(Inner)
	Imm                  // \N
	ImmStr               // \"text": Name holds the text
	Var                  // a variable by name, from type information: Name, Fields
	DataAddr             // $addr: where a Watch's data is
	Expression           // in terms of the program's source: Expr
	Locals               // $locals: all variables in scope
	StackTrace           // stack: the functions that were called, up to here
	Plus                 // Inner + N, which is not read: of what names have been turned into
	Maybe                // Inner, or 0 where Guard does not hold: of these, and read through only
	Vector               // 8 bytes of vector register N/2: the lower ones, or with an odd N the upper ones
	Compute              // Name of Inner and Other, as DWARF names operations; load is the N bytes that Inner reads
	Entered              // what register Name had when the function was entered, in the middle of it: what the call has passed
)

// Fetch is the source of an argument's value.
type Fetch struct {
	Op     Op
	Name   string
	N      int64
	User   bool    // Deref: user memory was asked for ("u")
	Inner  *Fetch  // Deref
	Other  *Fetch  // Compute: the second number
	Count  *Fetch  // Deref: how many lie there, where the target says so; of a type with Counted
	End    *Fetch  // Deref: the same, told by where they end
	Nil    bool    // Deref: at a null pointer is a 0
	Guard  *Guard  // Deref: where it does not hold, Inner counts as a null pointer
	Fields []Field // Var, Retval: member accesses
	Expr   *Expr   // Expression
}

// Guard is a condition for a part to be there: an element is there if there are so many, a
// variant's part if it is that variant.
type Guard struct {
	Of    *Fetch
	Size  int    // bytes of Of
	At    int    // which they are of its word: those from this bit on
	Minus *Fetch // taken off it; nil: nothing
	Equal bool   // it is N; else it is more than N, both with a sign
	Not   bool   // with Equal: it is not N
	N     int64
	And   *Guard // must hold as well; nil: nothing
	Must  bool   // where it does not hold, what is read cannot be; else it is 0, or nothing
}

// equal tells whether two guards ask the same.
func (g *Guard) equal(o *Guard) bool {
	if g == nil || o == nil {
		return g == o
	}
	return g.Size == o.Size && g.At == o.At && g.Equal == o.Equal && g.Not == o.Not && g.N == o.N && g.Must == o.Must && g.And.equal(o.And) && g.Of.Equal(o.Of) && g.Minus.Equal(o.Minus)
}

// Equal tells whether two fetches read the same.
func (f *Fetch) Equal(o *Fetch) bool {
	if f == nil || o == nil {
		return f == o
	}
	return f.Op == o.Op && f.Name == o.Name && f.N == o.N && f.User == o.User &&
		slices.Equal(f.Fields, o.Fields) && f.Expr.Equal(o.Expr) && f.Inner.Equal(o.Inner) && f.Other.Equal(o.Other) &&
		f.Count.Equal(o.Count) && f.End.Equal(o.End) && f.Nil == o.Nil && f.Guard.equal(o.Guard)
}

// Any tells whether a fetch or a part of it is such a one.
func (f *Fetch) Any(is func(*Fetch) bool) bool {
	return f != nil && (is(f) || f.Inner.Any(is) || f.Other.Any(is) || f.Count.Any(is) || f.End.Any(is) || f.Guard.any(is))
}

func (g *Guard) any(is func(*Fetch) bool) bool {
	return g != nil && (g.Of.Any(is) || g.Minus.Any(is) || g.And.any(is))
}

// Rewritten is a copy in which change has had its way with each part, from the inside out. Errors: of change.
func (f *Fetch) Rewritten(change func(*Fetch) error) (*Fetch, error) {
	if f == nil {
		return nil, nil
	}
	c := *f
	for _, part := range []**Fetch{&c.Inner, &c.Other, &c.Count, &c.End} {
		var err error
		if *part, err = (*part).Rewritten(change); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Guard, err = c.Guard.rewritten(change); err != nil {
		return nil, err
	}
	return &c, change(&c)
}

func (g *Guard) rewritten(change func(*Fetch) error) (*Guard, error) {
	if g == nil {
		return nil, nil
	}
	c := *g
	var err error
	if c.Of, err = c.Of.Rewritten(change); err != nil {
		return nil, err
	}
	if c.Minus, err = c.Minus.Rewritten(change); err != nil {
		return nil, err
	}
	c.And, err = c.And.rewritten(change)
	return &c, err
}

// Field is one member access, "->Name" or ".Name".
type Field struct {
	Arrow bool
	Name  string
}

// Base says how a value is read and printed.
type Base uint8

const (
	Unsigned Base = iota // decimal
	Signed               // decimal
	Hex                  // 0x...
	Char                 // quoted character
	String               // text in memory
	UString              // text in user memory
	Symbol               // address printed as symbol+offset
	SymStr               // the same, stored as text
	Bitfield
	Dentry       // %pd
	FileP        // %pD
	Enumeration  // an integer with sign that has names: Type.Enum
	Trace        // a stack: return addresses
	Float        // a floating-point number of 4 or 8 bytes
	UnsignedEnum // as Enumeration, without sign
)

// Named tells the types whose values may have names: those of enumerations.
func (b Base) Named() bool { return b == Enumeration || b == UnsignedEnum }

// Type is an argument's type. Written is the definition's text, "" where it has none and the
// default (x64) holds.
type Type struct {
	Written string // without the array part
	Base    Base
	Size    int  // bytes of one element; 0 for strings
	Array   int  // number of elements of T[N]; 0 where it is no array
	BitW    int  // Bitfield: width; an enumeration's as well, where it is one of so many bits
	BitO    int  // Bitfield: offset in bits
	BitSign bool // Bitfield: it is a signed number

	Enum *Enum // of an enumeration: its names

	// Most is the length of a text that needs no NUL at its end, as an array of characters; 0: a
	// NUL ends it.
	Most int

	// Counted tells that there are as many elements, or bytes of text, as the fetch's Count or End
	// says; Array is then the most that are read.
	Counted bool
}

// Enum is the names of an enumeration's values.
type Enum struct {
	Name   string
	Values map[int64]string // extended from the type's size, by its sign
	Other  string           // of all other values; "": they have none
	Also   map[string]int64 // further names of values that have one
}

// Text is the name of a value, or the names of its bits where each has one; "" where it has none.
func (e *Enum) Text(n int64) string {
	if s := e.Values[n]; s != "" {
		return s
	}
	if e.Other != "" || n <= 0 {
		return e.Other
	}
	var names []string
	for bits := uint64(n); bits != 0; bits &= bits - 1 {
		name := e.Values[int64(bits&-bits)]
		if name == "" {
			return ""
		}
		names = append(names, name)
	}
	return strings.Join(names, "|")
}

// Number is the value of a name.
func (e *Enum) Number(name string) (int64, bool) {
	for n, s := range e.Values {
		if s == name {
			return n, true
		}
	}
	n, ok := e.Also[name]
	return n, ok
}
