package symbol

import (
	"fmt"
	"strings"
)

// Source says which part of a file named a symbol.
type Source string

const (
	Symtab    Source = "symtab"    // .symtab of the file itself
	Dynsym    Source = "dynsym"    // the dynamic symbol table
	DebugFile Source = "debug"     // .symtab of its separate debug file
	MiniDebug Source = "minidebug" // .symtab inside .gnu_debugdata
	Pclntab   Source = "pclntab"   // Go's function table
	EhFrame   Source = "eh_frame"  // an unwind entry: bounds without a name
	Plt       Source = "plt"       // a stub that jumps to an import, "NAME@plt"
)

// Kind is the kind of thing that a symbol stands for.
type Kind uint8

const (
	Func  Kind = iota // code
	IFunc             // code that returns the address of the function to use
	Data              // a variable
)

// String gives "func", "ifunc" or "data".
func (k Kind) String() string {
	switch k {
	case Func:
		return "func"
	case IFunc:
		return "ifunc"
	case Data:
		return "data"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Symbol is a named, or at least bounded, piece of a file.
type Symbol struct {
	Name    string // as the file spells it, without version; "" for Source EhFrame
	Version string // of a versioned dynamic symbol: "GLIBC_2.14"
	Default bool   // Version is the one new programs link against ("@@")
	Addr    uint64 // virtual address in the file; see Module.InProcess
	Size    uint64 // bytes; found from the next symbol or the unwind entry where the file says 0
	Kind    Kind
	Global  bool // visible to other files: binding is not STB_LOCAL
	Source  Source

	weak   bool
	notype bool // STT_NOTYPE: a label of hand-written assembly
	copied bool // a program's own copy of a library's variable, which all use instead
}

// Label is the symbol's name, or sub_ADDR in hexadecimal for a function that is
// only known by its bounds. Lookup understands both.
func (s *Symbol) Label() string {
	if s.Name == "" {
		return fmt.Sprintf("%s%x", subPrefix, s.Addr)
	}
	return s.Name
}

// FullName is Label with the version where it tells the symbol from another of
// the same name: NAME@VERSION for all but the default version.
func (s *Symbol) FullName() string {
	if s.Version != "" && !s.Default {
		return s.Name + "@" + s.Version
	}
	return s.Label()
}

// subPrefix begins the made-up name of a function without symbol.
const subPrefix = "sub_"

// end is the first address after the symbol, saturating: sizes are untrusted.
func (s *Symbol) end() uint64 {
	if e := s.Addr + s.Size; e >= s.Addr {
		return e
	}
	return ^uint64(0)
}

// compareAlias orders symbols of one address by how well they name it: the name that a programmer
// would use comes first, "malloc" before "__libc_malloc" and "fini@plt" last.
func compareAlias(a, b *Symbol) int {
	better := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	if c := better(a.Name != "", b.Name != ""); c != 0 {
		return c
	}
	if c := better(a.Source != Plt, b.Source != Plt); c != 0 {
		return c
	}
	if c := better(!a.notype, !b.notype); c != 0 {
		return c
	}
	if c := better(a.Global, b.Global); c != 0 {
		return c
	}
	if c := underscores(a.Name) - underscores(b.Name); c != 0 {
		return c
	}
	if c := better(a.Version == "" || a.Default, b.Version == "" || b.Default); c != 0 {
		return c
	}
	if c := better(!a.weak, !b.weak); c != 0 {
		return c
	}
	if c := len(a.Name) - len(b.Name); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(a.Version, b.Version)
}

// underscores counts those that a name begins with; a mangled name's are part
// of the mangling and say nothing.
func underscores(name string) int {
	if isMangled(name) {
		return 0
	}
	return len(name) - len(strings.TrimLeft(name, "_"))
}

// Range is the addresses from Start up to, not including, End, as a file has them: arch.Range is of those
// in the process, see Module.InProcess.
type Range struct{ Start, End uint64 }

// Contains tells whether addr is in the range.
func (r Range) Contains(addr uint64) bool { return r.Start <= addr && addr < r.End }
