package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/event"
	"kprobe/source/bind"
	"kprobe/spec"
	"kprobe/symbol"
)

// conditional adds what a definition's condition looks at to its arguments, which are bound already.
func (t *traced) conditional(args []spec.Arg, at symbol.Loc) ([]spec.Arg, *event.Condition, error) {
	sp := t.spec
	cond := &event.Condition{Expr: sp.If.Expr, Leaf: map[*spec.Expr]int{}}
	all := slices.Clone(args)
	type unknown struct {
		e   *spec.Expr
		err error
	}
	var names []unknown
	for _, e := range bind.Leaves(sp.If.Expr) {
		if e.Op == spec.ExprName {
			if k := slices.IndexFunc(args, func(a spec.Arg) bool { return a.Name == e.Name }); k >= 0 {
				cond.Leaf[e] = k
				if a, err := t.leaf(e, at); err == nil && args[k].Type.Base != spec.String && comparedWithText(sp.If.Expr, e) {
					cond.Leaf[e] = len(all) // the variable of that name, which the argument shows in another way
					all = append(all, a)
				}
				continue
			}
			if k, ok := map[string]int{"tid": event.LeafTID, "pid": event.LeafPID}[e.Name]; ok {
				cond.Leaf[e] = k
				continue
			}
		}
		a, err := t.leaf(e, at)
		if err != nil {
			var se *spec.SyntaxError
			if errors.As(err, &se) && se.Err != nil {
				err = se.Err
			}
			if e.Op == spec.ExprName {
				names = append(names, unknown{e, err})
				continue
			}
			return nil, nil, sp.ErrorAt(spec.BadCondition, spec.PartIf, err)
		}
		cond.Leaf[e] = len(all)
		all = append(all, a)
	}
	for _, name := range names {
		if n, ok := truths[name.e.Name]; ok {
			cond.Leaf[name.e] = len(all)
			all = append(all, constant(n))
			continue
		}
		k, ok := cond.Leaf[beside(sp.If.Expr, name.e)]
		if !ok || k < 0 || all[k].Type.Enum == nil {
			return nil, nil, sp.ErrorAt(spec.BadCondition, spec.PartIf, name.err)
		}
		n, ok := all[k].Type.Enum.Number(name.e.Name)
		if !ok {
			return nil, nil, sp.ErrorAt(spec.BadCondition, spec.PartIf, fmt.Errorf("%w; nor has the enumeration that it is compared with such a name", name.err))
		}
		cond.Leaf[name.e] = len(all)
		all = append(all, constant(n))
	}
	return all, cond, nil
}

// truths are what a bool is compared with, where the program has no variable of that name.
var truths = map[string]int64{"false": 0, "true": 1}

func constant(n int64) spec.Arg {
	return spec.Arg{Name: "if", Fetch: spec.Fetch{Op: spec.Imm, N: n}, Type: spec.Type{Written: "s64", Base: spec.Signed, Size: 8}}
}

// beside is what a leaf of an expression is compared with; nil for nothing.
func beside(e, leaf *spec.Expr) *spec.Expr {
	switch {
	case e == nil:
		return nil
	case e.Op == spec.ExprBinary && e.L == leaf:
		return e.R
	case e.Op == spec.ExprBinary && e.R == leaf:
		return e.L
	}
	if found := beside(e.L, leaf); found != nil {
		return found
	}
	return beside(e.R, leaf)
}

// leaf is an argument that a condition has for itself.
func (t *traced) leaf(e *spec.Expr, at symbol.Loc) (spec.Arg, error) {
	only := *t.spec
	only.If = nil
	a := spec.Arg{Name: "if"}
	_, types := t.tr.s.Target().(binder)
	switch {
	case e.Op == spec.ExprName && e.Name == "comm":
		a.Fetch, a.Type = spec.Fetch{Op: spec.Comm}, spec.Type{Base: spec.String}
		return a, nil
	case e.Op == spec.ExprDollar:
		one, err := t.tr.parser.Parse(strings.TrimSpace(string(t.spec.Kind)+" f ") + " x=$" + e.Name)
		if err != nil {
			return a, err
		}
		a.Fetch, a.Type = one.Args[0].Fetch, one.Args[0].Type
		if e.Name == "retval" && !types {
			if typed, err := t.typedResult(at); err == nil {
				return typed, nil
			}
		}
		return a, nil
	case types:
		f, ok := btfFetch(e)
		if !ok {
			return a, errors.New(e.String() + " is not read in a kernel")
		}
		a.Fetch = f
	default:
		a.Fetch = spec.Fetch{Op: spec.Expression, Expr: e}
	}
	// What points at characters is compared with text.
	text := comparedWithText(t.spec.If.Expr, e)
	if text {
		a.Type = spec.Type{Written: "string", Base: spec.String}
	}
	only.Args = []spec.Arg{a}
	args, err := bindArgs(t.tr.s, &only, at, t.at0.at, t.several)
	if err != nil {
		return a, err
	}
	return one(args, e)
}

// one is what stands for a value in a condition: of what has parts, that which tells what there is.
func one(args []spec.Arg, e *spec.Expr) (spec.Arg, error) {
	if strings.HasPrefix(args[0].Name, "if"+spec.PartSep+spec.PartLow) {
		return spec.Arg{}, fmt.Errorf("%s has more than 8 bytes, with which no condition computes", e)
	}
	if len(args) != 1 && !strings.HasSuffix(args[0].Name, spec.PartSep+spec.PartTag) {
		return spec.Arg{}, fmt.Errorf("%s has parts: name one that can be compared", e)
	}
	return args[0], nil
}

// typedResult is $retval with the type that the source gives it.
func (t *traced) typedResult(at symbol.Loc) (spec.Arg, error) {
	only := *t.spec
	only.If = nil
	only.Args = []spec.Arg{{Name: "if", Fetch: spec.Fetch{Op: spec.Expression, Expr: &spec.Expr{Op: spec.ExprDollar, Name: "retval"}}}}
	args, err := bindArgs(t.tr.s, &only, at, t.at0.at, false)
	if err != nil {
		return spec.Arg{}, err
	}
	return one(args, only.Args[0].Fetch.Expr)
}

// comparedWithText tells whether a part of an expression stands beside a text.
func comparedWithText(e, leaf *spec.Expr) bool {
	if e == nil {
		return false
	}
	return e.Op == spec.ExprBinary && e.L == leaf && e.R.Op == spec.ExprText || comparedWithText(e.L, leaf) || comparedWithText(e.R, leaf)
}

// btfFetch is a variable with members, as kernels' type information takes it.
func btfFetch(e *spec.Expr) (spec.Fetch, bool) {
	switch e.Op {
	case spec.ExprName:
		return spec.Fetch{Op: spec.Var, Name: e.Name}, true
	case spec.ExprDollar:
		return spec.Fetch{Op: spec.Retval}, e.Name == "retval"
	case spec.ExprMember, spec.ExprArrow:
		f, ok := btfFetch(e.L)
		f.Fields = append(f.Fields, spec.Field{Arrow: e.Op == spec.ExprArrow, Name: e.Name})
		return f, ok
	}
	return spec.Fetch{}, false
}
