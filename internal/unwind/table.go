// Package unwind walks stacks of x86-64: from where a thread is to its caller, and on. The tables
// that lead the way are made once of each file, in a form that code in the target could search as
// well (none does yet): a row is 8 bytes, and there is nothing else to follow.
//
//	table.go  rules of a file as bytes
//	index.go  which file is where, as bytes
//	walk.go   the walk, and why it ended
package unwind

import (
	"cmp"
	"encoding/binary"
	"slices"

	"kprobe/symbol"
)

// A table is a header, for each page of its code the number of the first row that is not before it,
// with one more at the end, and the rows. A row holds from its place to the next row's.
const (
	TableRows  = 0 // how many there are; 4 bytes
	TablePages = 4 // 4 bytes
	TableHead  = 8

	RowPC   = 0 // distance from the table's base; 4 bytes
	RowRule = 4 // 4 bytes
	RowSize = 8

	PageShift = 10
)

// Rule is 4 bytes. From the lowest bits on they are: the base of the CFA (symbol.FrameBase) and the
// place of the caller's frame pointer (symbol.SavedFP), 4 bits each; the offset of that place from
// the CFA, in words, a signed byte; and the number that is added for the CFA, in words, but bytes
// in a PLT, 2 signed bytes.
type Rule uint32

const (
	ruleFP    = 4
	ruleFPOff = 8
	ruleOff   = 16
	wordSize  = 8
)

func encode(r symbol.FrameRule) Rule {
	off, fp := r.Off/wordSize, r.FPOff/wordSize
	if r.CFA == symbol.InPLT {
		off = r.Off
	} else if r.Off%wordSize != 0 {
		return Rule(symbol.OtherRule)
	}
	if int64(int16(off)) != off || int64(int8(fp)) != fp || r.FPOff%wordSize != 0 {
		return Rule(symbol.OtherRule)
	}
	return Rule(r.CFA) | Rule(r.FP)<<ruleFP | Rule(uint8(fp))<<ruleFPOff | Rule(uint16(off))<<ruleOff
}

func (r Rule) base() symbol.FrameBase { return symbol.FrameBase(r & 0xf) }
func (r Rule) fp() symbol.SavedFP     { return symbol.SavedFP(r >> ruleFP & 0xf) }
func (r Rule) fpOff() uint64          { return uint64(int64(int8(r>>ruleFPOff)) * wordSize) }
func (r Rule) off() uint64            { return uint64(int64(int16(r>>ruleOff)) * wordSize) }
func (r Rule) plt() uint64            { return uint64(r >> ruleOff) }

// Table is a file's rules.
type Table struct {
	Base  uint64 // in the file: the base of the rows
	Bytes []byte
}

// TableOf makes a file's table, once; nil where the file does not describe its frames. It is for
// all to read.
func TableOf(f *symbol.File) *Table {
	type key struct{}
	return f.Memo(key{}, func() any { return tableOf(f.FrameRows()) }).(*Table)
}

// maxTable bounds the code that a table is for, and so what searches it: 4 GiB.
const maxTable = 1 << 32

func tableOf(rows []symbol.FrameRow) *Table {
	if len(rows) == 0 {
		return nil
	}
	base := rows[0].Addr &^ (1<<PageShift - 1)
	n, _ := slices.BinarySearchFunc(rows, maxTable, func(r symbol.FrameRow, far uint64) int { return cmp.Compare(r.Addr-base, far) })
	rows = rows[:n]
	pages := uint32((rows[n-1].Addr-base)>>PageShift) + 1
	le := binary.LittleEndian
	t := &Table{base, make([]byte, 0, TableHead+4*int(pages+1)+RowSize*n)}
	t.Bytes = le.AppendUint32(t.Bytes, uint32(n))
	t.Bytes = le.AppendUint32(t.Bytes, pages)
	first := 0
	for p := range uint64(pages) + 1 {
		for first < n && rows[first].Addr-base < p<<PageShift {
			first++
		}
		t.Bytes = le.AppendUint32(t.Bytes, uint32(first))
	}
	for _, r := range rows {
		t.Bytes = le.AppendUint32(t.Bytes, uint32(r.Addr-base))
		t.Bytes = le.AppendUint32(t.Bytes, uint32(encode(r.Rule)))
	}
	return t
}

// at is the rule for a distance from the base, found as the code in the target does.
func (t *Table) at(pc uint64) Rule {
	le := binary.LittleEndian
	u32 := func(off uint64) uint64 {
		if off+4 > uint64(len(t.Bytes)) {
			return 0
		}
		return uint64(le.Uint32(t.Bytes[off:]))
	}
	pages := u32(TablePages)
	rows := TableHead + 4*(pages+1)
	page := min(pc>>PageShift, pages)
	lo, hi := u32(TableHead+4*page), u32(TableHead+4*min(page+1, pages))
	for lo < hi { // the first row behind pc
		mid := (lo + hi) / 2
		if u32(rows+RowSize*mid+RowPC) > pc {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return Rule(symbol.NoFrame)
	}
	return Rule(u32(rows + RowSize*(lo-1) + RowRule))
}
