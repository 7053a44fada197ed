package bind

import (
	"debug/dwarf"
	"fmt"
	"slices"

	"kprobe/source"
	"kprobe/spec"
)

// Call gives the arguments of a definition that is about calls, at a site: $arg* and a $retval without a type stand
// for what debug data knows of them. Where there is none $arg* is nothing, and $retval the register.
//
// Errors: *spec.SyntaxError.
func Call(sp *spec.Spec, site *Site, lenient bool) ([]spec.Arg, error) {
	c := *sp
	c.Args = nil
	b := &binder{sp: &c, site: site, lenient: lenient}
	for _, a := range sp.Args {
		switch {
		case a.Fetch.Op == spec.AllArgs && site.Data == nil:
		case plain(&a) && site.Data != nil:
			a.Named = false // results of Go that have names have these
			c.Args = append(c.Args, b.results(a)...)
		default:
			c.Args = append(c.Args, a)
		}
	}
	return Args(&c, site, lenient)
}

// Plain tells whether a definition has a $retval that is told no type, its condition included: debug data has one for it.
func Plain(sp *spec.Spec) bool {
	if sp.Kind != spec.Return {
		return false
	}
	return slices.ContainsFunc(sp.Args, func(a spec.Arg) bool { return plain(&a) }) || sp.If != nil && slices.ContainsFunc(Leaves(sp.If.Expr), func(e *spec.Expr) bool {
		return e.Op == spec.ExprDollar && e.Name == "retval"
	})
}

func plain(a *spec.Arg) bool {
	return a.Fetch.Op == spec.Retval && a.Type.Written == "" && len(a.Fetch.Fields) == 0
}

// Typed is a definition whose plain $retval is what debug data says that the function at a site returns. Where there is
// none, it is the register.
func Typed(sp *spec.Spec, site *Site, lenient bool) *spec.Spec {
	if site.Data == nil {
		return sp
	}
	c := *sp
	c.Args = nil
	b := &binder{sp: &c, site: site, lenient: lenient}
	for _, a := range sp.Args {
		if !plain(&a) {
			c.Args = append(c.Args, a)
			continue
		}
		out := b.results(a)
		if out == nil {
			out = []spec.Arg{said(a.Name, "<nothing is returned>")}
		}
		c.Args = append(c.Args, out...)
	}
	return &c
}

// results are what the function returns; the register, where debug data does not tell.
func (b *binder) results(raw spec.Arg) []spec.Arg {
	out := b.resultsOf(raw)
	for i := range out {
		out[i].Result = true
	}
	return out
}

func (b *binder) resultsOf(raw spec.Arg) []spec.Arg {
	if b.site.Data.Go(b.site.At) {
		return b.goResults(raw)
	}
	switch t := b.site.Data.ResultType(b.site.At).(type) {
	case nil:
		if len(b.site.Data.Frames(b.site.At.Addr)) == 0 {
			return []spec.Arg{raw} // an assembler's, say
		}
		return nil
	case *dwarf.UnspecifiedType:
		if t.Name == "" { // an assembler's that lists its functions
			return []spec.Arg{raw}
		}
	}
	a := spec.Arg{Name: raw.Name, Named: true}
	var out []spec.Arg
	v, err := b.result()
	if err == nil {
		out, err = b.arguments(a, v)
	}
	if err != nil {
		out = []spec.Arg{said(a.Name, "<"+err.Error()+">")}
	}
	return out
}

// The registers of results in Go's own calling convention, by DWARF's numbers (abi-internal.md: RAX, RBX, RCX, RDI,
// RSI, R8 to R11), and how many floating-point ones there are besides.
var goResultRegs = []uint64{0, 3, 2, 5, 4, 8, 9, 10, 11}

const goFloatRegs = 15

// goResults are what a function of Go returns. Each result is in registers whole, or not at all: those that are not
// are left out. On a machine whose convention is not known here they are the register.
func (b *binder) goResults(raw spec.Arg) (out []spec.Arg) {
	if b.site.Arch.Name != "amd64" {
		return []spec.Arg{raw}
	}
	results := slices.DeleteFunc(b.site.Data.Variables(b.site.At), func(v *source.Variable) bool { return !v.Out })
	ints, floats := 0, 0
	for i, p := range results {
		if p.Type == nil {
			return out // and where those behind it are is not known
		}
		words, ok := goWords(p.Type, nil)
		n, f := 0, 0
		for _, w := range words {
			if w.float {
				f++
			} else {
				n++
			}
		}
		if !ok || ints+n > len(goResultRegs) || floats+f > goFloatRegs {
			continue // on the stack
		}
		v := value{typ: p.Type}
		for _, w := range words {
			piece := source.Piece{Bits: uint64(8 * w.size)}
			if !w.float {
				piece.Location.Value = &source.Expr{Op: source.OpReg, N: goResultRegs[ints]}
				ints++
			}
			v.pieces = append(v.pieces, piece)
		}
		floats += f
		a := spec.Arg{Name: argName(p.Name), Named: true}
		switch {
		case raw.Named && len(results) == 1:
			a.Name = raw.Name
		case raw.Named:
			a.Name = fmt.Sprintf("%s%d", raw.Name, i)
		case a.Name[0] == '_': // it has none
			if a.Name = "ret"; len(results) > 1 {
				a.Name = fmt.Sprintf("ret%d", i)
			}
		}
		if len(v.pieces) == 1 && v.pieces[0].Location.Value != nil { // a number
			v = value{typ: p.Type, val: &spec.Fetch{Op: spec.Reg, Name: b.site.Arch.Debug.Regs[v.pieces[0].Location.Value.N]}}
		}
		args, err := b.arguments(a, v)
		if err != nil {
			args = []spec.Arg{said(a.Name, "<"+err.Error()+">")}
		}
		out = append(out, args...)
	}
	return out
}

// goWord is a part of a value that has a register of its own.
type goWord struct {
	size  int64
	float bool
}

// goWords are the parts of a type by which it is passed in registers; false where it cannot be.
func goWords(t dwarf.Type, out []goWord) ([]goWord, bool) {
	switch u := source.Plain(t).(type) {
	case *dwarf.StructType:
		at := int64(0)
		for _, f := range u.Field {
			var ok bool
			if f.ByteOffset > at && len(out) > 0 { // what is between the members is in no register
				out[len(out)-1].size += f.ByteOffset - at
			}
			if out, ok = goWords(f.Type, out); !ok {
				return nil, false
			}
			at = f.ByteOffset + f.Type.Size()
		}
		return out, true
	case *dwarf.ArrayType:
		switch u.Count {
		case 0:
			return out, true
		case 1:
			return goWords(u.Type, out)
		}
		return nil, false
	case *dwarf.ComplexType:
		return append(out, goWord{u.Size() / 2, true}, goWord{u.Size() / 2, true}), true
	case *dwarf.FloatType:
		return append(out, goWord{u.Size(), true}), true
	case nil, *dwarf.VoidType:
		return nil, false
	default:
		if u.Size() > 8 {
			return nil, false
		}
		return append(out, goWord{u.Size(), false}), true
	}
}
