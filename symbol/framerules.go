package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"
)

// Tables that find a function's caller at each instruction: the call frame instructions of
// .eh_frame and .debug_frame (DWARF 5, section 6.4), Go's own table of stack depths, or a kernel's
// (orc.go). Of all registers only those are followed that lead further: the stack pointer, the
// frame pointer and the return address.

// FrameRule tells where a function's caller is at one of its instructions, on x86-64. The canonical
// frame address (CFA) is the caller's stack pointer behind the return; the return address is below
// it.
type FrameRule struct {
	CFA FrameBase
	Off int64 // of CFA: bytes

	FP    SavedFP
	FPOff int64 // InFrame: from the CFA, bytes
}

// FrameBase is the register, or the place, that a frame's address counts from.
type FrameBase uint8

const (
	NoFrame     FrameBase = iota // no table describes this code
	Outermost                    // there is no caller
	FromSP                       // the stack pointer + Off
	FromFP                       // the frame pointer + Off
	FromPointer                  // the word at the frame pointer + Off: a stack that was aligned anew
	InPLT                        // the stack pointer + 8, and 8 more from byte Off of the 16 of its entry on
	OfSignal                     // a signal's frame is at the stack pointer: the registers are in it
	OtherRule                    // the rule uses registers that are not followed, or the code changes stacks
	LikelyFP                     // the frame pointer + Off, if the code keeps one: no table says so

	// Of kernels.
	FromSPPointer // the word at the stack pointer, + Off: it leads to another stack
	OfRegs        // all registers of the interrupted code are at the stack pointer + Off, a struct pt_regs
	OfInterrupt   // words that a processor stores are there: where it was interrupted, and the stack
)

// SavedFP is the place of the caller's frame pointer.
type SavedFP uint8

const (
	Kept    SavedFP = iota // in its register
	InFrame                // at the CFA + FPOff
	AtFP                   // at the frame pointer
	Lost                   // not known
)

// FrameRow is a rule for the instructions from an address, in the file, to the next row.
type FrameRow struct {
	Addr uint64
	Rule FrameRule
}

// FrameRows are the rules for all code, sorted by address, of files for x86-64; none for others.
// Between functions that have rules there are rows without a frame. They are made anew at each
// call.
func (f *File) FrameRows() []FrameRow {
	if rows := f.readORC(); rows != nil { // a kernel's
		return slices.CompactFunc(rows, func(a, b FrameRow) bool { return a.Rule == b.Rule })
	}
	if !f.on().frames || f.ptr != 8 {
		return nil
	}
	rows := f.goRows()
	rows = merge(rows, f.readFrames())
	if fr := f.readDebugFrames(); len(fr.fdes) > 0 {
		rows = merge(rows, fr)
	}
	rows = f.likelyRows(rows)
	return slices.CompactFunc(rows, func(a, b FrameRow) bool { return a.Rule == b.Rule })
}

// Functions that set a frame pointer up begin so.
var (
	landingPad = []byte{0xf3, 0x0f, 0x1e, 0xfa} // endbr64
	pushFP     = []byte{0x55}
	moveFP     = []byte{0x48, 0x89, 0xe5}
)

// Code that a signal's handler returns to: mov $SYS_rt_sigreturn, %eax or %rax; syscall.
var restorers = [][]byte{
	{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05},
	{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},
}

// ReturnsFromSignal tells of x86-64 code whether it ends a signal's handler.
func (f *File) ReturnsFromSignal(vaddr uint64) bool {
	return slices.ContainsFunc(restorers, func(code []byte) bool {
		b, err := f.readVaddr(vaddr, uint64(len(code)))
		return err == nil && bytes.Equal(b, code)
	})
}

// restorerRows are the rows of such code in a stretch of text that no table describes.
func (f *File) restorerRows(text Range, told func(uint64) FrameBase) (rows []FrameRow) {
	b, err := f.readVaddr(text.Start, text.End-text.Start)
	if err != nil {
		return nil
	}
	for _, code := range restorers {
		for at := 0; ; at += len(code) {
			i := bytes.Index(b[at:], code)
			if i < 0 {
				break
			}
			at += i
			if addr := text.Start + uint64(at); told(addr) == NoFrame || told(addr) == LikelyFP {
				rows = append(rows, FrameRow{addr, FrameRule{CFA: OfSignal}}, FrameRow{addr + uint64(len(code)), FrameRule{CFA: LikelyFP, Off: 16, FP: InFrame, FPOff: -16}})
			}
		}
	}
	return rows
}

// likelyRows gives likely rows for code that no table describes: at a function's first instruction
// the return address is on top of the stack, and behind its beginning a frame pointer leads to it.
func (f *File) likelyRows(rows []FrameRow) []FrameRow {
	likely := FrameRule{CFA: LikelyFP, Off: 16, FP: InFrame, FPOff: -16}
	for i := range rows {
		if _, ok := f.textAt(rows[i].Addr); ok && rows[i].Rule.CFA == NoFrame {
			rows[i].Rule = likely
		}
	}
	told := rows
	ruleAt := func(addr uint64) FrameBase {
		i, found := slices.BinarySearchFunc(told, addr, func(r FrameRow, a uint64) int { return cmp.Compare(r.Addr, a) })
		if !found {
			i--
		}
		if i < 0 {
			return NoFrame
		}
		return told[i].Rule.CFA
	}
	var more []FrameRow
	for _, t := range f.text {
		if ruleAt(t.Start) == NoFrame {
			more = append(more, FrameRow{t.Start, likely})
		}
	}
	for _, s := range f.Funcs() {
		if at := ruleAt(s.Addr); s.Kind != Func || at != NoFrame && at != LikelyFP {
			continue
		}
		b, err := f.readVaddr(s.Addr, min(max(s.Size, 1), uint64(len(landingPad)+len(pushFP)+len(moveFP))))
		if err != nil {
			continue
		}
		at := s.Addr
		more = append(more, FrameRow{at, FrameRule{CFA: FromSP, Off: 8}})
		if rest, ok := bytes.CutPrefix(b, landingPad); ok {
			at, b = at+uint64(len(landingPad)), rest
		}
		if rest, ok := bytes.CutPrefix(b, pushFP); ok && bytes.HasPrefix(rest, moveFP) {
			at++
			more = append(more, FrameRow{at, FrameRule{CFA: FromSP, Off: 16, FP: InFrame, FPOff: -16}})
			at += uint64(len(moveFP))
		} else {
			at++
		}
		more = append(more, FrameRow{at, likely})
	}
	// Static programs have stubs, too, of their IFUNCs, and no table tells of them. Up to the
	// jump's end a stub has pushed nothing.
	for _, s := range f.stubs() {
		if at := ruleAt(s.addr); at == NoFrame || at == LikelyFP {
			more = append(more, FrameRow{s.addr, FrameRule{CFA: FromSP, Off: 8}}, FrameRow{s.addr + uint64(s.jump), likely})
		}
	}
	for _, t := range f.text { // behind the functions' rows, of which they may be
		more = append(more, f.restorerRows(t, ruleAt)...)
	}
	return sortRows(append(rows, more...))
}

// sortRows sorts rows; of several for one address the one that says most stays, the later of two.
func sortRows(rows []FrameRow) []FrameRow {
	says := func(r FrameRow) int {
		switch r.Rule.CFA {
		case NoFrame:
			return 0
		case LikelyFP:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(rows, func(a, b FrameRow) int {
		return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(says(a), says(b)))
	})
	last := rows[:0]
	for i, r := range rows {
		if i+1 == len(rows) || rows[i+1].Addr != r.Addr {
			last = append(last, r)
		}
	}
	return last
}

// readDebugFrames reads .debug_frame, of the file or of its separate debug file.
func (f *File) readDebugFrames() *frames {
	for _, from := range []func() *File{func() *File { return f }, f.openDebug} {
		g := from()
		if g == nil {
			continue
		}
		if s := g.section(".debug_frame"); s != nil && s.Type != elf.SHT_NOBITS && s.Size > 0 && s.Size < maxRead {
			if b, err := s.Data(); err == nil {
				fr := (&cursor{f: f, b: b, debug: true}).entries(true)
				// Entries that the linker has thrown away stay, at address 0.
				fr.fdes = slices.DeleteFunc(fr.fdes, func(e fde) bool { _, ok := f.textAt(e.start); return !ok })
				return fr
			}
		}
	}
	return &frames{}
}

// merge adds the rules of functions that have none yet.
func merge(rows []FrameRow, fr *frames) []FrameRow {
	out := make([]FrameRow, 0, len(rows)+4*len(fr.fdes))
	covered := func(addr uint64) bool {
		i, found := slices.BinarySearchFunc(rows, addr, func(r FrameRow, a uint64) int { return cmp.Compare(r.Addr, a) })
		if !found {
			i--
		}
		return i >= 0 && rows[i].Rule.CFA != NoFrame
	}
	var end uint64
	for _, e := range fr.fdes {
		if e.start < end || covered(e.start) {
			continue
		}
		end = e.end
		out = e.rows(out)
		out = append(out, FrameRow{Addr: end})
	}
	return sortRows(append(out, rows...))
}

// DWARF's numbers of the registers.
const (
	dwarfFP     = 6
	dwarfSP     = 7
	returnBelow = -8 // where the return address is, from the CFA
)

// frameState is the state that a function's instructions have led to.
type frameState struct {
	reg  uint64
	off  int64
	expr []byte // instead of both

	fp, ra registerRule
}

// registerRule is the place of a register of the caller.
type registerRule struct {
	how  registerHow
	off  int64
	expr []byte
}

type registerHow uint8

const (
	unchanged registerHow = iota
	unset
	atOffset
	atExpr
	elsewhere
)

// rows appends those of one function.
func (e *fde) rows(rows []FrameRow) []FrameRow {
	m := ruleMachine{fde: e, loc: e.start}
	if !m.run(e.cie.rules) {
		return append(rows, FrameRow{e.start, FrameRule{CFA: OtherRule}})
	}
	m.begin = m.frameState
	m.row = func(s *frameState) {
		if m.loc < e.end {
			rows = append(rows, FrameRow{m.loc, s.rule()})
		}
	}
	if !m.run(e.rules) {
		return append(rows, FrameRow{min(m.loc, e.end-1), FrameRule{CFA: OtherRule}})
	}
	m.row(&m.frameState)
	return rows
}

// ruleMachine executes call frame instructions.
type ruleMachine struct {
	*fde
	frameState
	loc   uint64
	begin frameState
	stack []frameState
	row   func(*frameState) // gets the state from loc on
}

// ruleUndefined has a register's value in the caller be lost: the return address's, where there is
// no caller.
const ruleUndefined = 0x07

// beginsUncalled tells whether a function has no return address at its first instruction.
func (e *fde) beginsUncalled() bool {
	says := []byte{ruleUndefined, byte(e.cie.returns)} // of all machines' numbers none is longer
	if !bytes.Contains(e.rules, says) && !bytes.Contains(e.cie.rules, says) {
		return false // nearly all: the rules of these need not be followed
	}
	m := ruleMachine{fde: e, loc: e.start}
	if !m.run(e.cie.rules) {
		return false
	}
	m.begin = m.frameState
	uncalled, told := false, false
	m.row = func(s *frameState) {
		if !told {
			uncalled, told = s.ra.how == unset, true
		}
	}
	if !m.run(e.rules) && !told {
		return false
	}
	m.row(&m.frameState)
	return uncalled
}

// maxRemembered bounds the stack of states.
const maxRemembered = 64

func (m *ruleMachine) run(rules []byte) (ok bool) {
	c := &cursor{b: rules}
	factored := func() int64 { return int64(c.leb(true)) * m.cie.dataAlign }
	unsigned := func() int64 { return int64(c.leb(false)) * m.cie.dataAlign }
	expr := func() []byte { return c.take(c.leb(false)) }
	advance := func(n uint64) {
		if m.row != nil {
			m.row(&m.frameState)
		}
		m.loc += n * m.cie.codeAlign
	}
	for c.pos < uint64(len(c.b)) && !c.bad {
		op := c.u8()
		low := uint64(op & 0x3f)
		switch op & 0xc0 {
		case 0x40:
			advance(low)
			continue
		case 0x80:
			m.set(low, registerRule{how: atOffset, off: unsigned()})
			continue
		case 0xc0:
			m.restore(low)
			continue
		}
		switch op {
		case 0x00: // nop
		case 0x01: // set_loc: of no compiler for this machine
			return false
		case 0x02:
			advance(uint64(c.u8()))
		case 0x03:
			b := c.take(2)
			advance(uint64(b[0]) | uint64(b[1])<<8)
		case 0x04:
			b := c.take(4)
			advance(uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24)
		case 0x05: // offset_extended
			m.set(c.leb(false), registerRule{how: atOffset, off: unsigned()})
		case 0x06:
			m.restore(c.leb(false))
		case ruleUndefined:
			m.set(c.leb(false), registerRule{how: unset})
		case 0x08: // same_value
			m.set(c.leb(false), registerRule{})
		case 0x09: // register
			r := c.leb(false)
			c.leb(false)
			m.set(r, registerRule{how: elsewhere})
		case 0x0a:
			if len(m.stack) == maxRemembered {
				return false
			}
			m.stack = append(m.stack, m.frameState)
		case 0x0b:
			if len(m.stack) == 0 {
				return false
			}
			m.frameState, m.stack = m.stack[len(m.stack)-1], m.stack[:len(m.stack)-1]
		case 0x0c: // def_cfa
			m.reg, m.off, m.expr = c.leb(false), int64(c.leb(false)), nil
		case 0x0d:
			m.reg, m.expr = c.leb(false), nil
		case 0x0e:
			m.off = int64(c.leb(false))
		case 0x0f:
			m.expr = expr()
		case 0x10: // expression
			r := c.leb(false)
			m.set(r, registerRule{how: atExpr, expr: expr()})
		case 0x11: // offset_extended_sf
			m.set(c.leb(false), registerRule{how: atOffset, off: factored()})
		case 0x12: // def_cfa_sf
			m.reg, m.off, m.expr = c.leb(false), factored(), nil
		case 0x13:
			m.off = factored()
		case 0x14, 0x15: // val_offset: the value itself
			r := c.leb(false)
			c.leb(false)
			m.set(r, registerRule{how: elsewhere})
		case 0x16: // val_expression
			r := c.leb(false)
			expr()
			m.set(r, registerRule{how: elsewhere})
		case 0x2e: // GNU_args_size
			c.leb(false)
		default:
			return false
		}
	}
	return !c.bad
}

func (m *ruleMachine) set(reg uint64, r registerRule) {
	switch reg {
	case dwarfFP:
		m.fp = r
	case m.cie.returns:
		m.ra = r
	}
}

func (m *ruleMachine) restore(reg uint64) {
	switch reg {
	case dwarfFP:
		m.fp = m.begin.fp
	case m.cie.returns:
		m.ra = m.begin.ra
	}
}

// Expressions that compilers and libraries write, in DWARF's bytes. (rsp and rbp are breg7, breg6.)
var (
	pltBegin   = []byte{0x77, 0x08, 0x80, 0x00} // rsp+8, rip+0,
	pltMiddle  = []byte{0x3f, 0x1a}             // 15, and, a literal,
	pltEnd     = []byte{0x2a, 0x33, 0x24, 0x22} // ge, 3, shl, plus
	signalCFA  = []byte{0x77, 0xa0, 0x01, 0x06} // the word at rsp+160: rsp of the registers
	pointerFP  = byte(0x76)                     // rbp+,
	deref      = byte(0x06)
	atFP       = []byte{0x76, 0x00}
	litZero    = byte(0x30)
	pltPattern = len(pltBegin) + len(pltMiddle) + 1 + len(pltEnd)
)

// rule is the state in brief; no frame where it cannot be said so.
func (s *frameState) rule() (r FrameRule) {
	switch {
	case s.ra.how == unset:
		return FrameRule{CFA: Outermost}
	case bytes.Equal(s.expr, signalCFA):
		return FrameRule{CFA: OfSignal}
	case s.ra.how != atOffset || s.ra.off != returnBelow:
		return FrameRule{CFA: OtherRule}
	case len(s.expr) == pltPattern && bytes.HasPrefix(s.expr, pltBegin) && bytes.HasSuffix(s.expr, pltEnd) && bytes.Equal(s.expr[4:6], pltMiddle):
		r.CFA, r.Off = InPLT, int64(s.expr[6]-litZero)
	case len(s.expr) > 2 && s.expr[0] == pointerFP && s.expr[len(s.expr)-1] == deref:
		c := &cursor{b: s.expr[1 : len(s.expr)-1]}
		r.CFA, r.Off = FromPointer, int64(c.leb(true))
		if c.bad || c.pos != uint64(len(c.b)) {
			return FrameRule{CFA: OtherRule}
		}
	case s.expr != nil:
		return FrameRule{CFA: OtherRule}
	case s.reg == dwarfSP:
		r.CFA, r.Off = FromSP, s.off
	case s.reg == dwarfFP:
		r.CFA, r.Off = FromFP, s.off
	default:
		return FrameRule{CFA: OtherRule}
	}
	switch {
	case s.fp.how == unchanged:
	case s.fp.how == atOffset && r.CFA == FromSP && s.fp.off < -r.Off: // below the stack: it has been popped
	case s.fp.how == atOffset:
		r.FP, r.FPOff = InFrame, s.fp.off
	case s.fp.how == atExpr && bytes.Equal(s.fp.expr, atFP):
		r.FP = AtFP
	default:
		r.FP = Lost
	}
	return r
}
