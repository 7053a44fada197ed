package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/source"
	"kprobe/spec"
)

// result is what the function returns, at its return.
func (b *binder) result() (value, error) {
	if b.sp.Kind != spec.Return {
		return value{}, errors.New("$retval is known at a return only")
	}
	t := b.site.Data.ResultType(b.site.At)
	if t == nil {
		return value{}, errors.New("the function returns nothing")
	}
	ret := &spec.Fetch{Op: spec.Retval}
	size, ptr := t.Size(), int64(b.site.Arch.PtrSize)
	switch {
	case b.site.Data.Go(b.site.At):
		return value{}, errors.New("where Go's functions return values is not described: use registers")
	case !isAggregate(t):
		if hasFloat(t) {
			return value{}, errors.New("it is returned in a floating-point register, which is not read")
		}
		if size > ptr {
			return value{}, fmt.Errorf("a %s is returned in two registers, which are not put together", typeName(t))
		}
		return value{typ: t, val: ret}, nil
	case b.site.Data.CPlus(b.site.At) && b.site.Arch.Name == "amd64" && size > 2*ptr: // as in C
		return value{typ: t, addr: ret}, nil
	case !b.site.Data.C(b.site.At):
		return value{}, fmt.Errorf("how a %s is returned by a function that is not of C is not known", typeName(t))
	case b.site.Arch.Name != "amd64":
		return value{}, fmt.Errorf("how a %s is returned on %s is not known", typeName(t), b.site.Arch.Name)
	case size > 2*ptr: // in memory, and its address in the register
		return value{typ: t, addr: ret}, nil
	case hasFloat(t):
		return value{}, errors.New("parts of it are returned in floating-point registers, which are not read")
	case size <= ptr:
		return value{typ: t, val: ret}, nil
	}
	second := uint64(1) // DWARF's number of rdx
	return value{typ: t, pieces: []source.Piece{
		{Bits: 64, Location: source.Location{Value: &source.Expr{Op: source.OpReg, N: 0}}},
		{Bits: uint64(8 * (size - ptr)), Location: source.Location{Value: &source.Expr{Op: source.OpReg, N: second}}},
	}}, nil
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
}

// Parameters are those of the function that a site is in: each in the register that debug data names for the
// entry or, in code that is not optimized, by the rules of the C ABI.
func (s *Site) Parameters() (out []Parameter) {
	n := int64(0) // how many of the ABI's registers are taken; far below 0 where that is not known
	const unknown = -1 << 32
	switch ret := s.Data.ResultType(s.At); {
	case s.Data.Go(s.At):
		n = unknown
	case ret == nil || !isAggregate(ret):
	case !s.Data.C(s.At) || s.Arch.Name != "amd64":
		n = unknown
	case ret.Size() > 16:
		n = 1 // where to put it comes first
	}
	all := s.Data.Variables(s.At)
	if !s.Unoptimized || slices.ContainsFunc(all, func(v *source.Variable) bool { return v.Param && !v.Fixed() }) {
		n = unknown // the optimizer may have left out what nobody needs
	}
	floats := int64(0) // how many of the ABI's registers for them are taken
	for _, v := range all {
		if !v.Param || v.Out {
			break
		}
		p := Parameter{Name: v.Name, Type: v.Type, Reg: arch.NoReg}
		whole := v.Type != nil && !isAggregate(v.Type) && !hasFloat(v.Type) && v.Type.Size() <= int64(s.Arch.PtrSize)
		_, float := source.Plain(v.Type).(*dwarf.FloatType)
		l, err := v.Where()
		if err != nil {
			l = source.Location{}
		}
		reg, inReg := s.passedIn(l)
		pos, inMemory := s.passedAt(l)
		inMemory = inMemory && !v.AwaitsPrologue()
		// A structure of at most two words: by the C ABI each has a register, or it lies on the stack.
		words, sse, known := s.words(v.Type)
		fits := known && n >= 0 && n+words <= int64(len(s.Arch.Args)) && floats+sse <= floatArgs
		regs := s.passedInPieces(l, v.Type)
		switch {
		case regs != nil:
			p.Regs = regs
		case inReg && isAggregate(v.Type) && v.Type.Size() <= int64(s.Arch.PtrSize):
			p.Reg, p.Regs = reg, []arch.Reg{reg}
		case inReg:
			p.Reg = reg
		case inMemory:
			p.Pos = pos
		case whole && n >= 0 && n < int64(len(s.Arch.Args)):
			p.Reg = s.Arch.Args[n]
		case fits && sse == 0:
			p.Regs = s.Arch.Args[n : n+words]
		default:
			p.Err = fmt.Errorf("%s is not in a register when the function is called", v.Name)
		}
		switch {
		case whole:
			n++
		case float && s.Arch == arch.AMD64 && v.Type.Size() <= 8: // it has registers of its own
			floats++
		case float && s.Arch == arch.AMD64: // a long double lies on the stack
		case fits:
			n, floats = n+words, floats+sse
		case known && n >= 0: // it lies on the stack
		case isAggregate(v.Type) && v.Type.Size() > 16 && s.Arch == arch.AMD64 && s.Data.C(s.At): // it lies on the stack
		default:
			n = unknown // what follows it is anywhere
		}
		out = append(out, p)
	}
	return out
}

// floatArgs is how many registers x86-64's C ABI has for floating-point arguments.
const floatArgs = 8

// words is how many registers of either kind x86-64's C ABI passes a structure of at most two words in; false where it is none.
func (s *Site) words(t dwarf.Type) (ints, sse int64, ok bool) {
	if !isAggregate(t) || t.Size() <= 0 || t.Size() > 16 || s.Arch != arch.AMD64 || !s.Data.C(s.At) {
		return 0, 0, false
	}
	for at := int64(0); at < t.Size(); at += 8 {
		number, float, ok := s.classes(t, at, at+8)
		switch {
		case !ok:
			return 0, 0, false
		case number || !float:
			ints++
		default:
			sse++
		}
	}
	return ints, sse, true
}

// classes tells whether numbers and whether floating-point numbers begin from lo to hi bytes behind the beginning of a type.
func (s *Site) classes(t dwarf.Type, lo, hi int64) (number, float, ok bool) {
	switch u := source.Plain(t).(type) {
	case *dwarf.FloatType:
		return false, lo <= 0 && 0 < hi, u.Size() <= 8
	case *dwarf.ComplexType:
		return false, true, u.Size() <= 16
	case *dwarf.ArrayType:
		for i := range max(0, u.Count) {
			n, f, ok := s.classes(u.Type, lo-i*u.Type.Size(), hi-i*u.Type.Size())
			if !ok {
				return false, false, false
			}
			number, float = number || n, float || f
		}
		return number, float, true
	case *dwarf.StructType:
		for _, m := range s.Data.Complete(u).Field {
			n, f, ok := s.classes(m.Type, lo-m.ByteOffset, hi-m.ByteOffset)
			if !ok {
				return false, false, false
			}
			number, float = number || n, float || f
		}
		return number, float, true
	case nil:
		return false, false, false
	}
	return lo <= 0 && 0 < hi, false, t.Size() <= 8
}

// passedIn is the register that a parameter's location at the function's entry names.
func (s *Site) passedIn(l source.Location) (arch.Reg, bool) {
	if l.Value == nil || l.Value.Op != source.OpReg {
		return arch.NoReg, false
	}
	f, err := s.register(l.Value.N)
	if err != nil {
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
	f, err := s.register(e.A.N)
	if err != nil {
		return 0, false
	}
	reg, _ := s.Arch.RegByName(f.Name)
	return int64(e.B.N), reg == s.Arch.SP && int64(e.B.N) >= int64(s.Arch.PtrSize)
}

// atEntry is a parameter at the function's first instruction, where code that is not optimized has not brought it to
// its place yet; false for what is none, or is passed in another way.
func (b *binder) atEntry(name string) (value, bool) {
	for _, p := range b.site.Parameters() {
		switch {
		case p.Name != name:
		case p.Reg != arch.NoReg:
			return value{typ: p.Type, val: &spec.Fetch{Op: spec.Reg, Name: b.site.Arch.RegName(p.Reg)}}, true
		case p.Err == nil && p.Regs == nil:
			sp := &spec.Fetch{Op: spec.Reg, Name: b.site.Arch.RegName(b.site.Arch.SP)}
			return value{typ: p.Type, addr: plus(sp, uint64(p.Pos))}, true
		}
	}
	return value{}, false
}

// passed is a parameter at the function's return, as it was passed.
func (b *binder) passed(name string) (value, error) {
	for _, p := range b.site.Parameters() {
		if p.Name != name {
			continue
		}
		if i := slices.Index(b.site.Arch.Args, p.Reg); i >= 0 {
			return value{typ: p.Type, val: &spec.Fetch{Op: spec.ArgN, N: int64(i + 1)}}, nil
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
