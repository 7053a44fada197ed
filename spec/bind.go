package spec

import (
	"fmt"
	"strings"
)

// Names gives the names of a definition their meaning: debug data does, and the types of a kernel. The
// errors of all methods are *SyntaxError; i is the argument that is meant.
type Names interface {
	// Has tells a fetch that is a name, with its members.
	Has(f *Fetch) bool

	// All are the arguments that $arg*, or $locals, stands for.
	All(i int, op Op) ([]Arg, error)

	// Value is an argument by a name: several, where it has parts.
	Value(i int, a Arg) ([]Arg, error)

	// Pointer is a name's value as the address of something else.
	Pointer(i int, f *Fetch) (*Fetch, error)
}

// Bind gives the arguments of a definition in terms that have no names. What has none stays as it is. An
// argument whose name another one has is called by its number. Errors: those of names.
func Bind(sp *Spec, names Names) ([]Arg, error) {
	var out []Arg
	for i, a := range sp.Args {
		args, err := bind(i, a, names)
		if err != nil {
			return nil, err
		}
		for k := range args {
			args[k].Result = args[k].Result || a.Fetch.returned()
		}
		out = apart(out, args, fmt.Sprintf("arg%d", i+1))
	}
	return out, nil
}

func bind(i int, a Arg, names Names) ([]Arg, error) {
	switch {
	case a.Fetch.Op == AllArgs || a.Fetch.Op == Locals:
		return names.All(i, a.Fetch.Op)
	case names.Has(&a.Fetch):
		return names.Value(i, a)
	case a.Fetch.Op == Deref:
		inner, err := pointer(i, a.Fetch.Inner, names)
		if err != nil {
			return nil, err
		}
		a.Fetch.Inner = inner
	}
	return []Arg{a}, nil
}

// returned tells whether a fetch asks for what the function returns.
func (f *Fetch) returned() bool {
	return f.Any(func(f *Fetch) bool { return f.Op == Retval || f.Op == Expression && f.Expr.returned() })
}

// returned tells whether $retval is part of an expression.
func (e *Expr) returned() bool {
	return e != nil && (e.Op == ExprDollar && e.Name == "retval" || e.L.returned() || e.R.returned())
}

// pointer binds what is dereferenced: it may be a name, below any number of dereferences.
func pointer(i int, f *Fetch, names Names) (*Fetch, error) {
	switch {
	case f == nil:
		return nil, nil
	case names.Has(f):
		return names.Pointer(i, f)
	case f.Op != Deref:
		return f, nil
	}
	c := *f
	inner, err := pointer(i, f.Inner, names)
	c.Inner = inner
	return &c, err
}

// apart appends arguments. Those whose name another one has get the name as, or one with a number.
func apart(out, args []Arg, as string) []Arg {
	taken := map[string]bool{}
	for _, a := range out {
		taken[a.Name] = true
	}
	from, to := "", "" // the name that is replaced
	for _, a := range args {
		top, part, parts := strings.Cut(a.Name, PartSep)
		if top != from {
			from, to = "", ""
		}
		if from == "" && taken[a.Name] {
			from, to = top, as
			for n := 2; taken[to]; n++ {
				to = fmt.Sprintf("%s_%d", top, n)
			}
		}
		if from != "" {
			a.Name = to
			if parts {
				a.Name += PartSep + part
			}
		}
		taken[a.Name] = true
		out = append(out, a)
	}
	return out
}
