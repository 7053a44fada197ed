package source

import (
	"cmp"
	"debug/dwarf"
	"slices"
)

// row is one of a line table: where the code of a line begins.
type row struct {
	addr     uint64
	file     *dwarf.LineFile
	line     int
	column   int
	stmt     bool // a good place to stop
	prologue bool // the compiler says that the function's prologue ends here
	end      bool // of a sequence: nothing begins here
}

// root is a unit's first entry; nil where that cannot be read.
func (f *File) root(u *unit) *dwarf.Entry { return f.first(u.root) }

// linked is the first entry of what the linker saw of a unit, which has its code and lines.
func (f *File) linked(u *unit) *dwarf.Entry {
	if u.skeleton != 0 {
		return f.first(u.skeleton)
	}
	return f.root(u)
}

func (f *File) first(at uint64) *dwarf.Entry {
	r := f.data.Reader()
	r.Seek(dwarf.Offset(at))
	e, err := r.Next()
	if err != nil {
		return nil
	}
	return e
}

// table is a unit's rows.
type table struct {
	rows  []row
	all   []row // by address
	begun []row // the rows at which code of a line begins
}

// rows are a unit's, as they stand there: by address within each sequence.
func (f *File) rows(u *unit) []row { return f.table(u).rows }

// rowsIn are the rows of a range at which code of a line begins, by address.
func (f *File) rowsIn(u *unit, lo, hi uint64) []row {
	rows := f.table(u).begun
	at := func(pc uint64) int {
		i, _ := slices.BinarySearchFunc(rows, pc, func(r row, pc uint64) int { return cmp.Compare(r.addr, pc) })
		return i
	}
	return rows[at(lo):max(at(lo), at(hi))]
}

func (f *File) table(u *unit) table {
	f.mu.Lock()
	t, ok := f.tables.get(u)
	f.mu.Unlock()
	if ok {
		return t
	}
	t.rows = f.readRows(u)
	t.all = byAddress(t.rows)
	t.begun = slices.DeleteFunc(slices.Clone(t.all), func(r row) bool { return r.end || r.line == 0 || r.file == nil })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tables.put(u, t)
	return t
}

func (f *File) readRows(u *unit) []row {
	r := f.lineReader(u)
	if r == nil {
		return nil
	}
	var out []row
	var e dwarf.LineEntry
	for len(out) < 1<<24 && r.Next(&e) == nil {
		out = append(out, row{e.Address, e.File, e.Line, e.Column, e.IsStmt, e.PrologueEnd, e.EndSequence})
	}
	// The linker leaves sequences of code that it has dropped, at 0 or near it.
	kept, start := out[:0], 0
	for i := range out {
		if out[i].end {
			if out[start].addr > dropped {
				kept = append(kept, out[start:i+1]...)
			}
			start = i + 1
		}
	}
	return kept
}

// dropped is up to where an address means that the linker dropped the code: 0 and 1.
const dropped = 1

// unitRange is where a unit's code is.
type unitRange struct {
	lo, hi uint64
	unit   *unit
}

func (f *File) readRanges() []unitRange {
	var out []unitRange
	for u := range f.each() {
		e := f.linked(u)
		if e == nil || e.Tag == dwarf.TagPartialUnit {
			continue
		}
		rs, err := f.data.Ranges(e)
		if err != nil || len(rs) == 0 {
			for _, b := range f.functionsOf(u) {
				out = append(out, unitRange{b.lo, b.hi, u})
			}
			continue
		}
		for _, r := range rs {
			if r[0] > dropped && r[0] < r[1] {
				out = append(out, unitRange{r[0], r[1], u})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b unitRange) int { return cmp.Compare(a.lo, b.lo) })
	return out
}

// unitOf is the unit whose code an address is.
func (f *File) unitOf(pc uint64) *unit {
	rs := f.ranges()
	i, _ := slices.BinarySearchFunc(rs, pc, func(r unitRange, pc uint64) int {
		if r.lo <= pc {
			return -1
		}
		return 1
	})
	for k := i - 1; k >= 0 && k > i-64; k-- { // ranges may overlap, where data is damaged
		if pc < rs[k].hi {
			return rs[k].unit
		}
	}
	return nil
}

// LineOf is the source line of an address; "" where it is not known.
func (f *File) LineOf(pc uint64) (file string, line int) {
	u := f.unitOf(pc)
	if u == nil {
		return "", 0
	}
	rows := f.table(u).all
	i, _ := slices.BinarySearchFunc(rows, pc+1, func(r row, pc uint64) int { return cmp.Compare(r.addr, pc) })
	if i == 0 || rows[i-1].end || rows[i-1].file == nil {
		return "", 0
	}
	return rows[i-1].file.Name, rows[i-1].line
}

// byAddress sorts rows, whose sequences may stand in any order: GCC has that of .text before that of .text.startup, which the
// linker puts in front. At one address what ends comes before what begins.
func byAddress(rows []row) []row {
	order := func(a, b row) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(btoi(b.end), btoi(a.end))) }
	if slices.IsSortedFunc(rows, order) {
		return rows
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, order)
	return rows
}
