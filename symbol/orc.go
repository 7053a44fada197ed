package symbol

import (
	"cmp"
	"slices"
)

// ORC is a kernel's own table of where callers are (arch/x86/include/asm/orc_types.h). One array
// has, for each stretch of code, its distance from the entry's own place; another has the row, at
// the same index.
const (
	orcPlaces = ".orc_unwind_ip"
	orcRows   = ".orc_unwind"
)

// The sizes of ORC, in bytes.
const (
	ORCPlaceSize = 4 // of a place: its distance from itself
	ORCRowSize   = 6 // of a row: the number added to the base, that of the frame pointer's base, the two bases, and the kind
)

// The bases of ORC that lead further.
const (
	orcUndefined = 0
	orcPrevSP    = 1 // the caller's stack pointer
	orcFP        = 4
	orcSP        = 5
	orcAtFP      = 8 // the word there
	orcAtSP      = 9
)

// orcKinds are the numbers of a kernel's kinds of frames; they have moved in 6.4.
type orcKinds struct{ mask, call, regs, interrupt, last uint8 }

var (
	orcKindsBefore = orcKinds{mask: 3, call: 0, regs: 1, interrupt: 2}
	orcKindsSince  = orcKinds{mask: 7, call: 2, regs: 3, interrupt: 4, last: 1}
)

// orcLast is set where a stack ends, before 6.4 (in 6.3 one bit further).
const orcLast = 1<<2 | 1<<3

// TellsOfGoneCode tells whether FrameRows tells also of code that is not mapped as such any more: a
// kernel gives back what only its start needs, and its first task has been called from there.
func (f *File) TellsOfGoneCode() bool { return f.section(orcRows) != nil }

// readORC reads the table, nil where there is none.
func (f *File) readORC() []FrameRow {
	places, table := f.section(orcPlaces), f.section(orcRows)
	if places == nil || table == nil {
		return nil
	}
	at, err1 := f.sectionData(places)
	b, err2 := f.sectionData(table)
	n := min(len(at)/ORCPlaceSize, len(b)/ORCRowSize)
	if err1 != nil || err2 != nil || n == 0 {
		return nil
	}
	b = b[:n*ORCRowSize]
	kinds := orcKindsOf(b)
	rows := make([]FrameRow, n)
	for i := range rows {
		place := places.Addr + uint64(i*ORCPlaceSize)
		far := int32(f.elf.ByteOrder.Uint32(at[i*ORCPlaceSize:]))
		rows[i] = FrameRow{place + uint64(int64(far)), kinds.rule(b[i*ORCRowSize:])}
	}
	slices.SortStableFunc(rows, func(a, b FrameRow) int { return cmp.Compare(a.Addr, b.Addr) })
	return rows
}

// orcKindsOf tells the age of a table: most of any kernel's code is called.
func orcKindsOf(b []byte) orcKinds {
	before, since := 0, 0
	for i := ORCRowSize - 1; i < len(b); i += ORCRowSize {
		switch b[i] & orcKindsSince.mask {
		case orcKindsBefore.call:
			before++
		case orcKindsSince.call:
			since++
		}
	}
	if since > before {
		return orcKindsSince
	}
	return orcKindsBefore
}

// rule is the rule of one row. Of registers other than the stack and frame pointer none is
// followed.
func (k orcKinds) rule(b []byte) FrameRule {
	off, fpOff := int64(int16(uint16(b[0])|uint16(b[1])<<8)), int64(int16(uint16(b[2])|uint16(b[3])<<8))
	base, fp, kind := b[4]&0xf, b[4]>>4, b[5]&k.mask
	if base == orcUndefined {
		if k.last != 0 && kind == k.last || k.last == 0 && b[5]&orcLast != 0 {
			return FrameRule{CFA: Outermost}
		}
		return FrameRule{CFA: OtherRule}
	}
	r := FrameRule{Off: off}
	switch {
	case kind == k.regs && base == orcSP:
		return FrameRule{CFA: OfRegs, Off: off}
	case kind == k.interrupt && base == orcSP:
		return FrameRule{CFA: OfInterrupt, Off: off}
	case kind != k.call:
		return FrameRule{CFA: OtherRule}
	case base == orcSP:
		r.CFA = FromSP
	case base == orcFP:
		r.CFA = FromFP
	case base == orcAtFP:
		r.CFA = FromPointer
	case base == orcAtSP:
		r.CFA = FromSPPointer
	default:
		return FrameRule{CFA: OtherRule}
	}
	switch {
	case fp == orcUndefined:
	case fp == orcPrevSP:
		r.FP, r.FPOff = InFrame, fpOff
	case fp == orcFP && fpOff == 0:
		r.FP = AtFP
	default:
		r.FP = Lost
	}
	return r
}
