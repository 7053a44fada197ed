package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
)

// result is what the function returns, at its return.
func (b *binder) result() (value, error) {
	v, err := b.resultIn()
	if err == nil {
		err = b.site.kept(v)
	}
	return v, err
}

// resultIn finds the place of the result.
func (b *binder) resultIn() (value, error) {
	if b.sp.Kind != spec.Return {
		return value{}, errors.New("$retval is known at a return only")
	}
	t := b.site.Data.ResultType(b.site.At)
	if t == nil {
		return value{}, errors.New("the function returns nothing")
	}
	ret := &spec.Fetch{Op: spec.Retval}
	switch {
	case b.site.Data.Changed(b.site.At), strings.Contains(b.site.Func, ".isra."): // GCC's word for it is in the name
		return value{}, errors.New("the compiler has changed the function's parameters or its result")
	case b.site.Data.Go(b.site.At):
		return value{}, errors.New("where Go's functions return values is not described: use registers")
	case b.site.psABI():
		return b.resultC(t, ret)
	case b.site.Arch.Debug.Eightbytes && b.site.Data.Rust(b.site.At):
		return b.resultRust(t, ret)
	case isAggregate(t) && !b.site.Data.C(b.site.At):
		return value{}, fmt.Errorf("how a %s is returned by a function that is not of C is not known", typeName(t))
	case isAggregate(t):
		return value{}, fmt.Errorf("how a %s is returned on %s is not known", typeName(t), b.site.Arch.Name)
	case hasFloat(t):
		return value{}, errors.New("it is returned in a floating-point register, which is not read")
	case t.Size() > int64(b.site.Arch.PtrSize):
		return value{}, fmt.Errorf("a %s is returned in two registers, which are not put together", typeName(t))
	}
	return value{typ: t, val: ret}, nil
}

// resultC is what a function of C or C++ returns on x86-64.
func (b *binder) resultC(t dwarf.Type, ret *spec.Fetch) (value, error) {
	if onStack87(t) {
		return value{}, errInFloating
	}
	if b.site.byAddress(t) { // in memory, and its address in the register
		return value{typ: t, addr: ret}, nil
	}
	cs, err := b.site.classes(t)
	switch {
	case err != nil:
		return value{}, fmt.Errorf("how a %s is returned is not known", typeName(t))
	case slices.Contains(cs, memory):
		return value{typ: t, addr: ret}, nil
	case slices.Equal(cs, []class{integer}):
		return value{typ: t, val: ret}, nil
	case !slices.ContainsFunc(cs, func(c class) bool { return c != none }):
		return value{typ: t, val: &spec.Fetch{Op: spec.Imm}}, nil
	case slices.Contains(cs, x87):
		return value{}, errInFloating
	}
	return b.site.inWords(t, inRegisters(cs, []arch.Reg{b.site.Arch.Ret, arch.DX}, 0))
}

func isAggregate(t dwarf.Type) bool {
	switch source.Plain(t).(type) {
	case *dwarf.StructType, *dwarf.ArrayType:
		return true
	}
	return false
}

// hasFloat tells whether floating-point numbers are part of a type.
func hasFloat(t dwarf.Type) bool {
	switch u := source.Plain(t).(type) {
	case *dwarf.FloatType, *dwarf.ComplexType:
		return true
	case *dwarf.ArrayType:
		return hasFloat(u.Type)
	case *dwarf.StructType:
		for _, f := range u.Field {
			if hasFloat(f.Type) {
				return true
			}
		}
	}
	return false
}

// Parameter is one of a function's, as it is passed.
type Parameter struct {
	Name string
	Type dwarf.Type // nil where that is not known
	Reg  arch.Reg   // where it is when the function is called; NoReg
	Regs []arch.Reg // where all its words are, if it is a structure or array in registers
	Pos  int64      // where not: its place in memory, behind the stack pointer
	Err  error      // why neither is known

	at place // by the rules of the convention; of what is only in part in registers that are read, too
}

// Parameters are those of the function that a site is in: each in the register that debug data names for the
// entry or, in code that is not optimized, by the rules of the C ABI.
func (s *Site) Parameters() (out []Parameter) {
	a := &allotment{site: s, psABI: s.psABI()}
	all := s.Data.Variables(s.At)
	switch ret := s.Data.ResultType(s.At); {
	case s.Data.Go(s.At):
		a.lose(errUnknown)
	case !s.Unoptimized || slices.ContainsFunc(all, func(v *source.Variable) bool { return v.Param && !v.Fixed() }):
		a.lose(errUnknown) // the optimizer may have left out unused parameters
	case ret == nil:
	case !a.psABI && isAggregate(ret):
		a.lose(errUnknown)
	case a.psABI && s.hidden(ret):
		a.ints = 1
	}
	known := a.lost == nil
	for _, v := range all {
		if !v.Param || v.Out {
			break
		}
		p := Parameter{Name: v.Name, Type: v.Type, Reg: arch.NoReg}
		at, err := a.next(v.Type)
		if !known || err != nil {
			p.located(s, v)
		} else {
			p.placed(at)
		}
		out = append(out, p)
	}
	return out
}

// hidden tells whether a function that returns a type is told where to put it, before all its arguments.
func (s *Site) hidden(t dwarf.Type) bool {
	cs, err := s.classes(t)
	return s.byAddress(t) || err == nil && slices.Contains(cs, memory) && !onStack87(t)
}

// placed is a parameter where the convention has put it.
func (p *Parameter) placed(at place) {
	p.at = at
	switch {
	case at.address:
		p.Err = fmt.Errorf("%s is passed by its address", p.Name)
	case at.nothing:
		p.Err = fmt.Errorf("%s has nothing that is passed", p.Name)
	case at.stacked:
		p.Pos = at.at
	case slices.Contains(at.regs, arch.NoReg):
		p.Err = fmt.Errorf("%s is passed in a register for floating-point numbers, which is not read", p.Name)
	case len(at.regs) == 1 && isAggregate(p.Type):
		p.Reg, p.Regs = at.regs[0], at.regs
	case len(at.regs) == 1:
		p.Reg = at.regs[0]
	default:
		p.Regs = at.regs
	}
}

// located is a parameter where debug data says that it is at the function's first instruction.
func (p *Parameter) located(s *Site, v *source.Variable) {
	l, err := v.Where()
	if err != nil || v.Fixed() && s.Unoptimized && v.AwaitsPrologue() {
		l = source.Location{}
	}
	if reg, ok := s.passedIn(l); ok && !(v.Fixed() && s.Unoptimized) { // a register of the function's own
		p.Reg = reg
		if isAggregate(v.Type) && v.Type.Size() <= int64(s.Arch.PtrSize) {
			p.Regs = []arch.Reg{reg}
		}
	} else if regs := s.passedInPieces(l, v.Type); regs != nil {
		p.Regs = regs
	} else if pos, ok := s.passedAt(l); ok && !v.AwaitsPrologue() {
		p.Pos = pos
	} else {
		p.Err = fmt.Errorf("%s is not in a register when the function is called", v.Name)
	}
}

// passedIn is the register that a parameter's location at the function's entry names.
func (s *Site) passedIn(l source.Location) (arch.Reg, bool) {
	if l.Value == nil || l.Value.Op != source.OpReg {
		return arch.NoReg, false
	}
	f, err := s.register(l.Value.N, 0)
	if err != nil || f.Op != spec.Reg {
		return arch.NoReg, false
	}
	return s.Arch.RegByName(f.Name)
}

// passedInPieces are the registers that a parameter's location names, one for each of its words; nil where that is not
// how it lies.
func (s *Site) passedInPieces(l source.Location, t dwarf.Type) []arch.Reg {
	size := uint64(s.Arch.PtrSize)
	if len(l.Pieces) == 0 || t == nil || (uint64(t.Size())+size-1)/size != uint64(len(l.Pieces)) {
		return nil
	}
	var all []arch.Reg
	for i, piece := range l.Pieces {
		reg, ok := s.passedIn(piece.Location)
		if !ok || piece.Bits != 8*size && i < len(l.Pieces)-1 {
			return nil
		}
		all = append(all, reg)
	}
	return all
}

// passedAt is how far behind the stack pointer a parameter is that the caller has put there: not before the return
// address, where the function itself keeps what it was passed.
func (s *Site) passedAt(l source.Location) (int64, bool) {
	e := l.Memory
	if !s.Arch.RetAddrOnStack || e == nil || e.Op != source.OpAdd || e.A.Op != source.OpReg || e.B.Op != source.OpConst {
		return 0, false
	}
	f, err := s.register(e.A.N, 0)
	if err != nil || f.Op != spec.Reg {
		return 0, false
	}
	reg, _ := s.Arch.RegByName(f.Name)
	return int64(e.B.N), reg == s.Arch.SP && int64(e.B.N) >= int64(s.Arch.PtrSize)
}

// atEntry is a parameter at the function's first instruction, where code that is not optimized has not brought it to
// its place yet; false for what is none, or is passed in another way.
func (b *binder) atEntry(name string) (value, error, bool) {
	for _, p := range b.site.Parameters() {
		if p.Name != name {
			continue
		}
		reg := func(r arch.Reg) *spec.Fetch { return &spec.Fetch{Op: spec.Reg, Name: b.site.Arch.RegName(r)} }
		stack := func() *spec.Fetch { return plus(reg(b.site.Arch.SP), uint64(p.Pos)) }
		switch at := p.at; {
		case at.nothing:
			return value{typ: p.Type, val: &spec.Fetch{Op: spec.Imm}}, nil, true
		case at.address && at.stacked:
			p.Pos = at.at
			return value{typ: p.Type, addr: load(stack())}, nil, true
		case at.address:
			return value{typ: p.Type, addr: reg(at.regs[0])}, nil, true
		case p.Reg != arch.NoReg:
			return value{typ: p.Type, val: reg(p.Reg)}, nil, true
		case p.Regs != nil && at.regs == nil: // as debug data has it, which knows more
			return value{}, nil, false
		case at.regs != nil:
			v, err := b.site.inWords(p.Type, at)
			return v, err, true
		case p.Err == nil:
			return value{typ: p.Type, addr: stack()}, nil, true
		}
	}
	return value{}, nil, false
}

// passed is a parameter at the function's return, as it was passed.
func (b *binder) passed(name string) (value, error) {
	for _, p := range b.site.Parameters() {
		if p.Name != name {
			continue
		}
		arg := func(r arch.Reg) *spec.Fetch {
			if i := slices.Index(b.site.Arch.Args, r); i >= 0 && !b.site.Data.Go(b.site.At) {
				return &spec.Fetch{Op: spec.ArgN, N: int64(i + 1)}
			}
			if r == arch.NoReg {
				return nil
			}
			return &spec.Fetch{Op: spec.ArgN, Name: b.site.Arch.RegName(r)}
		}
		if at := p.at; at.address && !at.stacked {
			return value{typ: p.Type, addr: arg(at.regs[0])}, nil
		}
		if f := arg(p.Reg); f != nil {
			return value{typ: p.Type, val: f}, nil
		}
		return value{}, fmt.Errorf("%s is not in a register when the function is called: its value is not kept for the return", name)
	}
	v, err := b.site.Data.Variable(b.site.At, name)
	if err != nil {
		return value{}, err
	}
	l, err := v.Where()
	if err == nil && l.Memory != nil && l.Memory.Op == source.OpAddr {
		return b.site.place(l, v.Type)
	}
	return value{}, fmt.Errorf("%s is a local variable, which is gone at the return", name)
}
