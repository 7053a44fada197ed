package symbol

// Go's table of functions has for each, by instruction, how deep its stack is: the runtime walks by
// it, and so do we. It is there in stripped programs as well.

// goRows are the rules of Go's functions; none of programs of before Go 1.18.
func (f *File) goRows() (rows []FrameRow) {
	t := f.goTable()
	if t == nil || !f.on().frames || f.ptr != 8 {
		return nil
	}
	for i := range t.n {
		fn, ok := t.function(i)
		if !ok {
			continue
		}
		switch pcsp := uint64(fn.pcsp); {
		case fn.flags&goFlagTop != 0:
			rows = append(rows, FrameRow{fn.start, FrameRule{CFA: Outermost}})
		case fn.flags&goFlagSP != 0:
			rows = append(rows, FrameRow{fn.start, FrameRule{CFA: FromSP, Off: 8}}, FrameRow{fn.start + 1, FrameRule{CFA: OtherRule}})
		case pcsp != 0 && t.pctab+pcsp < uint64(len(t.data)):
			rows = goDepths(rows, &cursor{f: f, b: t.data[t.pctab+pcsp:]}, fn.start, fn.end)
		default:
			rows = append(rows, FrameRow{Addr: fn.start})
		}
		rows = append(rows, FrameRow{Addr: fn.end})
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
