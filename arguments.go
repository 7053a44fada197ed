package kprobe

import (
	"reflect"

	"kprobe/arch"
	"kprobe/internal/args"
	"kprobe/internal/cabi"
	"kprobe/internal/mem"
)

// isPointer tells the types that read on demand what a pointer points to.
func isPointer(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[pointer]())
}

// GoArgs reads the arguments of a Go function (ABIInternal) at its entry into
// the variables that ptrs point to, in their order, a method's receiver first. The types
// are those that a Jprobe's Entry may have. Errors: EINVAL for others; EFAULT.
func (r *Regs) GoArgs(ptrs ...any) error {
	return args.Go.Read(r.s.e.On.Machine, r, ptrs, false, r.pointers())
}

// GoResults reads the results of a Go function in a return handler. Errors: as
// GoArgs; ENOTSUP where not all of them are in registers.
func (r *Regs) GoResults(ptrs ...any) error {
	return args.Go.Read(r.s.e.On.Machine, r, ptrs, true, r.pointers())
}

// pointers are the types that read from memory when asked to.
func (r *Regs) pointers() args.Pointers {
	return args.Pointers{Is: isPointer, Bind: func(p any, to arch.Addr) { p.(pointer).bind(r.s, to) }}
}

// CString is a pointer to zero-terminated text in the target.
type CString struct {
	Addr arch.Addr
	s    *Session
}

// Read reads the text, at most max bytes of it. Errors: EFAULT.
func (c CString) Read(max int) (string, error) { return mem.Text(c.s.e.On.Own(), c.Addr, max) }

// String reads up to 4096 bytes; it gives "(fault)" for a bad pointer, as
// event lines do.
func (c CString) String() string {
	t, err := c.Read(4096)
	if err != nil {
		return "(fault)"
	}
	return t
}

// Ptr is a pointer to a T in the target. T holds fixed-size values only, laid
// out as C would (give padding as blank fields).
type Ptr[T any] struct {
	Addr arch.Addr
	s    *Session
}

// At is the pointer at an address that was itself read from the target: a
// list's next element, say.
func At[T any](s *Session, addr arch.Addr) Ptr[T] { return Ptr[T]{addr, s} }

// Load reads what the pointer points to. Errors: EFAULT; EINVAL for a T that
// has no fixed size.
func (p Ptr[T]) Load() (v T, err error) {
	err = cabi.Load(p.s.e.On.Arch, p.s.ReadMem, p.Addr, reflect.ValueOf(&v).Elem())
	return v, err
}

// pointer is what parameters that read on demand have in common.
type pointer interface{ bind(*Session, arch.Addr) }

func (c *CString) bind(s *Session, a arch.Addr) { c.s, c.Addr = s, a }
func (p *Ptr[T]) bind(s *Session, a arch.Addr)  { p.s, p.Addr = s, a }
