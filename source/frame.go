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
func (f *File) cfa(pc uint64, u *unit) (e *Expr, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser trusts its input
			e, err = nil, fmt.Errorf("%w: %v", errNoCFA, r)
		}
	}()
	for _, t := range f.frames().tables {
		fde, err := t.FDEForPC(pc)
		if err != nil {
			continue
		}
		ctx, err := fde.EstablishFrame(pc)
		if err != nil {
			continue
		}
		switch ctx.CFA.Rule {
		case frame.RuleCFA:
			return add(&Expr{Op: OpReg, N: ctx.CFA.Reg}, uint64(ctx.CFA.Offset)), nil
		case frame.RuleExpression:
			m := machine{f: f, u: u, pc: pc}
			if err := m.run(ctx.CFA.Expression); err != nil {
				return nil, err
			}
			return m.pop()
		}
	}
	return nil, errNoCFA
}
