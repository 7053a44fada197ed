package kprobe

import (
	"reflect"

	"kprobe/arch"
	"kprobe/internal/args"
	"kprobe/symbol"
)

// conventionOf tells by its file how a function is given its arguments.
func conventionOf(loc symbol.Loc) args.Convention {
	m := loc.Module
	return args.ConventionOf(loc.Func.Name, m != nil && m.File != nil && m.File.IsGo())
}

// isPointer tells the types that read on demand what a pointer points to.
func isPointer(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[pointer]())
}

// GoArgs reads the arguments of a Go function (ABIInternal) at its entry into
// the variables that ptrs point to, in their order, a method's receiver first. The types
// are those that a Jprobe's Entry may have. Errors: EINVAL for others; EFAULT.
func (r *Regs) GoArgs(ptrs ...any) error {
	return args.Go.Read(r.s.on.Machine, r, ptrs, false, r.pointers())
}

// GoResults reads the results of a Go function in a return handler. Errors: as
// GoArgs; ENOTSUP where not all of them are in registers.
func (r *Regs) GoResults(ptrs ...any) error {
	return args.Go.Read(r.s.on.Machine, r, ptrs, true, r.pointers())
}

// pointers are the types that read from memory when asked to.
func (r *Regs) pointers() args.Pointers {
	return args.Pointers{Is: isPointer, Bind: func(p any, to arch.Addr) { p.(pointer).bind(r.s, to) }}
}
