package kernel

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"kprobe/arch"
	"kprobe/symbol"
)

// Symbol is one line of /proc/kallsyms.
type Symbol struct {
	Name   string
	Addr   arch.Addr
	Size   uint64 // bytes up to the next symbol, as the kernel prints sizes; 0 where nothing bounds it
	Type   byte   // nm's letter: 't' and 'T' are code; capitals are global (a module's: exported)
	Module string // "" for the kernel itself
}

// Code tells whether the symbol names code. The kernel's weak symbols ('w',
// 'W') are functions too.
func (s *Symbol) Code() bool {
	switch s.Type {
	case 't', 'T', 'w', 'W':
		return true
	}
	return false
}

// String is the symbol's line in /proc/kallsyms.
func (s *Symbol) String() string {
	line := fmt.Sprintf("%016x %c %s", uint64(s.Addr), s.Type, s.Name)
	if s.Module != "" {
		line += "\t[" + s.Module + "]"
	}
	return line
}

// Table is a set of symbols: a kernel's own, or one module's. It never changes.
type Table struct {
	syms   []Symbol // by address; aliases keep the kernel's order
	names  []int32  // places in syms, by name
	bounds arch.Range
}

// newTable sorts symbols and gives them sizes. end is where the last one ends,
// 0 where that is not known.
func newTable(syms []Symbol, end arch.Addr) *Table {
	slices.SortStableFunc(syms, func(a, b Symbol) int { return cmp.Compare(a.Addr, b.Addr) })
	t := &Table{syms: syms, names: byName(syms)}
	for i := len(syms) - 1; i >= 0; i-- {
		if end > syms[i].Addr {
			syms[i].Size = uint64(end - syms[i].Addr)
		}
		if i > 0 && syms[i-1].Addr < syms[i].Addr {
			end = syms[i].Addr
		}
	}
	if n := len(syms); n > 0 {
		t.bounds = arch.Range{Start: syms[0].Addr, End: syms[n-1].Addr + arch.Addr(syms[n-1].Size)}
	}
	return t
}

// byName answers the places in syms in order of name. The names themselves lie all over the memory:
// most of them differ in their first eight bytes, which lie side by side here.
func byName(syms []Symbol) []int32 {
	type entry struct {
		head  uint64
		place int32
	}
	entries := make([]entry, len(syms))
	for i := range syms {
		var head [8]byte
		copy(head[:], syms[i].Name)
		entries[i] = entry{binary.BigEndian.Uint64(head[:]), int32(i)}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		return cmp.Or(strings.Compare(syms[a.place].Name, syms[b.place].Name), cmp.Compare(a.place, b.place))
	})
	places := make([]int32, len(entries))
	for i := range entries {
		places[i] = entries[i].place
	}
	return places
}

// kernelTable makes the table of a kernel image. Symbols below its first byte
// are per-CPU offsets and other numbers: they have names, but nothing is at them.
func kernelTable(syms []Symbol) *Table {
	t := newTable(syms, 0)
	last := len(syms) - 1
	for _, name := range []string{"_end", "_etext"} { // the kernel, too, asks for these to end the last symbol
		if end, ok := t.Addr(name); ok && last >= 0 && end > syms[last].Addr {
			t.bounds.End = end
			for i := last; i >= 0 && syms[i].Addr == syms[last].Addr; i-- {
				syms[i].Size = uint64(end - syms[i].Addr)
			}
			break
		}
	}
	first := ^arch.Addr(0)
	for _, name := range []string{"_text", "_stext", "_head"} {
		if a, ok := t.Addr(name); ok {
			first = min(first, a)
		}
	}
	if first != ^arch.Addr(0) {
		t.bounds.Start = first
	}
	return t
}

// PerCPU are the variables that each CPU has of its own, as those of the CPU with a number, whose
// memory is at base (an entry of __per_cpu_offset), and where they lie. Their names end in the
// CPU's: runqueues.cpu0.
func (t *Table) PerCPU(cpu int, base arch.Addr) (*Table, arch.Range, bool) {
	start, ok1 := t.Addr("__per_cpu_start")
	end, ok2 := t.Addr("__per_cpu_end")
	if !ok1 || !ok2 || start >= end {
		return nil, arch.Range{}, false
	}
	first := sort.Search(len(t.syms), func(i int) bool { return t.syms[i].Addr >= start })
	last := sort.Search(len(t.syms), func(i int) bool { return t.syms[i].Addr >= end })
	syms := slices.Clone(t.syms[first:last])
	for i := range syms {
		syms[i].Addr += base
		syms[i].Type = 'd'
		syms[i].Name += ".cpu" + strconv.Itoa(cpu)
	}
	return newTable(syms, end+base), arch.Range{Start: start + base, End: end + base}, true
}

// Symbols are all symbols in order of address, aliases in the kernel's own
// order. The slice is shared: do not modify it.
func (t *Table) Symbols() []Symbol { return t.syms }

// Bounds is the range that At knows: from the first byte of the image to the last.
func (t *Table) Bounds() arch.Range { return t.bounds }

// Lookup finds the symbols of a name. There may be several: static functions
// of different source files.
func (t *Table) Lookup(name string) []Symbol {
	var out []Symbol
	for _, i := range t.from(name) {
		if t.syms[i].Name != name {
			break
		}
		out = append(out, t.syms[i])
	}
	return out
}

// Addr is the address of the first symbol of a name.
func (t *Table) Addr(name string) (arch.Addr, bool) {
	if at := t.from(name); len(at) > 0 && t.syms[at[0]].Name == name {
		return t.syms[at[0]].Addr, true
	}
	return 0, false
}

// from is the part of names that begins with the first name not below prefix.
func (t *Table) from(prefix string) []int32 {
	return t.names[sort.Search(len(t.names), func(i int) bool { return t.syms[t.names[i]].Name >= prefix }):]
}

// At finds the symbol that an address lies in, and how far. Of aliases it is
// the one that the kernel would name.
func (t *Table) At(addr arch.Addr) (Symbol, uint64, bool) {
	if !t.bounds.Contains(addr) {
		return Symbol{}, 0, false
	}
	i := sort.Search(len(t.syms), func(i int) bool { return t.syms[i].Addr > addr }) - 1
	if i < 0 {
		return Symbol{}, 0, false
	}
	for i > 0 && t.syms[i-1].Addr == t.syms[i].Addr {
		i--
	}
	s := t.syms[i]
	off := uint64(addr - s.Addr)
	return s, off, off < s.Size
}

// Match finds the code symbols whose names a glob matches (symbol.Glob), in
// order of name.
func (t *Table) Match(glob string) []Symbol {
	prefix := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		prefix = glob[:i]
	}
	var out []Symbol
	for _, i := range t.from(prefix) {
		s := &t.syms[i]
		if !strings.HasPrefix(s.Name, prefix) {
			break
		}
		if s.Code() && symbol.Glob(glob, s.Name) {
			out = append(out, *s)
		}
	}
	return out
}

// WriteTo prints the table as /proc/kallsyms has it.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	b := bufio.NewWriter(w)
	var n int64
	for i := range t.syms {
		m, _ := fmt.Fprintln(b, t.syms[i].String())
		n += int64(m)
	}
	return n, b.Flush()
}
