package arch

import "fmt"

// Range is the addresses of a target from Start up to, not including, End. (symbol.Range is of a
// file, whose addresses are not yet where it will be loaded: the compiler keeps the two apart.)
type Range struct{ Start, End Addr }

// Size is how many bytes it has.
func (r Range) Size() uint64 { return uint64(r.End - r.Start) }

// Contains tells whether an address is in the range.
func (r Range) Contains(a Addr) bool { return r.Start <= a && a < r.End }

// Blocked is a range that must not be probed, with the symbol that the range is known by and the
// reason.
type Blocked struct {
	Start, End Addr   // End is not included
	Symbol     string // of a kernel as the kernel names Start: of a module with " [module]" behind it
	Reason     string
}

// Contains tells whether an address is in the range.
func (b Blocked) Contains(a Addr) bool { return b.Start <= a && a < b.End }

// String is the line in debugfs's kprobes/blacklist: 0xSTART-0xEND, a tab, the symbol.
func (b Blocked) String() string {
	return fmt.Sprintf("0x%016x-0x%016x\t%s", uint64(b.Start), uint64(b.End), b.Symbol)
}

// Reader is memory that can be read. ReadAt fills p, whole or with an error.
type Reader interface {
	ReadAt(addr Addr, p []byte) error
}

// Memory is memory that can be read and written, whole or with an error.
type Memory interface {
	Reader
	WriteAt(addr Addr, p []byte) error
}
