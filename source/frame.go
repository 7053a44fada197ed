package source

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"
)

// frames are the tables that say how to find a function's frame.
type frames struct {
	tables []frame.FrameDescriptionEntries
}

func (f *File) readFrames() frames {
	var out frames
	ptr := 8
	if f.elf.Class == elf.ELFCLASS32 {
		ptr = 4
	}
	parse := func(b []byte, at uint64) {
		if len(b) == 0 {
			return
		}
		defer func() { recover() }() // the parser trusts its input
		es, err := frame.Parse(b, f.elf.ByteOrder, 0, ptr, at)
		if err == nil {
			// They are looked up by halves; a linker puts those of templates' instances after all others.
			slices.SortFunc(es, func(a, b *frame.FrameDescriptionEntry) int { return cmp.Compare(a.Begin(), b.Begin()) })
			out.tables = append(out.tables, es)
		}
	}
	parse(f.sec.frame, 0)
	if s := f.elf.Section(".eh_frame"); s != nil && s.Type != elf.SHT_NOBITS && s.Size <= maxSection {
		if b, err := s.Data(); err == nil {
			parse(b, s.Addr)
		}
	}
	return out
}

var errNoCFA = errors.New("where the frame is there is not known")

// cfa is the canonical frame address at an instruction.
func (f *File) cfa(pc uint64, u *unit) (*Expr, error) {
	return f.byRules(pc, func(ctx *frame.FrameContext) (*Expr, error) { return f.cfaBy(ctx, pc, u) })
}

// byRules finds something by the rules for an instruction.
func (f *File) byRules(pc uint64, find func(*frame.FrameContext) (*Expr, error)) (e *Expr, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser trusts its input
			e, err = nil, fmt.Errorf("%w: %v", errNoCFA, r)
		}
	}()
	ctx := f.rules(pc)
	if ctx == nil {
		return nil, errNoCFA
	}
	return find(ctx)
}

// cfaBy is the canonical frame address by the rules for an instruction.
func (f *File) cfaBy(ctx *frame.FrameContext, pc uint64, u *unit) (*Expr, error) {
	switch ctx.CFA.Rule {
	case frame.RuleCFA:
		return add(&Expr{Op: OpReg, N: ctx.CFA.Reg}, uint64(ctx.CFA.Offset)), nil
	case frame.RuleExpression:
		m := machine{f: f, u: u, pc: pc}
		return m.result(ctx.CFA.Expression)
	}
	return nil, errNoCFA
}

// rules reads the tables for an instruction; nil for nothing. It panics where they are damaged.
func (f *File) rules(pc uint64) *frame.FrameContext {
	for _, t := range f.frames().tables {
		fde, err := t.FDEForPC(pc)
		if err != nil {
			continue
		}
		if ctx, err := fde.EstablishFrame(pc); err == nil && (ctx.CFA.Rule == frame.RuleCFA || ctx.CFA.Rule == frame.RuleExpression) {
			return ctx
		}
	}
	return nil
}

// Saved finds a register of a function's caller, in terms of the registers at an instruction of the function. It is the register
// itself as long as the function has not stored it.
//
// Errors: where the tables do not tell, or the value is lost.
func (f *File) Saved(pc, reg uint64) (*Expr, error) {
	return f.byRules(pc, func(ctx *frame.FrameContext) (*Expr, error) { return f.savedBy(ctx, pc, reg) })
}

// savedBy is Saved by the rules for an instruction.
func (f *File) savedBy(ctx *frame.FrameContext, pc, reg uint64) (*Expr, error) {
	rule, ok := ctx.Regs[reg]
	if !ok {
		return &Expr{Op: OpReg, N: reg}, nil
	}
	u := f.unitOf(pc)
	if u == nil {
		return nil, errNoCFA
	}
	cfa, err := f.cfaBy(ctx, pc, u)
	if err != nil {
		return nil, err
	}
	load := func(at *Expr) *Expr { return &Expr{Op: OpLoad, A: at, Size: u.size} }
	switch rule.Rule {
	case frame.RuleSameVal:
		return &Expr{Op: OpReg, N: reg}, nil
	case frame.RuleRegister:
		return &Expr{Op: OpReg, N: rule.Reg}, nil
	case frame.RuleOffset:
		return load(add(cfa, uint64(rule.Offset))), nil
	case frame.RuleValOffset:
		return add(cfa, uint64(rule.Offset)), nil
	case frame.RuleExpression, frame.RuleValExpression:
		m := machine{f: f, u: u, pc: pc}
		m.push(cfa)
		e, err := m.result(rule.Expression)
		if err == nil && rule.Rule == frame.RuleExpression {
			e = load(e)
		}
		return e, err
	}
	return nil, fmt.Errorf("the caller's register %d is lost", reg)
}

// CFA is the canonical frame address at an instruction: on x86-64 where the caller's stack ends, above the return address.
// Errors: where the tables do not tell.
func (f *File) CFA(pc uint64) (*Expr, error) {
	u := f.unitOf(pc)
	if u == nil {
		return nil, errNoCFA
	}
	return f.cfa(pc, u)
}
