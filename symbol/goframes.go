package symbol

import (
	"slices"
)

// Go's table of functions has for each, by instruction, how deep its stack is: the runtime walks by
// it, and so do we. It is there in stripped programs as well.

// Of the table's header and of a function's entry, since Go 1.18: offsets in words, then in bytes.
const (
	pclnNFunc    = 0 // words behind the first 8 bytes
	pclnPCTab    = 6
	pclnFuncs    = 7
	goFuncPCSP   = 16 // a number of 4 bytes: offset into the table of pairs
	goFuncID     = 40 // a byte; asm functions are told by it and by their flags
	goFuncFlag   = 41
	goFlagTop    = 1 // no caller
	goFlagSP     = 2 // it changes stacks
	pclnMagic120 = 0xfffffff1
	pclnMagic118 = 0xfffffff0
)

// goRows are the rules of Go's functions; none of programs of before Go 1.18.
func (f *File) goRows() (rows []FrameRow) {
	if !f.IsGo() || !f.on().frames {
		return nil
	}
	data, addr := f.pclntabBytes()
	word := func(i int) uint64 {
		if 16+8*i > len(data) {
			return 0
		}
		return f.word(data[8+8*i:])
	}
	if len(data) < 8 || !slices.Contains([]uint32{pclnMagic120, pclnMagic118}, f.elf.ByteOrder.Uint32(data)) {
		return nil
	}
	text := f.goTextStart(addr)
	n, pctab, funcs := word(pclnNFunc), word(pclnPCTab), word(pclnFuncs)
	u32 := func(at uint64) (uint32, bool) {
		if at > uint64(len(data)) || uint64(len(data))-at < 4 {
			return 0, false
		}
		return f.elf.ByteOrder.Uint32(data[at:]), true
	}
	for i := range min(n, uint64(len(data)/8)) {
		entry, ok1 := u32(funcs + 8*i)
		at, ok2 := u32(funcs + 8*i + 4)
		end, ok3 := u32(funcs + 8*(i+1))
		pcsp, ok4 := u32(funcs + uint64(at) + goFuncPCSP)
		flags, ok5 := u32(funcs + uint64(at) + goFuncID)
		start := text + uint64(entry)
		if _, ok := f.textAt(start); !ok || !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || end <= entry {
			continue
		}
		limit := text + uint64(end)
		switch flag := flags >> (8 * (goFuncFlag - goFuncID)); {
		case flag&goFlagTop != 0:
			rows = append(rows, FrameRow{start, FrameRule{CFA: Outermost}})
		case flag&goFlagSP != 0:
			rows = append(rows, FrameRow{start, FrameRule{CFA: FromSP, Off: 8}}, FrameRow{start + 1, FrameRule{CFA: OtherRule}})
		case pcsp != 0 && pctab+uint64(pcsp) < uint64(len(data)):
			rows = goDepths(rows, &cursor{f: f, b: data[pctab+uint64(pcsp):]}, start, limit)
		default:
			rows = append(rows, FrameRow{Addr: start})
		}
		rows = append(rows, FrameRow{Addr: limit})
	}
	return sortRows(rows)
}

// goDepths appends a function's rows. They are read from pairs of numbers: by how much the stack gets deeper, in zigzag encoding, and for
// how many bytes of code that holds.
func goDepths(rows []FrameRow, c *cursor, pc, end uint64) []FrameRow {
	depth := int64(-1)
	for first := true; pc < end; first = false {
		v := c.leb(false)
		if v == 0 && !first || c.bad {
			break
		}
		depth += int64(v>>1) ^ -int64(v&1)
		r := FrameRule{CFA: FromSP, Off: depth + 8}
		if depth >= 8 { // Go keeps frame pointers
			r.FP, r.FPOff = InFrame, -16
		}
		if depth < 0 {
			r = FrameRule{CFA: OtherRule}
		}
		rows = append(rows, FrameRow{pc, r})
		pc += c.leb(false)
	}
	return rows
}
