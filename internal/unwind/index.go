package unwind

import (
	"cmp"
	"encoding/binary"
	"slices"

	"kprobe/symbol"
)

// Index tells for each stretch of code which table is for it, sorted by address.
type Index []Code

// Code is the mapping of a file's code.
type Code struct {
	Start, End uint64
	Base       uint64 // the base of the table's rows, there
	Table      *Table // nil: its frames are not described
}

// IndexOf is the index of all mapped code. Tables that were not made yet are made, which takes some
// milliseconds for a megabyte of code.
func IndexOf(s *symbol.Space) Index {
	var x Index
	for _, m := range s.Modules() {
		if m.File == nil {
			continue
		}
		t := TableOf(m.File)
		if t == nil {
			continue
		}
		for _, at := range m.Mappings {
			if at.Exec || m.File.TellsOfGoneCode() {
				x = append(x, Code{uint64(at.Start), uint64(at.End), m.Bias + t.Base, t})
			}
		}
	}
	slices.SortFunc(x, func(a, b Code) int { return cmp.Compare(a.Start, b.Start) })
	return x
}

// The index as bytes: how many entries there are, 8 bytes, and the entries.
const (
	IndexHead  = 8
	EntryStart = 0
	EntryEnd   = 8
	EntryBase  = 16
	EntryTable = 24 // address of the table
	EntrySize  = 32
)

// Bytes is the index as code in the target reads it; at is where it has a table.
func (x Index) Bytes(at func(*Table) uint64) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(len(x)))
	for _, c := range x {
		b = le.AppendUint64(b, c.Start)
		b = le.AppendUint64(b, c.End)
		b = le.AppendUint64(b, c.Base)
		b = le.AppendUint64(b, at(c.Table))
	}
	return b
}

// at is the rule for an instruction. known is false where there is no code that is known.
func (x Index) at(pc uint64) (r Rule, known bool) {
	i, found := slices.BinarySearchFunc(x, pc, func(c Code, a uint64) int { return cmp.Compare(c.Start, a) })
	if !found {
		i--
	}
	if i < 0 || pc >= x[i].End {
		return 0, false
	}
	return x[i].Table.at(pc - x[i].Base), true
}
