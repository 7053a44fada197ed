package bind

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/source"
	"kprobe/spec"
)

// Leaves are the parts of a condition's expression that are values of their own: variables with their members, and
// what a definition calls by a $ sign.
func Leaves(e *spec.Expr) (out []*spec.Expr) {
	switch e.Op {
	case spec.ExprUnary, spec.ExprBinary:
		out = Leaves(e.L)
		if e.R != nil {
			out = append(out, Leaves(e.R)...)
		}
		return out
	case spec.ExprNumber, spec.ExprText, spec.ExprFloat:
		return nil
	}
	return []*spec.Expr{e}
}

// Needs tells whether a definition has anything that only debug data can place.
func Needs(sp *spec.Spec) bool {
	if slices.ContainsFunc(sp.Args, func(a spec.Arg) bool { return needs(&a.Fetch) }) {
		return true
	}
	if sp.If == nil {
		return false
	}
	return slices.ContainsFunc(Leaves(sp.If.Expr), func(e *spec.Expr) bool {
		return e.Op != spec.ExprDollar && !slices.Contains(Known, e.Name) && !slices.ContainsFunc(sp.Args, func(a spec.Arg) bool { return e.Op == spec.ExprName && a.Name == e.Name })
	})
}

func needs(f *spec.Fetch) bool {
	return f != nil && (f.Op == spec.Expression || f.Op == spec.Locals || f.Op == spec.AllArgs || needs(f.Inner))
}

// Known are names that a condition has everywhere.
var Known = []string{"comm", "pid", "tid"}

// Optimized is the text that stands for a variable that has no value at one of several places.
const Optimized = "<optimized out>"

// Args gives the arguments of a definition at a site in terms that need no debug data. What asks for
// nothing stays as it is. With lenient, a variable that is optimized out here is a text that says so;
// $arg* and $locals have them always.
//
// Errors: *spec.SyntaxError.
func Args(sp *spec.Spec, site *Site, lenient bool) ([]spec.Arg, error) {
	return spec.Bind(sp, &binder{sp: sp, site: site, lenient: lenient})
}

// binder binds the names of a definition at a site.
type binder struct {
	sp      *spec.Spec
	site    *Site
	lenient bool
}

func (b *binder) fail(part spec.Part, err error) error {
	code := spec.BadFetchArg
	var absent *source.NotFoundError
	switch {
	case errors.As(err, &absent), errors.Is(err, source.ErrOptimized):
		code = spec.NoBtfArg
	case errors.Is(err, source.ErrNone):
		code = spec.NoSupBtfArg
	}
	return b.sp.ErrorAt(code, part, err)
}

// Has implements spec.Names.
func (b *binder) Has(f *spec.Fetch) bool { return f.Op == spec.Expression }

// Value implements spec.Names.
func (b *binder) Value(i int, a spec.Arg) ([]spec.Arg, error) {
	if b.site.Data == nil {
		return nil, b.fail(spec.PartFetch(i), b.site.Err)
	}
	v, err := b.eval(a.Fetch.Expr)
	if b.lenient && errors.Is(err, source.ErrOptimized) {
		v, err = value{text: Optimized}, nil
	}
	if err != nil {
		return nil, b.fail(spec.PartFetch(i), err)
	}
	out, err := b.arguments(a, v)
	if err != nil {
		return nil, b.fail(spec.PartFetch(i), fmt.Errorf("%s: %w", a.Fetch.Expr, err))
	}
	return out, nil
}

// Pointer implements spec.Names.
func (b *binder) Pointer(i int, f *spec.Fetch) (*spec.Fetch, error) {
	if b.site.Data == nil {
		return nil, b.fail(spec.PartFetch(i), b.site.Err)
	}
	v, err := b.eval(f.Expr)
	if err == nil {
		f, err = b.site.word(v)
	}
	if err != nil {
		return nil, b.fail(spec.PartFetch(i), err)
	}
	return f, nil
}

// All are all parameters, or all variables in scope. What cannot be printed as it is, a struct say, is left
// out; what is optimized out says so.
func (b *binder) All(i int, op spec.Op) ([]spec.Arg, error) {
	if b.site.Data == nil {
		return nil, b.fail(spec.PartFetch(i), b.site.Err)
	}
	if err := b.site.Data.Unread(b.site.At); err != nil {
		return nil, b.fail(spec.PartFetch(i), err)
	}
	params := op == spec.AllArgs
	var out []spec.Arg
	for _, v := range b.site.Data.Variables(b.site.At) {
		if (v.Param && !v.Out) != params { // what a function of Go returns is no argument of it
			continue
		}
		a := spec.Arg{Name: argName(v.Name), Named: true}
		if slices.ContainsFunc(out, func(o spec.Arg) bool { return o.Name == a.Name }) {
			continue
		}
		x, err := b.variable(v.Name)
		if errors.Is(err, source.ErrOptimized) {
			x, err = value{text: Optimized}, nil
		}
		var args []spec.Arg
		if err == nil {
			args, err = b.arguments(a, x)
		}
		if err != nil {
			args = []spec.Arg{said(a.Name, "<"+err.Error()+">")}
		}
		out = append(out, args...)
	}
	return out, nil
}

// argName is a name as an argument can have it.
func argName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9' || i == 0) {
			b[i] = '_'
		}
	}
	return string(b[:min(len(b), 32)])
}

// variable is a variable by name, at the site.
func (b *binder) variable(name string) (value, error) {
	if b.sp.Kind == spec.Return {
		return b.passed(name)
	}
	if b.site.Entry && b.site.Unoptimized {
		if v, err, ok := b.atEntry(name); err != nil {
			return value{}, fmt.Errorf("%s: %w", name, err)
		} else if ok {
			return b.meant(v, name)
		}
	}
	v, err := b.site.Data.Variable(b.site.At, name)
	if err != nil {
		return value{}, err
	}
	if b.site.Entry && v.AwaitsPrologue() && !b.site.Data.Go(b.site.At) { // Go's are the caller's, or have a list
		if b.site.Body == b.site.At.Addr { // there is no prologue: nobody stores what nobody uses
			return value{}, &source.AbsentError{Name: name}
		}
		return value{}, fmt.Errorf("known from %s+%#x on, behind the prologue", b.site.Func, b.site.Body-b.site.At.Addr)
	}
	l, err := v.Where()
	if err != nil {
		return value{}, b.nearest(err)
	}
	if b.site.misplaced(v, l) {
		l.Memory = &source.Expr{Op: source.OpLoad, A: l.Memory, Size: b.site.Arch.PtrSize}
	}
	out, err := b.site.place(l, v.Type)
	if err == nil && v.Param {
		err = b.site.order(&out)
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	return b.meant(out, name)
}

// meant is a variable as the source means it: a reference stands for what it refers to.
func (b *binder) meant(v value, name string) (value, error) {
	if !source.IsReference(v.typ) {
		return v, nil
	}
	v, err := b.follow(v, &spec.Expr{Op: spec.ExprName, Name: name})
	if err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// nearest tells addresses as the process has them.
func (b *binder) nearest(err error) error {
	var absent *source.AbsentError
	if errors.As(err, &absent) && absent.Nearest != 0 {
		c := *absent
		c.Nearest += b.site.Bias
		return &c
	}
	return err
}
