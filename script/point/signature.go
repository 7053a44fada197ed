package point

import (
	"errors"
	"fmt"
	"slices"

	"kprobe/script/types"
	"kprobe/symbol"
)

// Debug is what debug data of the files that attach points name says.
type Debug interface {
	// Functions are those that a pattern matches, with their parameters.
	Functions(target string, name Name) ([]Function, error)

	// Type is a type by its name, "struct foo" or "foo_t"; nil for none.
	Type(target, name string) *types.Type

	// Constant is one that an enumeration names.
	Constant(target, name string) (value uint64, t *types.Type, ok bool)
}

// Files knows the files that attach points name.
type Files interface {
	Debug

	// Passings are the functions at a point, without their parameters: those of its name, or the one that has its address.
	Passings(pt *Point) []Function
}

// KernelTypes is what a kernel says of its functions and types. Records come without their members, until these are
// asked for.
type KernelTypes interface {
	Debug

	// Complete gives a record its members.
	Complete(t *types.Type)
}

// Function is one of a file, or of the kernel.
type Function struct {
	Name    string
	Offset  uint64 // in the file
	Params  []Param
	Passing symbol.Passing
	Err     error       // why they are not known
	Result  *types.Type // of a kernel's; nil where it is not known
}

// Signatures gives the points at functions of files, in place of pt, each with what debug data says of the function's
// parameters: those of a pattern may differ.
func (pt *Point) Signatures(debug Debug, kernel KernelTypes) []*Point {
	switch {
	case pt.Raw:
		pt.parameters(kernel)
		return []*Point{pt}
	case pt.Event != nil:
		pt.record(kernel)
		return []*Point{pt}
	}
	if pt.OfKernelAlone() && kernel != nil {
		pt.signature(kernel)
		return []*Point{pt}
	}
	switch {
	case !pt.OfFile() || debug == nil:
		return []*Point{pt}
	case pt.Inlined:
		pt.NoParams = "args: where " + pt.Function + " is inlined its parameters lie wherever the compiler has them"
		return []*Point{pt}
	case pt.HasAddr || pt.Offset != 0:
		pt.NoParams = "args: parameters are known where a function is entered, not behind its beginning"
		return []*Point{pt}
	}
	found, err := debug.Functions(pt.Target, pt.Name())
	if err == nil && len(found) == 0 {
		err = errors.New("no such function is there")
	}
	if err != nil {
		pt.NoParams = fmt.Sprintf("args: %s: %v", pt.Text, err)
		return []*Point{pt}
	}
	var all []*Point
	seen := map[uint64]bool{}
	for _, f := range found {
		if seen[f.Offset] {
			continue // by another name
		}
		seen[f.Offset] = true
		one := pt.only(f)
		one.Params = f.Params
		switch {
		case f.Err != nil:
			one.NoParams = fmt.Sprintf("args: the parameters of %s are not known: %v", f.Name, f.Err)
		case len(f.Params) == 0:
			one.NoParams = fmt.Sprintf("args: %s has no parameters", f.Name)
		}
		switch {
		case len(all) == 0 || one.HasAddr:
			all = append(all, one)
		case one.Layout() != all[0].Layout() || one.NoParams != all[0].NoParams:
			all[0].Params, all[0].NoParams = nil, fmt.Sprintf("args: %s is the name of functions with different parameters", f.Name)
		}
	}
	return all
}

// only is the point at one of its functions.
func (pt *Point) only(f Function) *Point {
	one := *pt
	one.Passing = f.Passing
	if pt.Many() { // by its place: several may have one name
		one.Address, one.HasAddr, one.Virtual, one.Text = f.Offset, true, false, pt.Provider+":"+pt.Target+":"+f.Name
	}
	return &one
}

// ByPassing gives the points in place of pt where arguments are asked for by their numbers: pt itself, or one for each function where those
// that it names do not all have their arguments in the same places.
func (pt *Point) ByPassing(files Files) (all []*Point) {
	found := files.Passings(pt)
	if len(found) > 0 {
		pt.Passing = found[0].Passing
	}
	other := func(f Function) bool { return f.Passing != pt.Passing }
	switch {
	case !slices.ContainsFunc(found, other):
		return []*Point{pt}
	case !pt.Many():
		pt.Passing = symbol.UnknownOfGo
		return []*Point{pt}
	}
	for _, f := range found {
		all = append(all, pt.only(f))
	}
	return all
}

// parameters says what the kernel's types do of what a tracepoint tells: the function that calls all who listen has them behind the first.
func (pt *Point) parameters(kernel KernelTypes) {
	var found []Function
	err := errors.New("the kernel's types are not known")
	if kernel != nil {
		found, err = kernel.Functions("", Name{Pattern: "__traceiter_" + pt.Event.Name})
	}
	switch {
	case err != nil:
		pt.NoParams = fmt.Sprintf("args: %s: %v", pt.Text, err)
	case len(found[0].Params) < 2:
		pt.NoParams = fmt.Sprintf("args: %s has no parameters", pt.Text)
	default:
		pt.Params = found[0].Params[1:]
	}
}

// record says what the kernel's types do of a trace event's record.
func (pt *Point) record(kernel KernelTypes) {
	var t *types.Type
	if kernel != nil {
		t = kernel.Type("", "struct "+pt.Event.Record)
	}
	if t == nil {
		pt.NoParams = fmt.Sprintf("args: the kernel's types know no struct %s", pt.Event.Record)
		return
	}
	kernel.Complete(t)
	var members []Param
	for _, f := range t.Fields {
		p := Param{Name: f.Name, Type: f.Type, Offset: f.Offset}
		if f.BitSize > 0 {
			p.Err = errors.New("it has a part of a byte")
		}
		members = append(members, p)
	}
	pt.Fields(members)
}

// signature says what the kernel's types do of a function's parameters and its result.
func (pt *Point) signature(kernel KernelTypes) {
	switch {
	case HasGlob(pt.Function):
		pt.NoParams = "args: " + pt.Text + " stands for functions with parameters of their own: name one"
		return
	case pt.HasAddr || pt.Offset != 0:
		pt.NoParams = "args: parameters are known where a function is entered, not behind its beginning"
		return
	}
	found, err := kernel.Functions(pt.Target, Name{Pattern: pt.Function})
	switch {
	case err != nil:
		pt.NoParams = fmt.Sprintf("args: %s: %v", pt.Text, err)
	case len(found[0].Params) == 0:
		pt.NoParams = fmt.Sprintf("args: %s has no parameters", pt.Function)
	default:
		pt.Params = found[0].Params
	}
	if err == nil && pt.Provider == "fexit" {
		pt.Result = found[0].Result
	}
}
